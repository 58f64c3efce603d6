"""resolve: the next slice of the dependents of a finished task."""

from __future__ import annotations

from gristmill.protocol.kinds import Request
from support.driver import CALL, FAILURE, Driver, PlayedClient, PlayedWorker


def many_dependents(driver: Driver, count: int) -> tuple[PlayedClient, PlayedWorker]:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    for start in range(2, count + 2, 100):
        client.submit(*([number, 0, CALL, {"dependencies": [client.task(1)]}] for number in range(start, start + 100)))
    worker.read()
    return client, worker


def test_a_thousand_dependents_become_ready_in_slices(driver: Driver) -> None:
    client, worker = many_dependents(driver, 1200)
    worker.succeed(client.task(1))
    assert 0 < len(driver.database.set(driver.keys.dependents(client.task(1)))) < 1200
    driver.settle()

    assert len(driver.ready()) + len(worker.queue()) == 1200
    assert not driver.database.exists(driver.keys.dependents(client.task(1)))


def test_a_thousand_dependents_fail_in_slices(driver: Driver) -> None:
    client, worker = many_dependents(driver, 1200)
    worker.fail(client.task(1))
    driver.settle()

    assert len(client.outcomes()) == 1201
    assert {(outcome.state, outcome.payload) for outcome in client.outcomes()} == {("failed", FAILURE)}
    assert driver.database.keys(driver.keys.task("")) == []


def test_a_long_chain_fails_to_its_end(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    for start in range(2, 1202, 100):
        client.submit(
            *([number, 0, CALL, {"dependencies": [client.task(number - 1)]}] for number in range(start, start + 100))
        )
    worker.read()
    worker.fail(client.task(1))
    driver.settle()

    assert len(client.outcomes()) == 1201
    assert driver.database.keys(driver.keys.task("")) == []
    assert driver.database.keys(driver.keys.value("")) == []


def test_a_task_that_nobody_knows_or_that_runs_is_no_trouble(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, [2, 0, CALL, {"dependencies": [client.task(1)]}])
    before = driver.snapshot()
    for task in (client.task(1), "nobody.0000001"):
        assert driver.request(Request.RESOLVE, {"task": task}) == "applied"

    assert driver.snapshot() == before
