"""`LocalCluster`: Redis, schedulers, workers and the page as processes of this machine, which end with this one.

    with LocalCluster(workers=4) as cluster, Client(cluster) as client:
        print(client.submit(pow, 2, 10).result())

The programs are started with `subprocess`, so it works in a script without a main guard, with `python -c`, and in a
notebook. They share a pipe with their owner (`gristmill.owner`) and end when it ends, in whatever way.
"""

from __future__ import annotations

import atexit
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gristmill.cores import cores
from gristmill.errors import ConnectionLostError, GristmillError, SettingError
from gristmill.interpreter import PATHS_VARIABLE, own_paths, python
from gristmill.owner import OWNER_VARIABLE, Lifeline
from gristmill.ports import free_port
from gristmill.protocol.keys import Keys
from gristmill.store.connection import PASSING, Connection, ReplyError, check_address, hide_password, pack
from gristmill.store.embedded import EmbeddedRedis

START_SECONDS = 60.0
"""How long everything may take to be ready: far more than it takes, for machines that are busy or swap."""
STOP_SECONDS = 5.0
"""How long a program may take to end before it is killed."""
POLL_SECONDS = 0.01

Program = subprocess.Popen[bytes]

_ID = re.compile(r"[^|]+\|[0-9]+\|")
"""Ids have the process id as a part: host|pid|name|random."""


