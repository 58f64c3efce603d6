"""One cluster for all of them: the interfaces of other libraries need nothing special."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gristmill import Client, LocalCluster
from support.leaks import Leaks
from support.server import RedisServer


@pytest.fixture(scope="session")
def cluster(shared_server: RedisServer) -> Iterator[LocalCluster]:
    """An embedded Redis, a scheduler and two workers. Nothing of them is left at the end."""
    leaks = Leaks()
    with LocalCluster(workers=2) as cluster:
        yield cluster
    leaks.check()


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client
