"""The commands of the product as processes, whose logs can be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from gristmill import Client
from gristmill.protocol.keys import Keys
from support import tasks
from support.waiting import wait_until


class Program:
    """A command of the product as a process of its own; what it writes is in `log`."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self.process = process
        self.path = path
        self.pid = process.pid

    @property
    def log(self) -> str:
        return self.path.read_text(errors="backslashreplace")

    def running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def exit_code(self, timeout: float = 60.0) -> int:
        wait_until(lambda: not self.running(), f"it ends; it wrote\n{self.log}", timeout)
        code: int = self.process.returncode
        return code

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)


class Programs:
    """Starts `gristmill scheduler`, `gristmill worker` and the like, told where Redis is by the environment alone."""

    def __init__(self, address: str, keys: Keys, folder: Path) -> None:
        self.address = address
        self.keys = keys
        self.folder = folder
        self.started: list[Program] = []
        self.environment = {"PYTHONPATH": str(Path(tasks.__file__).parents[1]), "GRISTMILL_LOG_LEVEL": "info"}
        self.prefix: tuple[str, ...] = ()
        """What stands before the command, such as `unshare`."""

    def start(self, name: str, *options: str, **environment: str) -> Program:
        path = self.folder / f"{name}-{len(self.started)}.log"
        told = {"GRISTMILL_REDIS": self.address, "GRISTMILL_NAMESPACE": self.keys.namespace}
        with path.open("wb") as log:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "gristmill", name, *options],
                env={**os.environ, **told, **self.environment, **environment},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.started.append(Program(process, path))
        return self.started[-1]

    def scheduler(self, *options: str, **environment: str) -> Program:
        quick = ("--takeover-seconds", "0.5", "--sweep-seconds", "0.5")
        return self.start("scheduler", *quick, *options, **environment)

    def worker(self, *options: str, **environment: str) -> Program:
        return self.start("worker", "--concurrency", "1", "--worker-lease-seconds", "3", *options, **environment)

    def client(self, **options: float) -> Client:
        return Client(self.address, namespace=self.keys.namespace, **{"connect_timeout": 60.0, **options})  # type: ignore[arg-type]

    def stop(self) -> None:
        for program in self.started:
            if program.running():
                program.signal(signal.SIGCONT)
                # What stands before a command may pass no other signal on.
                program.signal(signal.SIGKILL if self.prefix else signal.SIGTERM)
        for program in self.started:
            program.process.wait(timeout=60)
