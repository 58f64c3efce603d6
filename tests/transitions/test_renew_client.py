"""renew_client: a client is alive."""

from __future__ import annotations

from support.driver import Driver, PlayedClient


def test_the_lease_begins_anew_on_the_observed_clock(driver: Driver) -> None:
    client = driver.client(lease_ms=5_000)
    driver.database.run("HSET", driver.keys.clock(), "observed", 3_000)

    assert client.beat() == "applied"
    assert driver.database.zset(driver.keys.clients()) == {client.id: 8_000}


def test_a_client_that_nobody_knows_gets_no_record(driver: Driver) -> None:
    assert PlayedClient(driver).beat() == "unknown"
    assert driver.database.keys(driver.keys.client("")) == []


def test_a_client_that_has_ended_stays_so(driver: Driver) -> None:
    client = driver.client()
    client.disconnect()
    driver.settle()

    assert client.beat() == "unknown"
    assert driver.database.zset(driver.keys.clients()) == {}
