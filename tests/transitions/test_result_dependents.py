"""result: values, failures and ends go downstream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.driver import (
    CALL,
    FAILURE,
    VALUE,
    Driver,
    PlayedClient,
    PlayedWorker,
)

# --- dependents ---------------------------------------------------------------------------------------------


def needing(number: int, *dependencies: str) -> list[Any]:
    return [number, 0, CALL, {"dependencies": list(dependencies)}]


def test_a_success_lets_its_dependents_start_with_the_value(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, needing(2, client.task(1)))
    worker.read()
    worker.succeed(client.task(1))
    (entry,) = worker.entries()

    assert entry.fields["task"] == client.task(2)
    assert json.loads(entry.fields["values"]) == {client.task(1): VALUE}


def test_the_value_stays_until_the_last_dependent_has_ended(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, needing(2, client.task(1)), needing(3, client.task(1)))
    worker.read()
    worker.succeed(client.task(1))
    assert driver.state(client.task(1)) == "success"
    worker.read(2)
    worker.succeed(client.task(2))
    assert driver.database.exists(driver.keys.value(client.task(1)))

    worker.succeed(client.task(3))
    assert not driver.database.exists(driver.keys.value(client.task(1)))
    assert driver.record(client.task(1)) == {}


def test_a_failure_fails_everything_downstream_with_the_same_exception(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, needing(2, client.task(1)), needing(3, client.task(2)), needing(4, client.task(2), client.task(3)))
    worker.read()
    worker.fail(client.task(1))

    outcomes = [client.outcome(number) for number in (1, 2, 3, 4)]
    assert {(outcome.state, outcome.payload) for outcome in outcomes} == {("failed", FAILURE)}
    assert [outcome.because for outcome in outcomes] == [None, client.task(1), client.task(2), client.task(2)]
    assert driver.database.keys(driver.keys.task("")) == []


def test_a_dependent_of_two_waits_for_both(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(2)
    client.submit(1, 2, needing(3, client.task(1), client.task(2)))
    worker.read(2)
    worker.succeed(client.task(2))
    assert driver.state(client.task(3)) == "inactive"

    worker.succeed(client.task(1))
    assert driver.state(client.task(3)) == "running"


def test_a_failed_dependency_takes_the_dependent_off_the_other_one(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(2)
    client.submit(1, 2, needing(3, client.task(1), client.task(2)))
    worker.read(2)
    worker.fail(client.task(1))

    assert client.outcome(3).because == client.task(1)
    assert driver.database.set(driver.keys.dependents(client.task(2))) == set()
    worker.succeed(client.task(2))
    assert driver.record(client.task(2)) == {}


def test_a_dependent_that_one_outcome_lets_go_on_and_another_of_the_same_batch_fails_has_failed(
    driver: Driver, client: PlayedClient
) -> None:
    worker = driver.worker(2)
    client.submit(1, 2, needing(3, client.task(1), client.task(2)))
    worker.read(2)
    worker.send_outcomes(worker.row(client.task(1)), worker.row(client.task(2), "failed", FAILURE))

    assert client.outcome(3).because == client.task(2)
    assert worker.entries() == []


@pytest.mark.parametrize("end", ["succeed", "fail"])
def test_a_list_of_dependents_that_names_what_runs_or_is_gone_ends_and_starts_nothing(
    driver: Driver, client: PlayedClient, end: str
) -> None:
    worker = driver.worker(2)
    client.submit(1, 2, needing(3, client.task(1)))
    worker.read(2)
    driver.database.run("SADD", driver.keys.dependents(client.task(1)), client.task(2), "gone.0000001")
    getattr(worker, end)(client.task(1))

    assert [outcome.number for outcome in client.outcomes()] == ([1] if end == "succeed" else [1, 3])
    assert (driver.state(client.task(2)), driver.record(client.task(2))["attempt"]) == ("running", "1")
    assert driver.record("gone.0000001") == {}
    assert len(worker.entries()) == (2 if end == "succeed" else 1)
