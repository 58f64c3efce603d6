"""balance keeps to its lane, and comes at once: a plain worker is of no use to a task that asks for more."""

from __future__ import annotations

from typing import Any

import pytest

from support.driver import CALL, LANE, Driver, PlayedClient, PlayedWorker, numbers

GPU = f"gpu,{LANE}"


def gpu(number: int) -> list[Any]:
    return [number, 0, CALL, {"lane": GPU}]


def set_room(driver: Driver, worker: PlayedWorker, room: int) -> None:
    """As if its tasks were so short: from its next beat on it may have so many outstanding."""
    driver.database.run("HSET", driver.keys.worker(worker.id), "queue", room - 1, "room", room)
    worker.beat(1)
    driver.database.run("ZADD", driver.keys.load(LANE), len(worker.queue()), worker.id)


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


@pytest.fixture
def busy(driver: Driver, client: PlayedClient) -> PlayedWorker:
    """A worker with a processor, a GPU and room for many tasks; it executes task 1, a plain one."""
    worker = driver.worker(1, capabilities={LANE: -1, "gpu": -1})
    client.submit(1)
    worker.read()
    set_room(driver, worker, 1000)
    return worker


def test_unread_tasks_of_another_lane_are_left_to_the_worker_that_can_run_them(
    driver: Driver, client: PlayedClient, busy: PlayedWorker
) -> None:
    client.submit(gpu(2), gpu(3))
    plain = driver.worker(1)
    before = driver.snapshot()
    driver.duty("balance", LANE)

    assert driver.snapshot() == before
    assert (numbers(busy.queue()), plain.queue()) == ([1, 2, 3], [])
    assert driver.record(client.task(3))["attempt"] == "1"


def test_held_tasks_of_another_lane_are_not_asked_back(
    driver: Driver, client: PlayedClient, busy: PlayedWorker
) -> None:
    client.submit(gpu(2), gpu(3))
    busy.read(2)
    driver.worker(3)
    driver.duty("balance", LANE)

    assert busy.control() == [("registered", {})]
    assert driver.state(client.task(3)) == "running"


def test_of_held_tasks_only_those_of_the_lane_are_asked_back(
    driver: Driver, client: PlayedClient, busy: PlayedWorker
) -> None:
    client.submit(gpu(2), 3, gpu(4))
    busy.read(3)
    driver.worker(3)

    assert [order["task"] for order in busy.asked("give_back")] == [client.task(3)]


def test_an_unread_task_behind_newer_ones_of_another_lane_moves(
    driver: Driver, client: PlayedClient, busy: PlayedWorker
) -> None:
    client.submit(2, *(gpu(number) for number in range(3, 60)))
    plain = driver.worker(1)

    assert numbers(plain.queue()) == [2]
    assert numbers(busy.queue()) == [1, *range(3, 60)]
    assert driver.record(client.task(2))["attempt"] == "2"
    assert driver.record(client.task(59))["attempt"] == "1"


def test_unread_and_held_tasks_of_the_lane_move_as_far_as_they_are_wanted(
    driver: Driver, client: PlayedClient, busy: PlayedWorker
) -> None:
    client.submit(2, gpu(3), 4, 5, gpu(6))
    busy.read(2)
    plain = driver.worker(3)

    assert numbers(plain.queue()) == [4, 5]
    assert [order["task"] for order in busy.asked("give_back")] == [client.task(2)]


def test_a_worker_that_joins_gets_its_share_without_the_duty(
    driver: Driver, client: PlayedClient, busy: PlayedWorker
) -> None:
    client.submit(2, 3)
    joining = driver.worker(0)
    assert joining.queue() == []
    joining.beat(1)

    assert numbers(joining.queue()) == [3]
    assert numbers(busy.queue()) == [1, 2]


def test_a_worker_that_falls_idle_gets_its_share_without_the_duty(
    driver: Driver, client: PlayedClient, busy: PlayedWorker
) -> None:
    client.submit(2, 3)
    other = driver.worker(1)
    other.read()
    other.succeed(client.task(3))

    assert numbers(other.queue()) == [2]
    assert numbers(busy.queue()) == [1]


def test_a_worker_that_falls_idle_asks_for_what_is_held(
    driver: Driver, client: PlayedClient, busy: PlayedWorker
) -> None:
    client.submit(2, 3)
    busy.read(1)
    other = driver.worker(1)
    assert busy.asked("give_back") == []
    other.read()
    other.succeed(client.task(3))

    assert [order["task"] for order in busy.asked("give_back")] == [client.task(2)]


def test_a_worker_that_is_not_idle_yet_takes_nothing(driver: Driver, client: PlayedClient, busy: PlayedWorker) -> None:
    client.submit(2, 3, 4, 5)
    other = driver.worker(2)
    assert numbers(other.queue()) == [4, 5]
    other.read(1, processor=1)
    other.read(1, processor=2)
    other.succeed(client.task(4))

    assert numbers(other.queue()) == [5]
    assert numbers(busy.queue()) == [1, 2, 3]
