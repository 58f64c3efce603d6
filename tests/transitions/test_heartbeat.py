"""heartbeat: the lease is renewed and the room follows the processors."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import Driver, PlayedWorker, numbers


def test_the_lease_begins_anew_on_the_observed_clock(driver: Driver) -> None:
    worker = driver.worker(1, lease_ms=5_000)
    driver.database.run("HSET", driver.keys.clock(), "observed", 3_000)
    worker.beat(1)

    assert worker.lease_end() == 8_000


def test_what_was_measured_is_shown(driver: Driver) -> None:
    worker = driver.worker(1)
    worker.beat(1, cpu_percent=12.5)

    assert '"cpu_percent": 12.5' in worker.record()["heartbeat"]


def test_a_processor_that_became_ready_gets_what_waits(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(0)
    client.submit(1, 2, 3, 4, 5)
    worker.beat(2)

    assert numbers(worker.queue()) == [1, 2, 3]
    assert worker.record()["room"] == "3"
    assert driver.load() == {worker.id: 1_000_001.5}


def test_with_fewer_processors_the_unread_surplus_goes_back_to_its_place(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(3)
    client.submit(1, 2, 3, 4, 5)
    worker.read(1)
    worker.beat(1)

    assert numbers(worker.queue()) == [1, 2]
    assert numbers(driver.ready()) == [3, 4, 5]
    assert driver.record(client.task(3))["state"] == "inactive"


def test_without_processors_all_that_is_unread_goes_elsewhere(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(3)
    client.submit(1, 2, 3)
    worker.read(1)
    other = driver.worker(1)
    worker.beat(0)

    assert numbers(worker.queue()) == [1]
    assert numbers(other.queue()) == [2, 3]
    assert set(driver.load()) == {other.id}


def test_what_executes_for_long_makes_the_room_shrink(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(*range(1, 40))
    for _ in range(3):
        worker.read(100)
        worker.succeed(*worker.queue(), ms=0.1)
    assert len(worker.queue()) == 9
    worker.read(1)
    worker.beat(1, oldest_running_ms=10_000)

    assert worker.record()["room"] == "2"
    assert len(worker.queue()) == 2


def test_a_beat_leaves_the_queue_as_outcomes_have_made_it(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(*range(1, 40))
    for _ in range(3):
        worker.read(100)
        worker.succeed(*worker.queue(), ms=0.1)
    worker.beat(1)

    assert (worker.record()["queue"], worker.record()["room"]) == ("8", "9")


def test_what_executes_for_long_counts_only_while_there_is_a_queue_to_shorten(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read(1)
    before = worker.record()
    assert before["room"] == "2"
    worker.beat(1, oldest_running_ms=10_000)

    assert worker.record()["service_us"] == before["service_us"]


def test_a_worker_without_processors_has_no_room_whatever_is_reported_of_it(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read(1)
    worker.beat(0, oldest_running_ms=10_000)
    worker.succeed(*worker.queue())

    assert worker.record()["room"] == "0"


def test_a_worker_that_nobody_knows_is_told_so(driver: Driver) -> None:
    worker = PlayedWorker(driver)

    assert worker.beat(1) == "unknown"
    assert worker.control() == [("unknown", {})]
    assert 0 < driver.database.lifetime_ms(driver.keys.worker_control(worker.id)) <= 60_000
    assert worker.record() == {}


def test_a_worker_that_is_gone_is_told_so_and_stays_gone(driver: Driver) -> None:
    worker = driver.worker(1)
    worker.lose()

    assert worker.beat(1) == "unknown"
    assert worker.lease_end() is None
    assert driver.load() == {}


def test_a_worker_whose_queue_is_still_being_emptied_is_gone_already(driver: Driver) -> None:
    worker = driver.worker(1)
    driver.database.run("HSET", driver.keys.worker(worker.id), "gone", 1)

    assert worker.beat(1) == "unknown"
    worker.lose()


@pytest.mark.parametrize("field", ["lease_ms", "processors"])
def test_a_worker_whose_record_was_lost_in_part_is_told_so(driver: Driver, field: str) -> None:
    worker = driver.worker(1)
    before = worker.record()[field]
    driver.database.run("HDEL", driver.keys.worker(worker.id), field)

    assert worker.beat(1) == "unknown"
    driver.database.run("HSET", driver.keys.worker(worker.id), field, before)


def test_a_worker_whose_stream_was_lost_is_told_so(driver: Driver) -> None:
    worker = driver.worker(1)
    driver.database.run("DEL", driver.keys.worker_tasks(worker.id))

    assert worker.beat(1) == "unknown"
    worker.lose()


def test_a_draining_worker_gets_nothing_more(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    worker.drain()
    client.submit(1)
    worker.beat(2)

    assert worker.queue() == []
    assert driver.load() == {}


BAD: dict[str, Any] = {"text": "two", "null": None, "negative": -1, "half": 0.5, "huge": 1e300, "a list": []}


@pytest.mark.parametrize("processors", BAD.values(), ids=BAD)
def test_a_number_of_processors_that_is_none_is_set_aside(driver: Driver, processors: Any) -> None:
    worker = driver.worker(1)
    before = worker.record()

    assert worker.beat(processors) == "malformed"
    assert worker.record() == before


@pytest.mark.parametrize("field", ["suspended", "suspensions"])
def test_a_beat_that_says_nothing_clear_of_tasks_that_wait_is_set_aside(driver: Driver, field: str) -> None:
    assert driver.worker(1).beat(1, **{field: "many"}) == "malformed"


@pytest.mark.parametrize("field", [b"processors_ready", b"oldest_running_ms"])
@pytest.mark.parametrize("number", [b"NaN", b"1e999", b"-1e999"])
def test_a_number_that_is_none_harms_nobody(driver: Driver, field: bytes, number: bytes) -> None:
    client, worker = driver.client(), driver.worker(1)
    numbers_of = {b"processors_ready": b"1", b"oldest_running_ms": b"0", field: number}
    rest = b",".join(b'"%s":%s' % pair for pair in numbers_of.items())
    driver.request(Request.BEAT, b'{"version":1,"worker":"%s",%s}' % (worker.id.encode(), rest))

    client.submit(1)
    assert worker.queue() == [client.task(1)]
