"""What scripts note at their end: counts and events, whoever has changed something."""

from __future__ import annotations

import json

import pytest

from support.driver import LANE, Driver, numbers

OTHER = f"gpu,{LANE}"


def test_an_event_of_no_worker_and_no_function_lists_none(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, 2)
    driver.database.run("HDEL", driver.keys.task(client.task(1)), "function")
    client.cancel(1)
    submitted, canceled = [entry.fields for entry in driver.database.stream(driver.keys.events())]

    assert (json.loads(submitted["workers"]), len(json.loads(submitted["functions"]))) == ([], 1)
    assert (json.loads(canceled["workers"]), json.loads(canceled["functions"])) == ([], [])


def test_a_function_without_a_name_is_none(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, functions=[[client.function, ""]])
    (event,) = driver.database.stream(driver.keys.events())

    assert json.loads(event.fields["functions"]) == []
    assert [row[4] for row in json.loads(event.fields["changes"])] == [-1]


def test_functions_are_counted_apart_once_each(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    for number in range(3):
        client.submit(number)
        worker.read()
        worker.succeed(client.task(number))
    counted = [name for name in driver.counts() if name.startswith("function:")]

    assert len(counted) == 1
    assert driver.counts()["function_fields"] == 1
    assert driver.counts()[counted[0]] == 3


def test_a_lane_that_is_known_is_not_made_known_again(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read(2)
    worker.give_back(client.task(2))

    assert worker.record()["lanes"].split() == [LANE]


@pytest.mark.parametrize("lost", ["all of it", "capabilities", "processors"])
def test_a_new_lane_passes_over_a_worker_whose_record_was_lost(driver: Driver, lost: str) -> None:
    client, worker = driver.client(), driver.worker(1, capabilities={LANE: -1, "gpu": -1})
    name, before = driver.keys.worker(worker.id), worker.record()
    if lost == "all of it":
        driver.database.run("ZADD", driver.keys.workers(), "1e15", "here|1|lost|1")
    else:
        driver.database.run("HDEL", name, lost)

    assert client.submit(1, lane=OTHER) == "applied"
    assert numbers([*driver.ready(OTHER), *worker.queue()]) == [1]
    driver.database.run("ZREM", driver.keys.workers(), "here|1|lost|1")
    if lost in before:
        driver.database.run("HSET", name, lost, before[lost])