class LocalCluster:
    """A whole installation on this machine, ready when the constructor returns.

    Args:
        workers: How many workers; by default one for each core.
        concurrency: How many tasks each worker executes at the same time.
        schedulers: How many scheduler replicas.
        redis: The address of a Redis to use; without one an embedded server is started.
        web: Whether to start the status page.
        namespace: Which installation in the Redis.
        web_host: The address that the page listens on. It has no login.
        web_port: The page's port; 0 takes a free one.
        redis_port: A loopback port of the embedded Redis besides its unix socket; 0 takes a free one, None opens none.
        directory: Where the embedded Redis keeps its data; without one it is removed at the end.
        log_level: How much the programs log to standard error.
        worker_options: More settings of each worker, such as `{"queue_size": 10, "capabilities": "linux,gpu=1"}`.
        scheduler_options: More settings of each scheduler, such as `{"allocation": "even_load"}`.

    Raises EmbeddedServerError when there is no server to embed, ConnectionLostError when the given one cannot be
    reached, and GristmillError when a program does not become ready. Nothing is left running then.
    """

    def __init__(
        self,
        workers: int | None = None,
        concurrency: int = 1,
        schedulers: int = 1,
        redis: str | None = None,
        web: bool = False,
        namespace: str = "default",
        *,
        web_host: str = "127.0.0.1",
        web_port: int = 0,
        redis_port: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        log_level: str = "warning",
        worker_options: Mapping[str, Any] | None = None,
        scheduler_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.namespace = namespace
        self.keys = Keys(namespace)
        self.redis: EmbeddedRedis | None = None
        """The embedded server; None when an address was given."""
        self.schedulers: list[Program] = []
        self.workers: list[Program] = []
        self.web: Program | None = None
        self.web_url = ""
        """The address of the page; empty without one."""
        self._log_level = log_level
        self._scheduler_options = dict(scheduler_options or {})
        self._worker_options = {"concurrency": concurrency, **(worker_options or {})}
        self._started = {"scheduler": 0, "worker": 0}
        self._lifeline = Lifeline()
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._closed = False
        self._connection: Connection | None = None
        self._page = ("", 0)
        self._shutdown_before: Any = None
        atexit.register(self.close)
        try:
            if redis:
                self.address = check_address(redis)
            else:
                self.redis = EmbeddedRedis(port=redis_port, directory=directory)
                # On a busy machine it may take longer than the programs, and those would warn that they wait for it.
                self.redis.start()
                self.address = self.redis.address
            new = [self._start_scheduler() for _ in range(schedulers)]
            new += [self._start_worker({}) for _ in range(cores() if workers is None else workers)]
            if web:
                self._start_web(web_host, _page_port(web_host, web_port))
            self._connection = Connection(self.address, name="gristmill-cluster")
            self._connection.connect()
            self._shutdown_before = self._last_shutdown()
            self._wait_ready(new)
        except BaseException:
            self._kill()
            raise

    # --- what is there --------------------------------------------------------------------------------------

    @property
    def processes(self) -> list[Program]:
        """Every program, without the embedded Redis."""
        return [*self.workers, *self.schedulers, *([self.web] if self.web else [])]

    def name_of(self, program: Program) -> str:
        """The program as a person would call it."""
        return "the page" if program is self.web else _option(program, "name")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self.workers)} workers, {len(self.schedulers)} schedulers"
        return f"<LocalCluster {hide_password(self.address)}: {state}>"

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- more of it -----------------------------------------------------------------------------------------

    def add_worker(self, **options: Any) -> Program:
        """Start one more worker and wait until it is ready; `options` are fields of WorkerSettings."""
        program = self._start_worker(options)
        self._wait_ready([program])
        return program

    def add_scheduler(self, **options: Any) -> Program:
        """Start one more scheduler replica and wait until it is ready; `options` are fields of SchedulerSettings."""
        program = self._start_scheduler(options)
        self._wait_ready([program])
        return program

    def replace(self, program: Program) -> Program:
        """Start a program that has ended once more, without waiting for it."""
        fresh = self._spawn(program.args)  # type: ignore[arg-type]
        if program is self.web:
            self.web = fresh
        for programs in (self.schedulers, self.workers):
            if program in programs:
                programs[programs.index(program)] = fresh
        return fresh

    def _start_scheduler(self, options: Mapping[str, Any] | None = None) -> Program:
        return self._start("scheduler", "gristmill.scheduler", {**self._scheduler_options, **(options or {})})

    def _start_worker(self, options: Mapping[str, Any]) -> Program:
        return self._start("worker", "gristmill_worker", {**self._worker_options, **options})

    def _start(self, kind: str, module: str, options: Mapping[str, Any]) -> Program:
        self._started[kind] += 1
        named = {"name": f"{kind}-{self._started[kind]}", **options}
        program = self._spawn([*python(), "-m", module, *_arguments(named)])
        (self.schedulers if kind == "scheduler" else self.workers).append(program)
        return program

    def _start_web(self, host: str, port: int) -> None:
        self._page = ("127.0.0.1" if host in ("0.0.0.0", "") else host, port)
        self.web_url = f"http://{self._page[0]}:{port}/"
        options = {"host": host, "port": port}
        self.web = self._spawn([*python(), "-m", "gristmill_web", *_arguments(options)])

    def _spawn(self, command: Sequence[str]) -> Program:
        with self._lock:
            if self._closed:
                raise GristmillError("expected an open LocalCluster; got a closed one; make a new one")
            runs_tasks = "gristmill_worker" in command
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                # What tasks print belongs to the user; what the others say at their start would only disturb.
                stdout=None if runs_tasks else subprocess.DEVNULL,
                env=self._environment(runs_tasks),
                pass_fds=(self._lifeline.descriptor,),
                # A session of its own: a terminal's Ctrl-C reaches the owner, which ends its programs in order.
                start_new_session=True,
            )

    def _environment(self, runs_tasks: bool) -> dict[str, str]:
        """What the programs are told; the address goes this way because anybody can read a command line."""
        # Functions of modules beside the user's script travel by name, so workers must find them too.
        paths = {PATHS_VARIABLE: os.pathsep.join(own_paths())} if runs_tasks else {}
        return {
            **os.environ,
            "GRISTMILL_REDIS": self.address,
            "GRISTMILL_NAMESPACE": self.namespace,
            "GRISTMILL_LOG_LEVEL": self._log_level,
            OWNER_VARIABLE: str(self._lifeline.descriptor),
            **paths,
        }

    def was_shut_down(self) -> bool:
        """Whether a client has ended everything since this was started (`Client.shutdown`)."""
        return bool(self._last_shutdown() != self._shutdown_before)

    def _last_shutdown(self) -> Any:
        return self._ask(("HGET", self.keys.namespace_facts(), "shutdown"))[0]

    def _ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        """What Redis replies, from any thread. A connection that was lost meanwhile is made anew.

        Raises ConnectionLostError, and the first error among the replies.
        """
        assert self._connection is not None
        connection = self._connection
        with self._lock:
            may_be_stale = connection.connected
            try:
                try:
                    replies = self._replies(commands)
                except ConnectionLostError:
                    if not may_be_stale:
                        raise
                    replies = self._replies(commands)
            except BaseException:
                connection.close()  # replies may still come
                raise
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise reply
        return replies

    def _replies(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        connection = self._connection
        assert connection is not None
        if self._closed:
            raise GristmillError("expected an open LocalCluster; got a closed one; make a new one")
        if not connection.connected:
            connection.connect()
        connection.send(*map(pack, commands))
        return [connection.read() for _ in commands]

    # --- getting ready --------------------------------------------------------------------------------------

    def _wait_ready(self, programs: Iterable[Program]) -> None:
        """Wait until each has registered (a worker: with its processors), and the page listens."""
        deadline = time.monotonic() + START_SECONDS
        waiting = list(programs)
        web = self.web
        while True:
            for program in [*waiting, *([web] if web else [])]:
                if program.poll() is not None:
                    raise GristmillError(
                        f"expected {self.name_of(program)} to start; it ended with exit code {program.returncode}; "
                        "what it wrote to standard error says why"
                    )
            try:
                waiting = self._not_ready(waiting)
            except ConnectionLostError:
                pass  # Redis may come back in time
            except ReplyError as error:
                if error.code not in PASSING:
                    raise
            if web and self._page_listens():
                web = None
            if not waiting and not web:
                return
            if time.monotonic() > deadline:
                missing = ", ".join(self.name_of(program) for program in [*waiting, *([web] if web else [])])
                raise GristmillError(
                    f"expected everything to be ready within {START_SECONDS:g} s; got no sign of {missing}; "
                    "try log_level='info'"
                )
            time.sleep(POLL_SECONDS)

    def _not_ready(self, programs: list[Program]) -> list[Program]:
        """Those that Redis does not know yet."""
        if not programs:
            return programs
        ids = self._ask(("ZRANGE", self.keys.schedulers(), 0, -1), ("ZRANGE", self.keys.workers(), 0, -1))
        schedulers, workers = map(self._by_pid, ids)
        waiting = []
        for program in programs:
            if program in self.schedulers:
                ready = program.pid in schedulers
            else:
                worker = workers.get(program.pid)
                ready = worker is not None and self._processors(worker) >= int(_option(program, "concurrency"))
            if not ready:
                waiting.append(program)
        return waiting

    @staticmethod
    def _by_pid(ids: Any) -> dict[int, str]:
        members = [member.decode() for member in ids]
        return {int(member.split("|")[1]): member for member in members if _ID.match(member)}

    def _processors(self, worker: str) -> int:
        return int(self._ask(("HGET", self.keys.worker(worker), "processors"))[0] or 0)

    def _page_listens(self) -> bool:
        try:
            socket.create_connection(self._page, timeout=1).close()
        except OSError:
            return False
        return True

    # --- the end --------------------------------------------------------------------------------------------

    def close(self, drain_seconds: float = 0.0) -> None:
        """Stop workers, then schedulers and the page, then the embedded Redis; harmless when closed already.

        Args:
            drain_seconds: How long executing tasks may take to finish; what does not is given back to the schedulers.
        """
        if os.getpid() != self._owner:
            return  # a forked child runs the exit handlers it inherited: the cluster is not its own
        with self._lock:
            if self._closed:
                return
            self._closed = True
            atexit.unregister(self.close)
            try:
                if drain_seconds:
                    _signal(self.workers, signal.SIGTERM)
                    _ended(self.workers, drain_seconds)
                _signal(self.workers, signal.SIGQUIT)  # leaves at once
                _ended(self.workers, STOP_SECONDS)
                rest = [*self.schedulers, *([self.web] if self.web else [])]
                _signal(rest, signal.SIGTERM)
                _ended(rest, STOP_SECONDS)
            finally:
                self._kill()

    def _kill(self) -> None:
        """End at once whatever still runs, and the embedded Redis."""
        self._closed = True
        atexit.unregister(self.close)
        _signal(self.processes, signal.SIGKILL)
        self._lifeline.cut()
        for program in self.processes:
            program.wait()
        if self._connection:
            self._connection.close()
        if self.redis:
            self.redis.stop()


def _arguments(options: Mapping[str, Any]) -> list[str]:
    """Settings as command-line options."""
    arguments = []
    for name, value in options.items():
        if isinstance(value, bool):
            arguments.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
            continue
        if isinstance(value, Mapping):
            value = ",".join(f"{key}={number}" for key, number in value.items())
        arguments.append(f"--{name.replace('_', '-')}={value}")
    return arguments


def _option(program: Program, name: str) -> str:
    """An option that the program was started with."""
    arguments = [str(argument) for argument in program.args]  # type: ignore[union-attr]
    return next((part.partition("=")[2] for part in arguments if part.startswith(f"--{name}=")), "")


def _signal(programs: Iterable[Program], number: signal.Signals) -> None:
    for program in programs:
        if program.poll() is None:
            program.send_signal(number)


def _ended(programs: Sequence[Program], seconds: float) -> bool:
    """Wait until all have ended; False when one is still there after so many seconds."""
    deadline = time.monotonic() + seconds
    while any(program.poll() is None for program in programs):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS / 2)
    return True


def _page_port(host: str, port: int) -> int:
    """`port`, or any free one for 0; a taken one is refused here, where the message reaches the user."""
    try:
        return free_port(host, port)
    except OSError as error:
        raise SettingError(
            f"expected an address and port that are free for the page; got {host}:{port} ({error.strerror}); "
            "choose another port, or 0 for any"
        ) from None
