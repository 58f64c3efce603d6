"""confirm: a worker's answers to what it was asked."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, VALUE, Driver, PlayedClient, PlayedWorker, numbers


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


@pytest.fixture
def worker(driver: Driver) -> PlayedWorker:
    return driver.worker(1)


@pytest.fixture
def canceling(client: PlayedClient, worker: PlayedWorker) -> str:
    """A task that a processor holds and that its client has cancelled."""
    client.submit(1)
    worker.read()
    client.cancel(1)
    return client.task(1)


@pytest.fixture
def asked_back(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> str:
    """A task that a processor has prefetched and that balance wants elsewhere."""
    client.submit(1, 2)
    worker.read(2)
    driver.worker(1)
    driver.duty("balance", "python3.11")
    assert driver.state(client.task(2)) == "balance_canceling"
    return client.task(2)


def test_canceled_ends_the_task(driver: Driver, client: PlayedClient, worker: PlayedWorker, canceling: str) -> None:
    assert worker.confirm(canceling, "canceled") == "applied"

    assert client.outcome(1)[:4] == (1, 1, "canceled", None)
    assert worker.entries() == []
    assert driver.record(canceling) == {}


def test_not_found_ends_the_task_under_a_name_of_its_own(
    client: PlayedClient, worker: PlayedWorker, canceling: str
) -> None:
    worker.confirm(canceling, "not_found")

    assert client.outcome(1).state == "canceled_not_found"
    assert worker.entries() == []


def test_failed_lets_the_task_run_on(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, canceling: str
) -> None:
    worker.confirm(canceling, "failed")
    assert driver.state(canceling) == "running"
    assert worker.queue() == [canceling]

    worker.succeed(canceling)
    assert client.outcome(1).state == "success"


def test_a_freed_place_is_filled(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2, 3)
    worker.read()
    client.cancel(1)
    worker.confirm(client.task(1), "canceled")

    assert numbers(worker.queue()) == [2, 3]


@pytest.mark.parametrize("answer", ["canceled", "not_found"])
def test_what_was_given_back_goes_to_an_idle_worker(
    driver: Driver, worker: PlayedWorker, asked_back: str, answer: str
) -> None:
    worker.confirm(asked_back, answer)
    record = driver.record(asked_back)

    assert (record["state"], record["attempt"]) == ("running", "2")
    assert record["worker"] != worker.id
    assert len(worker.queue()) == 1


def test_what_is_not_given_back_stays(driver: Driver, worker: PlayedWorker, asked_back: str) -> None:
    worker.confirm(asked_back, "failed")

    assert driver.state(asked_back) == "running"
    assert asked_back in worker.queue()


def test_a_cancel_after_a_balance_request_is_a_request_of_its_own(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, asked_back: str
) -> None:
    client.cancel(2)
    assert driver.record(asked_back)["request"] == "2"

    worker.confirm(asked_back, "failed", request=1)
    assert driver.state(asked_back) == "canceling"

    worker.confirm(asked_back, "canceled", request=2)
    assert client.outcome(2).state == "canceled"


VOID = {
    "an earlier request": {"request": 0},
    "a later request": {"request": 7},
    "another attempt": {"attempt": 2},
    "an attempt that is no whole number": {"attempt": 1.5},
}


@pytest.mark.parametrize("changes", VOID.values(), ids=VOID)
def test_an_answer_to_something_else_is_void(
    driver: Driver, worker: PlayedWorker, canceling: str, changes: dict[str, Any]
) -> None:
    before = driver.snapshot()
    worker.confirm(canceling, "canceled", **changes)

    assert driver.snapshot() == before
    assert driver.counts()["stale:confirms"] == 1


def test_an_answer_of_another_worker_is_void(driver: Driver, canceling: str) -> None:
    other = driver.worker(1)
    before = driver.snapshot()
    other.confirm(canceling, "canceled")

    assert driver.snapshot() == before


def test_an_answer_that_is_given_twice_counts_once(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, canceling: str
) -> None:
    row = {"task": canceling, "attempt": 1, "request": 1, "answer": "canceled"}
    driver.request(Request.CONFIRMS, {"worker": worker.id, "confirms": [row, row]})
    driver.request(Request.CONFIRMS, {"worker": worker.id, "confirms": [row]})

    assert client.outcome(1).state == "canceled"
    assert driver.counts()["state:canceled"] == 1


def test_a_finished_result_wins_over_the_answer(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, canceling: str
) -> None:
    worker.succeed(canceling)
    worker.confirm(canceling, "canceled", request=1, attempt=1)

    assert client.outcome(1).payload == VALUE
    assert "state:canceled" not in driver.counts()


BAD = {
    "no object": 5,
    "empty": {},
    "an unknown answer": {"task": "T", "attempt": 1, "request": 1, "answer": "maybe"},
    "no answer": {"task": "T", "attempt": 1, "request": 1},
    "text for a request": {"task": "T", "attempt": 1, "request": "1", "answer": "canceled"},
    "a task with a space": {"task": "a b", "attempt": 1, "request": 1, "answer": "canceled"},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_answer_is_set_aside_and_the_others_count(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, canceling: str, bad: Any
) -> None:
    row = {**bad, "task": canceling} if isinstance(bad, dict) and bad.get("task") == "T" else bad
    good = {"task": canceling, "attempt": 1, "request": 1, "answer": "canceled"}
    driver.request(Request.CONFIRMS, {"worker": worker.id, "confirms": [row, good]})

    assert client.outcome(1).state == "canceled"
    assert len(driver.quarantine()) == 1


def test_a_given_back_task_keeps_its_place(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2, 3, [4, 0, CALL, {"priority": 1}])
    worker.read(2)
    driver.database.run("HSET", driver.keys.task(client.task(2)), "state", "balance_canceling", "request", 1)
    driver.database.run("HINCRBY", driver.keys.counts(), "state:running", -1)
    driver.database.run("HINCRBY", driver.keys.counts(), "state:balance_canceling", 1)
    worker.confirm(client.task(2), "canceled")

    assert numbers([*worker.queue(), *driver.ready()]) == [1, 4, 2, 3]


def test_a_second_answer_to_the_same_request_changes_nothing(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, canceling: str
) -> None:
    worker.confirm(canceling, "failed")
    worker.confirm(canceling, "canceled")

    assert driver.state(canceling) == "running"
    assert client.outcomes() == []
    assert len(worker.entries()) == 1


def test_an_attempt_that_is_text_is_set_aside(driver: Driver, worker: PlayedWorker, canceling: str) -> None:
    confirm = {"task": canceling, "attempt": "1", "request": 1, "answer": "canceled"}
    driver.request(Request.CONFIRMS, {"worker": worker.id, "confirms": [confirm]})

    assert len(driver.quarantine()) == 1
    assert driver.counts().get("stale:confirms", 0) == 0


def test_a_message_without_a_sound_worker_is_set_aside(driver: Driver, canceling: str) -> None:
    confirm = {"task": canceling, "attempt": 1, "request": 1, "answer": "canceled"}

    assert driver.request(Request.CONFIRMS, {"worker": "a:b", "confirms": [confirm]}) == "malformed"
    assert driver.state(canceling) == "canceling"
