"""depend: a task that needs more than a batch may carry gets the rest in parts, and waits until the last is in."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, FAILURE, VALUE, Driver, PlayedClient, PlayedWorker, numbers


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


@pytest.fixture
def worker(driver: Driver) -> PlayedWorker:
    """It takes everything at once."""
    return driver.worker(9)


def incomplete(client: PlayedClient, number: int, *needs: int) -> list[Any]:
    return [number, 0, CALL, {"dependencies": [client.task(need) for need in needs], "incomplete": True}]


def test_it_waits_until_the_last_part_is_in(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2, 3, 4, incomplete(client, 9, 1))
    worker.read(4)
    worker.succeed(client.task(1), client.task(2))
    assert driver.state(client.task(9)) == "inactive"

    client.depend(9, 3, part=1, last=False)
    worker.succeed(client.task(3))
    assert driver.state(client.task(9)) == "inactive"
    client.depend(9, 4, part=2)
    assert driver.state(client.task(9)) == "inactive"
    worker.succeed(client.task(4))

    assert client.task(9) in worker.queue()
    (entry,) = worker.read()
    assert all(client.task(number) in entry.fields["values"] for number in (1, 3, 4))


def test_what_is_finished_already_lets_it_go_on_at_once(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2, incomplete(client, 8, 2), incomplete(client, 9, 1, 2))
    worker.read(2)
    worker.succeed(client.task(1), client.task(2))
    client.depend(9, 1)

    assert numbers(worker.queue()) == [9]
    client.depend(8)
    assert numbers(worker.queue()) == [9, 8]


def test_a_part_that_comes_too_soon_waits(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2, incomplete(client, 9, 1))

    assert client.depend(9, 2, part=2) == "early"
    assert client.depend(9, 2, part=1, last=False, after=2) == "early"
    client.submit(3)
    client.driver.settle()
    client.driver.settle()
    assert client.driver.record(client.task(9))["dependencies"] == "2"


def test_a_part_counts_once(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2, incomplete(client, 9, 1))
    client.depend(9, 2, part=1, last=False)
    client.depend(9, 2, part=1, last=False)
    client.depend(9, 1, 2, part=2)

    record = driver.record(client.task(9))
    assert (record["dependencies"], numbers(record["needs"].split())) == ("2", [1, 2])
    assert "incomplete" not in record


@pytest.mark.parametrize(("end", "state"), [("fail", "failed"), ("cancel", "canceled")])
def test_a_dependency_in_a_later_part_that_has_no_value_ends_it(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, end: str, state: str
) -> None:
    client.submit(1, 2, [8, 0, CALL, {"dependencies": [client.task(2), client.task(1)]}], incomplete(client, 9, 1))
    worker.read(2)
    # Task 8 keeps the record of what has ended until it has ended itself: in the next slice.
    if end == "fail":
        driver.send(
            Request.OUTCOMES, {"worker": worker.id, "outcomes": [worker.row(client.task(2), "failed", FAILURE)]}
        )
    else:
        client.cancel(2)
        driver.send(Request.CONFIRMS, {"worker": worker.id, "confirms": [
            {"task": client.task(2), "attempt": 1, "request": 1, "answer": "canceled"}
        ]})  # fmt: skip
    driver.settle()
    assert client.depend(9, 2) == "applied"

    # Its record is gone by now: the client is told, and sends the task again with what it knows.
    assert client.told("missing")[-1]["tasks"] == [[9, [client.task(2)]]]
    assert client.outcome(2).state == state
    assert driver.state(client.task(9)) == ""
    driver.settle()
    assert driver.record(client.task(1))["users"] == "0"


def test_a_dependency_that_is_gone_makes_the_client_send_it_again(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2, incomplete(client, 9, 1))
    worker.read(2)
    worker.succeed(client.task(2))
    client.depend(9, 2)

    assert client.told("missing") == [{"tasks": [[9, [client.task(2)]]]}]
    assert driver.state(client.task(9)) == ""
    client.submit([9, 0, CALL, {}])
    assert driver.state(client.task(9)) == "running"


def test_a_task_that_has_ended_meanwhile_gets_no_more(driver: Driver, client: PlayedClient) -> None:
    client.submit(1, 2, incomplete(client, 9, 1))
    client.cancel(9)

    assert client.depend(9, 2) == "applied"
    assert client.outcome(9).state == "canceled"
    assert "users" not in driver.record(client.task(2))


def test_a_failure_ends_it_before_it_is_complete(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2, incomplete(client, 9, 1))
    worker.read(2)
    worker.fail(client.task(1))

    assert client.outcome(9)[2:] == ("failed", FAILURE, client.task(1))
    assert client.depend(9, 2) == "applied"


def test_needs_of_other_clients_count_as_well(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    other = driver.client()
    body = other.body([[5, 0, CALL, {"dependencies": [client.task(1)]}]], others={client.id: 1})
    driver.send(Request.TASKS, body)
    (entry,) = driver.read("submit")
    assert driver.apply_entry("submit", entry) == "early"

    client.submit(1)
    driver.settle()
    worker.read()
    worker.succeed(client.task(1))

    assert worker.queue() == [other.task(5)]
    (entry,) = worker.read()
    assert VALUE in entry.fields["values"]
    worker.succeed(other.task(5))
    assert driver.database.keys(driver.keys.task("")) == []


@pytest.mark.parametrize("wrong", [{"part": 0}, {"task": "x.1"}, {"dependencies": 5}, {"dependencies": [5]}])
def test_what_cannot_be_understood_is_set_aside(driver: Driver, client: PlayedClient, wrong: dict[str, Any]) -> None:
    body = {"client": client.id, "task": client.task(1), "part": 1, "last": True, "dependencies": [], "after": 0}

    assert driver.request(Request.DEPEND, {**body, **wrong}) == "malformed"


def test_a_task_that_came_again_outlives_what_it_waited_for_before(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2, incomplete(client, 9, 1))
    worker.read(2)
    worker.succeed(client.task(2))
    client.depend(9, 2)
    client.submit([9, 0, CALL, {}])
    worker.succeed(client.task(1))
    driver.settle()

    assert driver.state(client.task(9)) == "running"
    assert driver.database.keys(driver.keys.task("")) == [driver.keys.task(client.task(9))]


def test_a_kept_task_that_has_ended_meanwhile_gets_no_more(driver: Driver, client: PlayedClient) -> None:
    client.submit(1, 2, [9, 0, CALL, {"dependencies": [client.task(1)], "incomplete": True, "keep_ms": 60_000}])
    client.cancel(9)
    client.depend(9, 2)

    assert driver.state(client.task(9)) == "canceled"
    assert "users" not in driver.record(client.task(2))
    assert numbers(driver.ready()) == [1, 2]
