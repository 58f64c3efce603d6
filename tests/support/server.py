"""A real Redis server for the tests: its own folder, a unix socket, no persistence unless a test asks for it.

Which binary: the environment variable `GRISTMILL_TEST_SERVER` if set, else what the embedded Redis would take.
The server itself is not `EmbeddedRedis`: the tests kill it, restart it and configure it, and must not trust ours.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from gristmill.errors import EmbeddedServerError
from gristmill.store.embedded import SERVER_VARIABLE, find_server

READY = b"eady to accept connections"
_PR_SET_PDEATHSIG = 1

FIRST_PORT, PORTS, BUS = 10_000, 12_000, 10_000
_ports = itertools.count(os.getpid() * 37)


def free_port() -> int:
    """A port that is free and was not given out before; that of the bus, were it a node of a cluster, is free as well.

    Both lie below the ports that systems give to connections: nobody takes one by chance before the server does.
    """
    for number in itertools.islice(_ports, PORTS):
        port = FIRST_PORT + number % PORTS
        with closing(socket.socket()) as own, closing(socket.socket()) as bus:
            try:
                own.bind(("127.0.0.1", port))
                bus.bind(("127.0.0.1", port + BUS))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def require_server_binary() -> Path:
    """The server binary; without one, skip on a laptop and fail in CI. One that was chosen by name must be there."""
    try:
        return Path(find_server())
    except EmbeddedServerError as error:
        if os.environ.get("CI") == "true" or SERVER_VARIABLE in os.environ:
            pytest.fail(str(error))
        pytest.skip(str(error))


def die_with_parent() -> None:
    """In the child: be killed when the test run is, however it ends. Only Linux has this."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class RedisServer:
    """One server process. `persistent` keeps its data over `restart` and `kill`."""

    def __init__(self, binary: Path | None = None, *, persistent: bool = False, port: int = 0) -> None:
        self.binary = binary or require_server_binary()
        self.persistent = persistent
        self.port = port
        self.directory = Path(tempfile.mkdtemp(prefix="gmtest-"))
        self.socket = self.directory / "redis.sock"
        self._log = self.directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The URL that a client, a scheduler or a worker takes."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self, *options: str, wait: bool = True) -> None:
        """Start and return when the server itself says that it accepts connections, unless told not to wait for it."""
        command = [
            str(self.binary),
            "--port",
            str(self.port),
            "--unixsocket",
            str(self.socket),
            "--dir",
            str(self.directory),
        ]
        command += ["--save", "", "--appendonly", "yes" if self.persistent else "no", "--appendfsync", "always"]
        command += ["--maxmemory-policy", "noeviction", "--daemonize", "no", *options]
        # A file, not a pipe: nobody would read that, and a server that cannot write its log stands still.
        with self._log.open("ab") as log:
            before = log.tell()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, preexec_fn=die_with_parent)
        if wait:
            self._wait_ready(before)

    def _wait_ready(self, before: int) -> None:
        assert self._process is not None
        while True:
            ended = self._process.poll() is not None
            said = self._log.read_bytes()[before:]
            if READY in said:
                return
            if ended:
                raise RuntimeError(f"{self.binary} did not start:\n{said.decode(errors='replace')}")
            time.sleep(0.002)

    def command(self, *words: str) -> object:
        """One command on a connection of its own."""
        import redis

        with redis.Redis(unix_socket_path=str(self.socket), socket_timeout=60) as connection:
            answer: object = connection.execute_command(*words)
            return answer

    def empty(self) -> None:
        """Forget everything. Connections are cut first: what a killed program had still sent must not come after."""
        self.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        self.command("FLUSHALL")

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> None:
        """End the process in good order."""
        if self._process is not None:
            self._process.terminate()
            self._reap()

    def restart(self) -> None:
        """Crash and come back: with the data when `persistent`, empty otherwise."""
        self.kill()
        self.start()

    def discard(self) -> None:
        """Stop, and remove the folder."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._process = None
