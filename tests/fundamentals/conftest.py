"""One cluster for all fundamentals: two schedulers, two workers, as `LocalCluster` starts them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gristmill import Client, LocalCluster
from support.database import Database
from support.invariants import wait_for_invariants
from support.leaks import Leaks
from support.leases import LONG_LEASE
from support.server import RedisServer


@pytest.fixture(scope="session")
def cluster(shared_server: RedisServer) -> Iterator[LocalCluster]:
    """An embedded Redis, two schedulers and two workers. Nothing of them is left at the end.

    The shared server is not used; it is asked for so that it does not look like a leak of the cluster.
    """
    leaks = Leaks()
    with LocalCluster(workers=2, schedulers=2, worker_options=LONG_LEASE) as cluster:
        yield cluster
    leaks.check()


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client for one test. Afterwards nothing of it is left in Redis."""
    with Client(cluster) as client:
        yield client
    database = Database(cluster.address)
    wait_for_invariants(database, cluster.keys)
    database.close()
