"""balance: what has not started moves to idle workers; what executes stays."""

from __future__ import annotations

import pytest

from support.driver import CALL, LANE, Driver, numbers


def test_unread_tasks_move_to_an_idle_worker_at_once(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read(1)
    idle = driver.worker(0)
    driver.database.run("HSET", driver.keys.worker(idle.id), "processors", 1, "room", 2)
    driver.database.run("ZADD", driver.keys.load(LANE), 0, idle.id)
    assert driver.duty("balance", LANE) == "balanced"

    assert numbers(worker.queue()) == [1]
    assert numbers(idle.queue()) == [2]
    assert driver.record(client.task(2))["attempt"] == "2"


def test_of_prefetched_tasks_the_worker_is_asked_to_give_some_back(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read(2)
    driver.worker(1)
    driver.duty("balance", LANE)

    assert worker.asked("give_back") == [{"version": 1, "task": client.task(2), "attempt": 1, "request": 1}]
    assert driver.state(client.task(1)) == "running"
    assert driver.state(client.task(2)) == "balance_canceling"


@pytest.mark.parametrize(("ms", "at_once"), [(0.1, 0), (50, 1)])
def test_what_will_be_done_before_the_answer_is_left_to_the_duty(driver: Driver, ms: float, at_once: int) -> None:
    client, busy = driver.client(), driver.worker(1)
    client.submit(1)
    busy.read(1)
    busy.succeed(*busy.queue(), ms=ms)
    client.submit(2, 3)
    busy.read(2)
    driver.worker(1)
    assert len(busy.asked("give_back")) == at_once

    # The next may be a long one: the duty does not guess.
    driver.duty("balance", LANE)
    assert len(busy.asked("give_back")) == 1


@pytest.mark.parametrize("why", ["it is gone", "it is stale"])
def test_an_entry_that_is_no_assignment_is_passed_over(driver: Driver, why: str) -> None:
    client, worker = driver.client(), driver.worker(1)
    driver.database.run("HSET", driver.keys.worker(worker.id), "room", 4)
    client.submit(1, 2, 3, 4)
    second = worker.read(4)[1].id
    record = driver.keys.task(client.task(2))
    assignment = driver.database.hash(record)["assignment"]
    if why == "it is gone":
        driver.database.run("XDEL", driver.keys.worker_tasks(worker.id), second)
    else:
        driver.database.run("HSET", record, "assignment", assignment.replace(second, "1-1"))
    driver.worker(1)

    assert driver.duty("balance", LANE) == "balanced"
    assert [body["task"] for body in worker.asked("give_back")] == [client.task(3)]
    if why == "it is gone":
        driver.duty("check_tasks", client.task(2))
    else:
        driver.database.run("HSET", record, "assignment", assignment)


@pytest.mark.parametrize("score", [0, 1_000_005])
def test_a_worker_that_is_listed_and_has_vanished_is_passed_over(driver: Driver, score: int) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read(2)
    driver.database.run("ZADD", driver.keys.load(LANE), score, "here|1|vanished|1")
    driver.worker(1)

    assert driver.duty("balance", LANE) == "balanced"
    assert len(worker.asked("give_back")) == 1
    driver.database.run("ZREM", driver.keys.load(LANE), "here|1|vanished|1")


@pytest.mark.parametrize("which", ["idle", "busy"])
def test_a_worker_that_is_listed_though_it_drains_is_passed_over(driver: Driver, which: str) -> None:
    client, busy = driver.client(), driver.worker(1)
    client.submit(1, 2)
    busy.read(2)
    idle = driver.worker(0)
    draining = idle if which == "idle" else busy
    draining.drain()
    driver.database.run("HSET", driver.keys.worker(idle.id), "processors", 1, "room", 2)
    driver.database.run("ZADD", driver.keys.load(LANE), 0, idle.id, 1_000_002, busy.id)

    assert driver.duty("balance", LANE) == "balanced"
    assert busy.asked("give_back") == []
    driver.database.run("ZREM", driver.keys.load(LANE), draining.id)


def test_while_something_waits_that_comes_first(driver: Driver) -> None:
    client, busy = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)
    busy.read(2)
    idle = driver.worker(0)
    driver.database.run("HSET", driver.keys.worker(idle.id), "processors", 1, "room", 2)
    driver.database.run("ZADD", driver.keys.load(LANE), 0, idle.id)

    assert numbers(driver.ready()) == [3]
    assert driver.duty("balance", LANE) == "balanced"
    assert busy.asked("give_back") == []


def test_nobody_is_asked_twice_for_the_same_task(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read(2)
    driver.worker(1)
    driver.duty("balance", LANE)
    driver.duty("balance", LANE)

    assert len(worker.asked("give_back")) == 1


def test_an_executing_task_never_moves(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(2)
    client.submit(1, 2)
    worker.read(1, processor=1)
    worker.read(1, processor=2)
    driver.worker(1)
    before = driver.snapshot()
    driver.duty("balance", LANE)

    assert driver.snapshot() == before


def test_without_an_idle_worker_nothing_moves(driver: Driver) -> None:
    client, workers = driver.client(), [driver.worker(1), driver.worker(1)]
    client.submit(1, 2, 3, 4)
    for worker in workers:
        worker.read(1)
    before = driver.snapshot()
    driver.duty("balance", LANE)

    assert driver.snapshot() == before


def test_a_worker_is_not_asked_for_more_than_the_idle_ones_can_take(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(*range(1, 30))
    for _ in range(4):
        worker.read(100)
        worker.succeed(*worker.queue(), ms=0.1)
    held = worker.read(100)
    assert len(held) > 5
    while driver.ready():
        client.cancel(*numbers(driver.ready()))
    driver.worker(2)
    driver.duty("balance", LANE)

    assert len(worker.asked("give_back")) == 2


def test_a_draining_worker_is_not_given_anything(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read(2)
    other = driver.worker(1)
    other.drain()
    driver.duty("balance", LANE)

    # Only what was asked for when it joined.
    assert len(worker.asked("give_back")) == 1


def test_tasks_of_another_lane_stay_where_they_are(driver: Driver) -> None:
    client = driver.client()
    worker = driver.worker(1, capabilities={LANE: -1, "gpu": -1})
    client.submit(*([number, 0, CALL, {"lane": f"gpu,{LANE}"}] for number in (1, 2)), [3, 0, CALL, {"lane": "other"}])
    worker.read(1)
    driver.worker(1)
    client.submit([4, 0, CALL, {"lane": LANE}])
    before = driver.record(client.task(2))
    driver.duty("balance", LANE)

    assert driver.record(client.task(2)) == before


def test_no_more_moves_than_the_idle_can_begin(driver: Driver) -> None:
    client, busy = driver.client(), driver.worker(1)
    driver.database.run("HSET", driver.keys.worker(busy.id), "queue", 19, "room", 20)
    busy.beat(1)
    client.submit(*range(1, 12))
    busy.read()
    idle = driver.worker(1)

    assert numbers(busy.queue()) == list(range(1, 11))
    assert numbers(idle.queue()) == [11]
