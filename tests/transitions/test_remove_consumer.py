"""remove_consumer: a dead replica leaves the group only when nothing of it is pending."""

from __future__ import annotations

import pytest

from gristmill.protocol.kinds import Request
from support.driver import Driver


def remove(driver: Driver, consumer: str, idle_ms: int = 0) -> str:
    command = driver.scripts.request_duty("remove_consumer", driver.keys.submit(), consumer, idle_ms)
    return driver.scripts.apply(driver.connection, command)


def consumers(driver: Driver) -> list[bytes]:
    return [facts[1] for facts in driver.database.run("XINFO", "CONSUMERS", driver.keys.submit(), "schedulers")]


def test_a_consumer_without_pending_entries_is_removed(driver: Driver) -> None:
    driver.client()

    assert remove(driver, driver.replica) == "removed"
    assert consumers(driver) == []


@pytest.mark.requests_stay
def test_a_consumer_with_pending_entries_is_kept(driver: Driver) -> None:
    driver.send(Request.CLIENT, {"client": "aaaa", "registration": 1, "lease_ms": 1000})
    driver.read("submit")

    assert remove(driver, driver.replica) == "kept"
    assert consumers(driver) == [driver.replica.encode()]


def test_a_consumer_that_was_there_a_moment_ago_is_kept(driver: Driver) -> None:
    driver.client()

    assert remove(driver, driver.replica, 60_000) == "kept"


def test_a_consumer_that_nobody_knows_is_kept(driver: Driver) -> None:
    assert remove(driver, "nobody") == "kept"
