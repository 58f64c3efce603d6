"""pause: no task is assigned any more, to any worker, until a person says otherwise."""

from __future__ import annotations

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, LANE, Driver, numbers


def pause(driver: Driver, paused: bool = True) -> str:
    return driver.request(Request.PAUSE, {"paused": paused, "by": "ada", "reason": "the database moves"})


def test_new_tasks_wait_and_what_is_assigned_goes_on(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read(1)

    assert pause(driver) == "applied"
    client.submit(2, 3)
    worker.succeed(client.task(1))

    assert client.outcome(1).state == "success"
    assert numbers(driver.ready()) == [2, 3]
    assert worker.queue() == []
    assert driver.load() == {}


def test_everything_goes_on_when_it_ends(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    pause(driver)
    client.submit(1, 2, 3)

    assert pause(driver, False) == "applied"
    assert numbers(worker.queue()) == [1, 2]
    assert [(order["action"], order["by"]) for order in driver.audit()] == [("pause", "ada"), ("resume", "ada")]


def test_a_worker_that_registers_meanwhile_gets_nothing_either(driver: Driver) -> None:
    client = driver.client()
    pause(driver)
    client.submit(1)
    worker = driver.worker(1)
    assert worker.queue() == []

    pause(driver, False)
    assert numbers(worker.queue()) == [1]


def test_heartbeats_retries_and_the_dispatch_duty_do_not_end_it(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"retries": 1}])
    worker.read(1)
    pause(driver)
    worker.retry(client.task(1))
    worker.beat(2)
    driver.duty("dispatch_waiting", LANE)
    driver.duty("balance", LANE)

    assert worker.queue() == []
    assert numbers(driver.ready()) == [1]


def test_a_worker_that_drains_still_drains_afterwards(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    worker.drain()
    pause(driver)
    pause(driver, False)
    client.submit(1)

    assert worker.queue() == []


@pytest.mark.parametrize("paused", [True, False])
def test_it_can_be_said_twice(driver: Driver, paused: bool) -> None:
    driver.worker(1)
    pause(driver, paused)
    before = driver.snapshot()
    pause(driver, paused)
    after = driver.snapshot()

    for picture in (before, after):
        picture.pop(driver.keys.audit())
    assert after == before


def test_many_workers_are_reached_in_slices(driver: Driver) -> None:
    driver.client().submit(1)
    for _ in range(250):
        driver.worker(1)
    pause(driver)
    assert driver.load() != {}

    words = driver.settle()

    assert driver.load() == {}
    assert [kind for kind, _ in words].count("pause") >= 1
    assert [order["action"] for order in driver.audit()] == ["pause"], "it is one order"


@pytest.mark.parametrize("cursor", ["x", "-1", 5, []])
def test_a_place_to_go_on_from_that_is_none_is_set_aside(driver: Driver, cursor: object) -> None:
    assert driver.request(Request.PAUSE, {"paused": True, "by": "ada", "cursor": cursor}) == "malformed"
    assert driver.audit() == []


def test_a_later_order_wins_over_the_slices_of_an_earlier_one(driver: Driver) -> None:
    driver.client().submit(1)
    for _ in range(250):
        driver.worker(1)
    pause(driver)
    pause(driver, False)
    driver.settle()

    assert len(driver.load()) == 250


def test_suspects_wait_too_also_for_a_worker_that_was_kept_for_them(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, 2)
    for _ in range(2):
        lost = driver.worker(2)
        lost.read(1, processor=1)
        lost.read(1, processor=2)
        lost.lose()
    worker = driver.worker(1)
    driver.duty("run_alone", LANE)
    worker.read()
    pause(driver)
    worker.succeed(client.task(1))
    driver.duty("run_alone", LANE)
    driver.duty("run_alone", LANE)
    assert worker.queue() == []
    assert worker.record()["draining"] == "paused"

    pause(driver, False)
    driver.duty("run_alone", LANE)
    assert numbers(worker.queue()) == [2]
