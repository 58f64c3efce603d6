"""What a system under measurement is: how it is installed, started, asked and stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORKERS = 2
HERE = Path(__file__).parent
PORT_VARIABLE = "PEERS_REDIS_PORT"
START_SECONDS = 60.0
STOP_SECONDS = 5.0


class System:
    """One system. A module `with_<name>.py` has one as `SYSTEM`."""

    requires: Sequence[str] = ()
    """What pip installs for it, each with its version."""
    settings = ""
    """What was set beyond its defaults, and why: for readers of the table."""
    bulk_call = ""
    """Its call for many tasks at once, as people write it."""
    has_graphs = False
    """Whether values go from task to task without passing through the program."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start everything; two workers."""
        raise NotImplementedError

    def submit(self, name: str, argument: Any) -> Any:
        """Submit one task; answers its handle."""
        raise NotImplementedError

    def results(self, handles: list[Any]) -> list[Any]:
        """The values, in the order of the handles."""
        raise NotImplementedError

    def bulk(self, name: str, arguments: list[Any]) -> list[Any]:
        """Many tasks by the system's own call for that."""
        return self.results([self.submit(name, argument) for argument in arguments])

    def loop(self, name: str, arguments: list[Any]) -> list[Any]:
        """Many tasks, submitted one by one, then gathered."""
        return self.results([self.submit(name, argument) for argument in arguments])

    def graph(self, graph: dict[str, tuple[Any, ...]], keys: list[str]) -> list[Any]:
        """The values of some nodes; a node is (function, argument...), in which a text names another node."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the client."""

    # --- for those that are several programs --------------------------------------------------------------

    def run(self, *command: str, **environment: str) -> None:
        """Start a program; it ends with this one. Its output goes to the log."""
        log = open(os.environ.get("PEERS_LOG", os.devnull), "ab")  # noqa: SIM115 - the program keeps it
        self._processes.append(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=HERE, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(HERE), **environment},
            )
        )  # fmt: skip
        log.close()

    def run_redis(self, *options: str) -> int:
        """Start a Redis of the benchmark's own with an append-only file, as ours has; answers its port."""
        port = free_port()
        directory = os.environ["PEERS_DIRECTORY"]
        keep = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--dir", directory)
        self.run(os.environ["PEERS_REDIS"], "--bind", "127.0.0.1", "--port", str(port), *keep, *options)
        wait_for_port(port)
        os.environ[PORT_VARIABLE] = str(port)
        return port

    def stop(self) -> None:
        """End everything that `run` started, the last first."""
        self.close()
        for process in reversed(self._processes):
            for kind in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, kind)
                    process.wait(STOP_SECONDS)
                    break
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        self._processes.clear()


def program(name: str) -> str:
    """A program of the system's own installation."""
    return str(Path(sys.executable).with_name(name))


def free_port() -> int:
    """A port of the loopback interface that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for_port(port: int) -> None:
    """Wait until somebody listens there."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
