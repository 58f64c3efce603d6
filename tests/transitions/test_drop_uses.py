"""drop_uses: what a task has needed may go when it has ended; of very much in slices."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, Driver

MANY = 1200
"""More than two scripts may touch."""


def needing_much(driver: Driver) -> tuple[Any, Any]:
    client, worker = driver.client(), driver.worker(4, queue_size=100)
    for first in range(0, MANY, 400):
        client.submit(*range(first, first + 400))
    needs = [client.task(number) for number in range(MANY)]
    client.submit([5000, 0, CALL, {"dependencies": needs[:500], "incomplete": True}])
    client.depend(5000, *range(500, 1000), part=1, last=False)
    client.depend(5000, *range(1000, MANY), part=2)
    return client, worker


def test_the_values_of_very_many_go_in_slices(driver: Driver) -> None:
    client, worker = needing_much(driver)
    while client.task(5000) not in worker.queue():
        worker.succeed(*(entry.fields["task"] for entry in worker.read(100)))
    (entry,) = worker.read()
    assert len(entry.fields["needs"].split()) == MANY
    assert len(driver.database.keys(driver.keys.value(""))) == MANY

    worker.succeed(client.task(5000))
    left = len(driver.database.keys(driver.keys.value("")))
    assert MANY - 500 <= left < MANY
    driver.settle()
    assert driver.database.keys(driver.keys.task("")) == []


def test_what_several_outcomes_free_together_goes_in_slices(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(4)
    client.submit(*range(250))
    client.submit(*([number, 0, CALL, {"dependencies": [*map(client.task, range(250))]}] for number in range(300, 304)))
    while client.task(303) not in worker.queue():
        worker.succeed(*(entry.fields["task"] for entry in worker.read(100)))
    worker.read(4)

    worker.succeed(*map(client.task, range(300, 304)))
    assert driver.record(client.task(9))["users"] == "2"
    driver.settle()
    assert driver.database.keys(driver.keys.task("")) == []


def test_a_cancelled_task_that_needed_very_many_is_listed_by_none(driver: Driver) -> None:
    client, _ = needing_much(driver)
    client.cancel(5000)
    driver.settle()

    assert driver.database.keys(driver.keys.dependents("")) == []
    assert driver.record(client.task(MANY - 1)).get("users") == "0"


def test_what_cannot_be_understood_is_set_aside(driver: Driver) -> None:
    assert driver.request(Request.DROP_USES, {"task": "a b", "dependencies": []}) == "malformed"
    assert driver.request(Request.DROP_USES, {"task": "a.1", "dependencies": [5]}) == "malformed"
    many = [f"a.{number:07}" for number in range(1001)]
    assert driver.request(Request.DROP_USES, {"task": "a.1", "dependencies": many}) == "malformed"


@pytest.mark.parametrize("gone", ["a.0000001"])
def test_what_is_gone_already_is_passed_over(driver: Driver, gone: str) -> None:
    assert driver.request(Request.DROP_USES, {"task": "a.2", "dependencies": [gone]}) == "applied"
    assert driver.record(gone) == {}
