"""dispatch_waiting: what an error left in a lane although a worker has room."""

from __future__ import annotations

import pytest

from support.driver import CALL, LANE, Driver, PlayedWorker, numbers


def test_what_waits_although_there_is_room_is_handed_out(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, 2, 3)
    worker = driver.worker(0)
    driver.database.run("HSET", driver.keys.worker(worker.id), "processors", 1, "room", 2)
    driver.database.run("ZADD", driver.keys.load(LANE), 0, worker.id)

    assert driver.duty("dispatch_waiting", LANE) == "dispatched"
    assert numbers(worker.queue()) == [1, 2]
    assert numbers(driver.ready()) == [3]


def test_without_room_nothing_changes(driver: Driver) -> None:
    client = driver.client()
    driver.worker(1)
    client.submit(1, 2, 3)
    before = driver.snapshot()
    driver.duty("dispatch_waiting", LANE)

    assert driver.snapshot() == before


def test_an_entry_of_a_lane_without_a_record_is_dropped(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)
    driver.database.run("ZADD", driver.keys.ready(LANE), 0, f"{client.id}.0000009")
    worker = driver.worker(1)

    assert numbers(worker.queue()) == [1]
    assert driver.ready() == []
    assert [name for name in driver.counts() if name.startswith("refused:")] == []


def test_a_task_that_is_in_a_lane_although_it_runs_is_not_assigned_a_second_time(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(3)
    client.submit(1)
    worker.read()
    driver.database.run("ZADD", driver.keys.ready(LANE), 0, client.task(1))
    driver.duty("dispatch_waiting", LANE)

    assert driver.record(client.task(1))["attempt"] == "1"
    assert len(worker.entries()) == 1


def test_a_lane_that_nobody_knows_is_no_trouble(driver: Driver) -> None:
    assert driver.duty("dispatch_waiting", "nowhere") == "dispatched"


def test_what_comes_back_goes_to_all_who_are_idle(driver: Driver) -> None:
    client, lost = driver.client(), driver.worker(40)
    client.submit(*range(40))
    for processor in range(40):
        lost.read(1, processor=processor)
    workers = [driver.worker(1) for _ in range(40)]
    lost.lose()

    assert [len(worker.queue()) for worker in workers] == [1] * 40


def test_a_task_that_comes_again_does_not_set_its_lane_back(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"retries": 1}], 2, 3, 4)
    worker.read(2)
    worker.succeed(client.task(2))
    reached = driver.database.hash(driver.keys.lanes())[LANE]
    assert float(reached) > 0

    worker.retry(client.task(1))
    worker.read(2)

    assert driver.record(client.task(1))["attempt"] == "2"
    assert driver.database.hash(driver.keys.lanes())[LANE] == reached


def test_of_very_many_busy_workers_the_queues_are_filled(driver: Driver) -> None:
    client = driver.client()
    client.submit(*range(1, 51))
    workers = [driver.worker(0) for _ in range(20)]
    for worker in workers:
        driver.database.run("HSET", driver.keys.worker(worker.id), "processors", 1, "room", 2)
        driver.database.run("ZADD", driver.keys.load(LANE), 0, worker.id)
    driver.duty("dispatch_waiting", LANE)

    assert [len(worker.queue()) for worker in workers] == [2] * 20
    assert numbers(driver.ready()) == list(range(41, 51))


def test_what_is_submitted_does_not_overtake_what_waits_although_there_is_room(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(0)
    client.submit(1)
    driver.database.run("HSET", driver.keys.worker(worker.id), "processors", 1, "room", 2)
    driver.database.run("ZADD", driver.keys.load(LANE), 0, worker.id)
    client.submit(2, [3, 0, CALL, {"priority": -1}])

    assert (numbers(driver.ready()), worker.queue()) == ([1, 2, 3], [])


def played_ready(driver: Driver, processors: int) -> PlayedWorker:
    """A worker that has room and that nothing has been dispatched to since."""
    worker = driver.worker(0)
    driver.database.run("HSET", driver.keys.worker(worker.id), "processors", processors, "room", processors + 1)
    driver.database.run("ZADD", driver.keys.load(LANE), 0, worker.id)
    return worker


@pytest.mark.parametrize("by", ["a duty", "a beat", "a beat of a worker of two lanes"])
def test_a_lane_has_come_as_far_as_the_last_that_was_assigned_whatever_the_order(driver: Driver, by: str) -> None:
    client = driver.client()
    client.submit([1, 0, CALL, {"priority": 2}], [7, 0, CALL, {"priority": 1}], 2)
    driver.database.run("ZADD", driver.keys.ready(LANE), 1.5, client.task(9), 2.5, client.task(10))
    if by == "a duty":
        worker = played_ready(driver, 5)
        driver.duty("dispatch_waiting", LANE)
    else:
        driver.database.run("HSET", driver.keys.lanes(), "gpu", 0)
        worker = driver.worker(5, capabilities={LANE: -1, **({"gpu": -1} if "two" in by else {})})

    assert numbers(worker.queue()) == [1, 7, 2]
    assert driver.database.hash(driver.keys.lanes())[LANE] == "7"


def test_very_many_workers_whose_load_is_out_of_date_hold_nobody_up(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)
    workers = [driver.worker(0) for _ in range(16)]
    for worker in workers:
        driver.database.run("ZADD", driver.keys.load(LANE), 0, worker.id)

    assert driver.duty("dispatch_waiting", LANE) == "dispatched"
    assert numbers(driver.ready()) == [1]
    driver.database.run("DEL", driver.keys.load(LANE))


def test_of_several_lanes_the_task_that_is_first_comes_first(driver: Driver) -> None:
    client = driver.client()
    both = f"gpu,{LANE}"
    client.submit(*([number, 0, CALL, {"lane": (both, LANE)[number % 2]}] for number in range(1, 8)))
    worker = driver.worker(5, capabilities={LANE: -1, "gpu": -1})

    assert numbers(worker.queue()) == [1, 2, 3, 4, 5, 6]
    assert (numbers(driver.ready()), driver.ready(both)) == ([7], [])


@pytest.mark.parametrize("who", ["nobody", "one that drains", "one without room"])
def test_a_load_that_is_out_of_date_brings_nobody_a_task(driver: Driver, who: str) -> None:
    driver.database.run("HSET", driver.keys.lanes(), LANE, 0)
    client, listed = driver.client(), driver.worker(1)
    if who == "one that drains":
        listed.drain()
    elif who == "one without room":
        client.submit(1, 2)
    name = "nobody" if who == "nobody" else listed.id
    driver.database.run("ZADD", driver.keys.load(LANE), 0, name)
    before = listed.queue()
    client.submit(3, 4, 5)

    assert numbers(driver.ready()) == ([5] if who == "nobody" else [3, 4, 5])
    assert numbers(listed.queue()) == ([3, 4] if who == "nobody" else numbers(before))
    driver.database.run("ZREM", driver.keys.load(LANE), name)
    if who == "one without room":
        listed.drain()
