"""What the hard cases share: one cluster for trials that break nothing of it, and programs whose logs can be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gristmill import Client, LocalCluster
from gristmill.protocol.keys import Keys
from gristmill.snapshot import Snapshot
from support import tasks
from support.database import Database
from support.invariants import wait_for_invariants
from support.leaks import Leaks
from support.server import RedisServer
from support.waiting import wait_until

QUICK = {"takeover_seconds": 0.5, "sweep_seconds": 0.5}
"""Options of schedulers: recovery is measured in tenths of a second."""


@pytest.fixture(scope="session")
def shared_cluster(shared_server: RedisServer) -> Iterator[LocalCluster]:
    """Two schedulers and two workers on a Redis of their own, for trials that leave all of it standing."""
    leaks = Leaks()
    server = RedisServer()
    server.start()
    try:
        with LocalCluster(
            workers=2,
            schedulers=2,
            redis=server.address,
            worker_options={"worker_lease_seconds": 3.0, "cancel_grace_seconds": 0.5},
            scheduler_options=QUICK,
        ) as cluster:
            yield cluster
    finally:
        server.discard()
    leaks.check()


@pytest.fixture
def client(shared_cluster: LocalCluster) -> Iterator[Client]:
    """A client of the shared cluster. Afterwards the cluster is whole and everything is at rest and in order."""
    with Client(shared_cluster) as client:
        yield client
    assert all(program.poll() is None for program in shared_cluster.processes)
    database = Database(shared_cluster.address)
    wait_for_invariants(database, shared_cluster.keys)
    database.close()


@pytest.fixture
def shared_database(shared_cluster: LocalCluster) -> Iterator[Database]:
    """The Redis of the shared cluster, read by hand."""
    database = Database(shared_cluster.address)
    yield database
    database.close()


@pytest.fixture
def shared_snapshot(shared_cluster: LocalCluster) -> Iterator[Snapshot]:
    """What people are shown of the shared cluster."""
    with Snapshot(shared_cluster.address, shared_cluster.namespace) as snapshot:
        yield snapshot


@pytest.fixture
def snapshot(server: RedisServer, namespace: str) -> Iterator[Snapshot]:
    """What people are shown of the test's own namespace in the shared Redis."""
    with Snapshot(server.address, namespace) as snapshot:
        yield snapshot


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

    def exit_code(self, timeout: float = 20.0) -> int:
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
        return Client(self.address, namespace=self.keys.namespace, **{"connect_timeout": 30.0, **options})  # type: ignore[arg-type]

    def stop(self) -> None:
        for program in self.started:
            if program.running():
                program.signal(signal.SIGCONT)
                program.signal(signal.SIGTERM)
        for program in self.started:
            program.process.wait(timeout=30)


@pytest.fixture
def programs(
    no_leaks: Leaks, server: RedisServer, keys: Keys, tmp_path: Path, database: Database
) -> Iterator[Programs]:
    """Programs on the shared Redis. Afterwards everything is at rest and in order, and all have ended."""
    programs = Programs(server.address, keys, tmp_path)
    yield programs
    try:
        if any(program.running() for program in programs.started):
            wait_for_invariants(database, keys)
    finally:
        programs.stop()
