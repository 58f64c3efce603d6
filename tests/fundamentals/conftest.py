"""One cluster for all fundamentals: two schedulers, two workers, as `LocalCluster` starts them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gristmill import Client, LocalCluster
from support.database import Database
from support.invariants import wait_for_invariants
from support.server import require_server_binary


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Redis, two schedulers and two workers."""
    require_server_binary()
    with LocalCluster(workers=2, schedulers=2) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client for one test. Afterwards nothing of it is left in Redis."""
    with Client(cluster) as client:
        yield client
    database = Database(cluster.address)
    wait_for_invariants(database, cluster.keys)
    database.close()
