"""suspend: tasks that wait for tasks are out of their worker's load, and it has no queue meanwhile."""

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


def test_while_a_task_waits_its_worker_has_no_queue(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2)
    worker.read()
    assert numbers(worker.queue()) == [1, 2]

    assert worker.suspend(client.task(1), number=1, ready=1) == "applied"
    assert numbers(worker.queue()) == [1]
    assert numbers(driver.ready()) == [2]


def test_the_processor_that_takes_the_slot_gets_the_next_task(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2, 3)
    worker.read()
    worker.suspend(client.task(1), number=1, ready=1)
    worker.suspend(client.task(1), number=2, ready=2)

    assert numbers(worker.queue()) == [1, 2]
    assert numbers(driver.ready()) == [3]


def test_of_those_that_wait_for_a_worker_the_one_of_higher_priority_comes_first(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2, 3)
    worker.read()
    worker.suspend(client.task(1), number=1, ready=1)
    client.submit(4, priority=1)
    worker.suspend(client.task(1), number=2, ready=2)

    assert numbers(worker.queue()) == [1, 4]


def test_a_waiting_task_is_no_load(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    other = driver.worker(1)
    client.submit(1)
    waits, idle = (worker, other) if worker.queue() else (other, worker)
    waits.read()
    waits.suspend(client.task(1), number=1, ready=2)
    client.submit(2, 3)

    assert [numbers(waits.queue()), numbers(idle.queue())] in ([[1, 2], [3]], [[1, 3], [2]])


def test_when_it_goes_on_the_queue_comes_back(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    worker.suspend(client.task(1), number=1, ready=2)
    assert worker.record()["queue"] == "0"
    worker.suspend(number=2, ready=1)

    assert (worker.record()["queue"], worker.record()["room"]) == ("1", "2")
    worker.succeed(client.task(1), ms=1)
    assert worker.record()["queue"] == "2"


def test_no_outcome_gives_a_queue_while_tasks_wait(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    worker.suspend(client.task(1), number=1, ready=2)
    client.submit(2)
    worker.read()
    worker.succeed(client.task(2), ms=1)

    assert (worker.record()["queue"], worker.record()["room"]) == ("0", "2")


def test_an_older_message_changes_nothing(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    worker.suspend(client.task(1), number=5, ready=2)
    worker.suspend(number=4, ready=1)
    worker.beat(1, suspended=0, suspensions=4)

    assert (worker.record()["suspended"], worker.record()["processors"]) == ("1", "2")


def test_a_beat_says_it_as_well(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2)
    worker.read()
    worker.beat(1, suspended=1, suspensions=1)

    assert numbers(worker.queue()) == [1]


def test_a_task_that_waited_when_its_worker_was_lost_is_not_charged(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    worker.suspend(client.task(1), number=1, ready=1)
    worker.lose()

    assert driver.state(client.task(1)) == "inactive"
    assert "deaths" not in driver.record(client.task(1))


def test_a_task_that_had_waited_before_is_charged(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    worker.suspend(client.task(1), number=1, ready=1)
    worker.suspend(number=2, ready=1)
    worker.lose()

    assert driver.record(client.task(1))["deaths"] == "1"


def test_a_worker_whose_queue_is_being_emptied_after_its_end_is_passed_over(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    driver.database.run("HSET", driver.keys.worker(worker.id), "gone", 1)
    before = worker.record()

    assert worker.suspend(client.task(1), number=1, ready=1) == "unknown"
    assert worker.record() == before
    worker.lose()


def test_a_worker_that_nobody_knows_is_passed_over(driver: Driver) -> None:
    body = {"worker": "h|1|w|x", "processors_ready": 1, "suspended": 1, "suspensions": 1, "waiting": []}

    assert driver.request(Request.SUSPENDED, body) == "unknown"


@pytest.mark.parametrize(
    "wrong", [{"processors_ready": -1}, {"suspended": 100_001}, {"suspensions": 0}, {"waiting": "x"}, {"waiting": [5]}]
)
def test_what_cannot_be_understood_is_set_aside(driver: Driver, worker: PlayedWorker, wrong: dict[str, object]) -> None:
    body = {"worker": worker.id, "processors_ready": 1, "suspended": 0, "suspensions": 1, "waiting": [], **wrong}

    assert driver.request(Request.SUSPENDED, body) == "malformed"
    assert len(driver.quarantine()) == 1


def test_which_tasks_wait_must_be_said(driver: Driver, worker: PlayedWorker) -> None:
    body = {"worker": worker.id, "processors_ready": 1, "suspended": 0, "suspensions": 1}

    assert driver.request(Request.SUSPENDED, body) == "malformed"
