"""register_worker: the record and the streams begin here, and only here."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, LANE, Driver, PlayedWorker


def test_a_worker_gets_a_record_a_lease_its_streams_and_an_answer(driver: Driver) -> None:
    worker = PlayedWorker(driver)

    assert worker.register(name="mine", concurrency=4, queue_size=50, lease_ms=5_000) == "applied"
    record = worker.record()
    assert {name: record[name] for name in ("name", "concurrency", "queue_size", "processors", "room")} == {
        "name": "mine", "concurrency": "4", "queue_size": "50", "processors": "0", "room": "0",
    }  # fmt: skip
    assert worker.lease_end() == 5_000
    assert driver.database.groups(driver.keys.worker_tasks(worker.id)) == ["processors"]
    assert worker.control() == [("registered", {})]


def test_it_gets_nothing_before_its_processors_are_ready(driver: Driver) -> None:
    client, worker = driver.client(), PlayedWorker(driver)
    client.submit(1)
    worker.register()

    assert worker.queue() == []
    assert driver.load() == {}


def test_it_serves_every_lane_that_asks_for_no_more_than_it_offers(driver: Driver) -> None:
    client = driver.client()
    client.submit(
        1,
        [2, 0, CALL, {"lane": f"gpu,{LANE}"}],
        [3, 0, CALL, {"lane": f"gpu,linux,{LANE}"}],
        [4, 0, CALL, {"lane": "gp"}],
    )
    worker = driver.worker(0, capabilities={LANE: -1, "gpu": 2})

    assert set(worker.record()["lanes"].split()) == {LANE, f"gpu,{LANE}"}


def test_the_same_registration_again_is_answered_again_and_changes_nothing(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read()
    before, entries = worker.record(), worker.entries()
    assert worker.register() == "applied"

    assert (worker.record(), worker.entries()) == (before, entries)
    assert worker.asked("registered") == [{}, {}]


def test_a_worker_that_is_gone_must_take_another_id(driver: Driver) -> None:
    worker = driver.worker(1)
    worker.lose()

    assert worker.register() == "refused"
    assert "gone" in worker.record()
    assert worker.lease_end() is None
    assert worker.asked("unknown")


BAD: dict[str, dict[str, Any]] = {
    "a worker with a space": {"worker": "a b"},
    "no worker": {"worker": None},
    "no concurrency": {"concurrency": None},
    "no processors at all": {"concurrency": 0},
    "a negative queue": {"queue_size": -5},
    "text for a lease": {"lease_ms": "long"},
    "capabilities that are a list": {"capabilities": [LANE]},
    "a capability with a comma": {"capabilities": {"a,b": 1}},
    "a capability with a space": {"capabilities": {"a b": 1}},
    "capabilities that are text": {"capabilities": "linux"},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
def test_a_registration_that_is_none_is_set_aside(driver: Driver, changes: dict[str, Any]) -> None:
    worker = PlayedWorker(driver)

    assert worker.register(**changes) == "malformed"
    assert worker.record() == {}
    assert driver.database.zset(driver.keys.workers()) == {}
    assert not driver.database.exists(driver.keys.worker_tasks(worker.id))


@pytest.mark.parametrize("number", [b"NaN", b"1e999", b"-1", b"1.5", b"1e300"])
@pytest.mark.parametrize("field", [b"lease_ms", b"concurrency", b"queue_size"])
def test_a_number_that_is_none_is_set_aside(driver: Driver, field: bytes, number: bytes) -> None:
    numbers = {b"lease_ms": b"1000", b"concurrency": b"1", b"queue_size": b"10", field: number}
    rest = b",".join(b'"%s":%s' % pair for pair in numbers.items())
    body = (
        b'{"version":1,"worker":"w","name":"","host":"","pid":1,"python":"","release":"","capabilities":{},%s}' % rest
    )

    assert driver.request(Request.WORKER, body) == "malformed"
    assert driver.database.zset(driver.keys.workers()) == {}


def test_a_capability_with_a_value_that_is_no_number_is_set_aside(driver: Driver) -> None:
    body = b'{"version":1,"worker":"w","concurrency":1,"queue_size":10,"lease_ms":1000,"capabilities":{"gpu":1e999}}'

    assert driver.request(Request.WORKER, body) == "malformed"
    assert driver.database.zset(driver.keys.workers()) == {}
