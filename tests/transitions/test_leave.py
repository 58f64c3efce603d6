"""leave: the worker goes of its own accord; nothing is charged."""

from __future__ import annotations

from gristmill.protocol.kinds import Request
from support.driver import Driver, PlayedWorker, numbers


def test_everything_moves_on_uncharged(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(2)
    client.submit(1, 2, 3)
    worker.read(1, processor=1)
    worker.read(1, processor=2)
    other = driver.worker(5)

    assert worker.leave() == "applied"
    driver.settle()
    assert sorted(numbers(other.queue())) == [1, 2, 3]
    assert all("deaths" not in driver.record(client.task(number)) for number in (1, 2, 3))


def test_the_record_is_kept_for_a_while_and_says_so(driver: Driver) -> None:
    worker = driver.worker(1)
    worker.leave()
    driver.settle()

    assert worker.record()["gone"] == "left"
    assert 0 < driver.database.lifetime_ms(driver.keys.worker(worker.id)) <= 600_000
    assert not driver.database.exists(driver.keys.worker_tasks(worker.id))
    assert not driver.database.exists(driver.keys.worker_control(worker.id))
    assert worker.lease_end() is None


def test_it_gets_nothing_more_at_once(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    worker.leave()
    client.submit(1)

    assert worker.queue() == []
    assert driver.load() == {}


def test_what_it_had_reported_counts(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    driver.send(Request.OUTCOMES, {"worker": worker.id, "outcomes": [worker.row(client.task(1))]})
    worker.leave()
    (entry,) = driver.read("continued")
    assert driver.apply_entry("continued", entry) == "early"
    driver.settle()

    assert client.outcome(1).state == "success"


def test_what_was_being_cancelled_is_cancelled(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    client.cancel(1)
    worker.leave()
    driver.settle()

    assert client.outcome(1).state == "canceled"


def test_leaving_twice_changes_nothing_more(driver: Driver) -> None:
    worker = driver.worker(1)
    worker.leave()
    driver.settle()
    before = driver.snapshot()
    worker.leave()
    driver.settle()

    assert driver.snapshot() == before


def test_a_worker_that_nobody_knows_leaves_no_record(driver: Driver) -> None:
    worker = PlayedWorker(driver)
    worker.leave()
    driver.settle()

    assert worker.record() == {}
