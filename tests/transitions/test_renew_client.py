"""renew_client: a client is alive."""

from __future__ import annotations

from typing import Any

import pytest

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


def test_what_a_beat_says_of_the_program_is_kept_for_people(driver: Driver) -> None:
    client = driver.client()
    assert "rss_bytes" not in client.record()

    assert client.beat(cpu_percent=12.34, rss_bytes=5_000_000_000, latency_ms=0.26) == "applied"

    record = client.record()
    assert (record["cpu_percent"], record["rss_bytes"], record["latency_ms"]) == ("12.3", "5000000000", "0.3")


@pytest.mark.parametrize("figure", ["cpu_percent", "rss_bytes", "latency_ms"])
@pytest.mark.parametrize("value", ["1", -1, 1e300, [1], True])
def test_figures_that_are_none_are_refused_and_the_lease_stays(driver: Driver, figure: str, value: Any) -> None:
    client = driver.client()
    before = driver.database.zset(driver.keys.clients())

    assert client.beat(**{figure: value}) == "malformed"
    assert driver.database.zset(driver.keys.clients()) == before
