"""return: a worker gives back what it has not started, or has stopped in order to leave."""

from __future__ import annotations

import pytest

from gristmill.protocol.kinds import Request
from support.driver import Driver, PlayedClient, PlayedWorker, numbers


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


@pytest.fixture
def worker(driver: Driver) -> PlayedWorker:
    return driver.worker(1)


def test_what_is_given_back_goes_elsewhere_as_the_next_attempt(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2)
    worker.read(2)
    other = driver.worker(1)
    assert worker.give_back(client.task(2)) == "applied"

    assert other.queue() == [client.task(2)]
    assert driver.record(client.task(2))["attempt"] == "2"
    assert numbers(worker.queue()) == [1]


def test_nothing_is_charged_for_it(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    worker.give_back(client.task(1))

    assert "deaths" not in driver.record(client.task(1))


def test_what_is_given_back_while_it_is_cancelled_is_cancelled(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    client.cancel(1)
    worker.give_back(client.task(1))

    assert client.outcome(1).state == "canceled"
    assert worker.entries() == []


def test_it_keeps_its_place_in_its_lane(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2, 3, 4)
    worker.read(2)
    worker.drain()
    worker.give_back(client.task(2), client.task(1))

    assert numbers(driver.ready()) == [1, 2, 3, 4]


def test_giving_back_another_attempt_changes_nothing(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    before = driver.snapshot()
    worker.give_back(client.task(1), attempt=2)

    assert driver.snapshot() == before
    assert driver.counts()["stale:returned"] == 1


def test_another_worker_cannot_give_it_back(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    other = driver.worker(1)
    before = driver.snapshot()
    other.give_back(client.task(1))

    assert driver.snapshot() == before


def test_giving_back_twice_counts_once(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    pair = [client.task(1), 1]
    driver.request(Request.RETURNED, {"worker": worker.id, "tasks": [pair, pair]})
    driver.request(Request.RETURNED, {"worker": worker.id, "tasks": [pair]})

    assert driver.record(client.task(1))["attempt"] == "2"
    assert driver.counts()["state:running"] == 1


@pytest.mark.parametrize("bad", [5, None, [], ["a b", 1], ["a", "1"], [None, None], {"task": "a"}])
def test_a_bad_pair_is_set_aside_and_the_others_count(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, bad: object
) -> None:
    client.submit(1)
    worker.read()
    driver.request(Request.RETURNED, {"worker": worker.id, "tasks": [bad, [client.task(1), 1]]})

    assert driver.record(client.task(1))["attempt"] == "2"
    assert len(driver.quarantine()) == 1
