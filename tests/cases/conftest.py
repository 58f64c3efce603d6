"""What the hard cases share: one cluster for trials that break nothing of it, and programs whose logs can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill import Client, LocalCluster
from gristmill.protocol.keys import Keys
from gristmill.protocol.states import ACTIVE
from gristmill.snapshot import Snapshot
from support.database import Database
from support.invariants import wait_for_invariants
from support.leaks import Leaks
from support.leases import LONG_LEASE
from support.programs import Programs
from support.server import RedisServer
from support.waiting import wait_until

QUICK = {"takeover_seconds": 0.5, "sweep_seconds": 0.5}
"""Options of schedulers: recovery is measured in tenths of a second."""
REPLY_SECONDS = 60.0
"""How long Redis may take to answer a snapshot, on a machine that stalls."""


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
            worker_options={**LONG_LEASE, "cancel_grace_seconds": 0.5},
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
    wait_until(lambda: not unfinished(database, shared_cluster.keys), "no task of the test is left")
    wait_for_invariants(database, shared_cluster.keys)
    database.close()


def unfinished(database: Database, keys: Keys) -> int:
    """How many tasks have no outcome yet: what a client that has gone had dropped may still be executing."""
    counts = database.hash(keys.counts())
    return sum(int(counts.get(f"state:{state.value}", 0)) for state in ACTIVE)


@pytest.fixture
def shared_database(shared_cluster: LocalCluster) -> Iterator[Database]:
    """The Redis of the shared cluster, read by hand."""
    database = Database(shared_cluster.address)
    yield database
    database.close()


@pytest.fixture
def shared_snapshot(shared_cluster: LocalCluster) -> Iterator[Snapshot]:
    """What people are shown of the shared cluster."""
    with Snapshot(shared_cluster.address, shared_cluster.namespace, reply_timeout=REPLY_SECONDS) as snapshot:
        yield snapshot


@pytest.fixture
def snapshot(server: RedisServer, namespace: str) -> Iterator[Snapshot]:
    """What people are shown of the test's own namespace in the shared Redis."""
    with Snapshot(server.address, namespace, reply_timeout=REPLY_SECONDS) as snapshot:
        yield snapshot


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
