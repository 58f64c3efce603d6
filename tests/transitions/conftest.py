"""Scripts are driven one step at a time, and after every test all invariants are checked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gristmill.protocol.keys import Keys
from support.database import Database
from support.driver import Driver, PlayedClient, PlayedWorker
from support.invariants import check_invariants


@pytest.fixture
def driver(database: Database, keys: Keys, request: pytest.FixtureRequest) -> Iterator[Driver]:
    """A scheduler that does one thing at a time. Afterwards everything that waits is applied and checked."""
    driver = Driver(database, keys)
    yield driver
    driver.settle()
    driver.close()
    check_invariants(database, keys, quiescent=request.node.get_closest_marker("requests_stay") is None)


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    """It is registered."""
    return driver.client()


@pytest.fixture
def worker(driver: Driver) -> PlayedWorker:
    """It is registered and has one processor."""
    return driver.worker(1)
