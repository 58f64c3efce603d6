"""claim: a task that waits runs a child itself, because nobody else can."""

from __future__ import annotations

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, LANE, LONG_CALL, Driver, PlayedClient, PlayedWorker, numbers
from support.invariants import CLAIMED


@pytest.fixture
def worker(driver: Driver) -> PlayedWorker:
    return driver.worker(1)


@pytest.fixture
def parent(driver: Driver, worker: PlayedWorker) -> PlayedClient:
    """Its task 1 executes and waits."""
    client = driver.client()
    client.submit(1)
    worker.read()
    worker.suspend(client.task(1), number=1, ready=1)
    return client


@pytest.fixture
def client(driver: Driver, parent: PlayedClient) -> PlayedClient:
    """The nested client of that task."""
    return driver.client(parent=parent.task(1), parent_attempt=1)


def test_a_ready_task_is_assigned_without_an_entry(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    assert client.claim(worker, 1) == "applied"

    record = driver.record(client.task(1))
    assert (record["state"], record["attempt"], record["worker"]) == ("running", "1", worker.id)
    assert record["entry"].endswith(CLAIMED)
    assert len(worker.entries()) == 1
    (entry,) = client.claimed()
    assert entry is not None
    assert (entry.fields["task"], entry.fields["attempt"], entry.fields["call"]) == (client.task(1), "1", CALL)


def test_of_several_the_first_that_has_not_started_is_taken(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2, 3)
    client.claim(worker, 3, 1, 2)
    client.claim(worker, 3, 1, 2, claim=2)

    assert [entry.fields["task"] for entry in client.claimed() if entry] == [client.task(3), client.task(1)]


def test_an_unread_task_is_taken_from_another_worker(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    other = driver.worker(1)
    client.submit(1, 2)
    other.read()
    assert numbers(other.queue()) == [1, 2]
    client.claim(worker, 1, 2)

    assert numbers(other.queue()) == [1]
    (entry,) = client.claimed()
    assert entry is not None
    assert (entry.fields["task"], entry.fields["attempt"]) == (client.task(2), "2")


def test_what_has_started_elsewhere_is_not_taken(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    other = driver.worker(1)
    client.submit(1)
    other.read()
    client.claim(worker, 1)

    assert client.claimed() == [None]
    assert driver.record(client.task(1))["worker"] == other.id


def test_of_a_task_behind_others_one_that_it_needs_is_taken(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(
        1,
        [2, 0, CALL, {"dependencies": [client.task(1)]}],
        [3, 0, CALL, {"dependencies": [client.task(2)]}],
    )
    client.claim(worker, 3)

    (entry,) = client.claimed()
    assert entry is not None
    assert entry.fields["task"] == client.task(1)


def test_a_task_that_this_worker_cannot_run_is_not_taken(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit([1, 0, CALL, {"lane": "gpu,python3.11"}])
    client.claim(worker, 1)

    assert client.claimed() == [None]
    assert driver.state(client.task(1)) == "inactive"


def test_a_long_call_comes_along(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit([1, 0, LONG_CALL, {"run": {"timeout_ms": 5}, "priority": 7}])
    client.claim(worker, 1)

    (entry,) = client.claimed()
    assert entry is not None
    assert (entry.fields["call"], entry.fields["options"], entry.fields["priority"]) == (
        LONG_CALL, '{"timeout_ms":5}', "7",
    )  # fmt: skip


def test_its_outcome_counts_like_any_other(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    client.claim(worker, 1)
    worker.succeed(client.task(1))

    assert client.outcome(1).state == "success"
    assert driver.database.set(driver.keys.worker_claimed(worker.id)) == set()


def test_a_retry_goes_back_to_its_lane(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit([1, 0, CALL, {"retries": 1}])
    client.claim(worker, 1)
    worker.retry(client.task(1))

    assert numbers(driver.ready()) == [1]
    assert driver.database.set(driver.keys.worker_claimed(worker.id)) == set()


def test_a_cancel_asks_its_worker(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    client.claim(worker, 1)
    client.cancel(1)
    assert driver.state(client.task(1)) == "canceling"

    assert [asked["task"] for asked in worker.asked("cancel")] == [client.task(1)]
    worker.confirm(client.task(1), "canceled")
    assert client.outcome(1).state == "canceled"


def test_it_may_be_given_back(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    client.claim(worker, 1)
    worker.give_back(client.task(1))

    assert numbers(driver.ready()) == [1]


def test_when_the_worker_is_lost_only_what_executed_is_charged(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, parent: PlayedClient
) -> None:
    client.submit(1, 2)
    client.claim(worker, 1)
    client.claim(worker, 2, claim=2)
    worker.suspend(parent.task(1), client.task(1), number=2, ready=1)
    # Of a nested client everything ends with its parent's attempt; a top client's tasks show what is charged.
    driver.database.run("HDEL", driver.keys.task(parent.task(1)), "nested")
    worker.lose()

    assert "deaths" not in driver.record(parent.task(1))
    assert "deaths" not in driver.record(client.task(1))
    assert driver.record(client.task(2))["deaths"] == "1"
    assert driver.database.set(driver.keys.worker_claimed(worker.id)) == set()
    driver.request(Request.DISCONNECT, {"client": client.id, "after": 0})


def test_when_the_parent_ends_what_it_claimed_is_cancelled(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, parent: PlayedClient
) -> None:
    client.submit(1)
    client.claim(worker, 1)
    worker.fail(parent.task(1))
    driver.settle()
    assert driver.state(client.task(1)) == "canceling"

    worker.give_back(client.task(1))
    assert driver.state(client.task(1)) == ""


def test_it_waits_for_the_batch_that_carries_the_task(client: PlayedClient, worker: PlayedWorker) -> None:
    assert client.claim(worker, 1, after=1) == "early"
    client.submit(1)
    client.driver.settle()

    (entry,) = client.claimed()
    assert entry is not None


def test_a_client_or_worker_that_has_ended_claims_nothing(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    body = {"client": client.id, "worker": "h|9|gone|x", "claim": 1, "tasks": [client.task(1)], "after": 0}
    assert driver.request(Request.CLAIM, body) == "unknown"

    client.disconnect()
    driver.settle()
    assert client.claim(worker, 1) == "unknown"


@pytest.mark.parametrize("wrong", [{"claim": 0}, {"tasks": 5}, {"tasks": [5]}, {"worker": "a b"}])
def test_what_cannot_be_understood_is_set_aside(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, wrong: dict[str, object]
) -> None:
    body = {"client": client.id, "worker": worker.id, "claim": 1, "tasks": [], "after": 0, **wrong}

    assert driver.request(Request.CLAIM, body) == "malformed"


def test_a_suspect_is_taken_when_nothing_else_executes_on_the_worker(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2)
    for _ in range(2):
        lost = driver.worker(2)
        lost.read(2, processor=1)
        lost.lose()
    assert numbers(driver.ready(f"{LANE}!")) == [1]
    worker.suspend(number=2, ready=1)
    client.claim(worker, 1)
    assert client.claimed() == [None]
    worker.suspend(*worker.queue()[:1], number=3, ready=1)
    client.claim(worker, 1, claim=2)

    assert driver.record(client.task(1))["worker"] == worker.id
    assert driver.ready(f"{LANE}!") == []


def test_for_a_worker_that_has_gone_nothing_is_claimed(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    worker.lose()
    client.submit(1)

    assert client.claim(worker, 1) == "unknown"
    assert client.claimed() == []
    assert driver.state(client.task(1)) == "inactive"


def test_what_is_being_asked_back_or_cancelled_or_claimed_is_not_taken(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    other = driver.worker(1)
    client.submit(1, 2, 3)
    other.read(2)
    client.claim(worker, 3)
    client.cancel(1)
    driver.worker(1)
    driver.duty("balance", LANE)
    assert [driver.state(client.task(number)) for number in (1, 2)] == ["canceling", "balance_canceling"]
    client.claim(worker, 1, 2, 3, claim=2)

    assert client.claimed()[1:] == [None]
    assert driver.record(client.task(3))["attempt"] == "1"


def test_what_has_ended_is_passed_over(client: PlayedClient, driver: Driver, worker: PlayedWorker) -> None:
    other = driver.worker(1)
    client.submit(1, [2, 0, CALL, {"dependencies": [client.task(1)]}], 3)
    other.read()
    other.drain()
    other.succeed(client.task(1))
    client.claim(worker, 1, 9, 3, 2)

    (entry,) = client.claimed()
    assert entry is not None
    assert entry.fields["task"] == client.task(3)


def test_a_client_that_nobody_knows_claims_nothing(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    body = {"client": "nobody", "worker": worker.id, "claim": 1, "tasks": [client.task(1)], "after": 0}

    assert driver.request(Request.CLAIM, body) == "unknown"
    assert driver.state(client.task(1)) == "inactive"


def test_what_is_being_cancelled_is_not_taken_when_its_delivery_is_not_on_record(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    other = driver.worker(1)
    client.submit(1)
    (entry,) = other.read()
    client.cancel(1)
    driver.database.run("XACK", driver.keys.worker_tasks(other.id), "processors", entry.id)
    client.claim(worker, 1)

    assert client.claimed() == [None]
    assert driver.state(client.task(1)) == "canceling"
    other.confirm(client.task(1), "canceled")


def test_of_what_is_needed_no_more_than_500_are_looked_at(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(*([number, 0, CALL, {"lane": f"gpu,{LANE}"}] for number in range(1, 499)))
    client.submit(500, 501)
    for number, last in ((600, 500), (601, 501)):
        needs = [*(client.task(other) for other in range(1, 499)), client.task(last)]
        client.submit([number, 0, CALL, {"dependencies": needs}])
    client.claim(worker, 600)
    client.claim(worker, 1, 601, claim=2)

    assert [entry and entry.fields["task"] for entry in client.claimed()] == [client.task(500), None]
