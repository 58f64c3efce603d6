"""retire_lane: a lane that has stood still is forgotten, and comes back when it is needed."""

from __future__ import annotations

from support.driver import CALL, LANE, Driver, numbers

OTHER = f"gpu,{LANE}"


def test_a_lane_that_stood_still_is_forgotten_everywhere(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1, capabilities={LANE: -1, "gpu": -1})
    client.submit([1, 0, CALL, {"lane": OTHER}], 2)
    order = driver.database.hash(driver.keys.lanes())[OTHER]

    assert driver.duty("retire_lane", OTHER, order) == "retired"
    assert set(driver.database.hash(driver.keys.lanes())) == {LANE}
    assert worker.record()["lanes"].split() == [LANE]
    assert not driver.database.exists(driver.keys.load(OTHER))


def test_a_worker_whose_record_was_lost_keeps_no_lane(driver: Driver) -> None:
    driver.client().submit(1)
    driver.database.run("ZADD", driver.keys.workers(), "1e15", "here|1|lost|1")
    lanes = driver.database.hash(driver.keys.lanes())
    driver.database.run("HSET", driver.keys.lanes(), "idle", lanes[LANE])

    assert driver.duty("retire_lane", "idle", lanes[LANE]) == "retired"
    assert driver.database.hash(driver.keys.lanes()) == lanes
    driver.database.run("ZREM", driver.keys.workers(), "here|1|lost|1")


def test_a_lane_that_has_moved_is_kept(driver: Driver) -> None:
    client = driver.client()
    driver.worker(1)
    client.submit(1)
    before = driver.snapshot()

    assert driver.duty("retire_lane", LANE, "0") == "kept"
    assert driver.snapshot() == before


def test_a_lane_in_which_something_waits_is_kept(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)

    assert driver.duty("retire_lane", LANE, driver.database.hash(driver.keys.lanes())[LANE]) == "kept"


def test_a_lane_that_nobody_knows_is_kept(driver: Driver) -> None:
    assert driver.duty("retire_lane", "nowhere", "0") == "kept"


def test_a_task_makes_its_lane_known_again(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1, capabilities={LANE: -1, "gpu": -1})
    client.submit([1, 0, CALL, {"lane": OTHER}])
    driver.duty("retire_lane", OTHER, driver.database.hash(driver.keys.lanes())[OTHER])
    client.submit([2, 0, CALL, {"lane": OTHER}])

    assert numbers(worker.queue()) == [1, 2]


def test_a_task_that_comes_back_makes_its_lane_known_again(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1, capabilities={LANE: -1, "gpu": -1})
    client.submit([1, 0, CALL, {"lane": OTHER}])
    worker.read()
    driver.duty("retire_lane", OTHER, driver.database.hash(driver.keys.lanes())[OTHER])
    worker.give_back(client.task(1))
    driver.duty("dispatch_waiting", OTHER)

    assert numbers(worker.queue()) == [1]


def test_a_lane_that_comes_back_goes_on_where_it_was(driver: Driver) -> None:
    worker, old, new = driver.worker(1), driver.client(), driver.client()
    old.submit(1000)
    worker.read()
    worker.succeed(old.task(1000))
    driver.duty("retire_lane", LANE, driver.database.hash(driver.keys.lanes())[LANE])
    new.submit(*range(50))
    old.submit(1001)

    assert driver.ready().index(old.task(1001)) <= 2


def test_of_lanes_that_are_gone_the_one_that_had_come_farthest_counts(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)
    for lane, order in (("far", "1000"), ("near", "10")):
        driver.database.run("HSET", driver.keys.lanes(), lane, order)
        assert driver.duty("retire_lane", lane, order) == "retired"
    client.submit([2, 0, CALL, {"lane": OTHER}])

    assert driver.database.hash(driver.keys.lanes())[OTHER] == "1000"


def test_a_new_lane_begins_where_the_others_are(driver: Driver) -> None:
    worker, old, new = driver.worker(1), driver.client(), driver.client()
    old.submit(1000)
    assert numbers(worker.queue()) == [1000]
    new.submit(*([number, 0, CALL, {"lane": OTHER}] for number in range(50)))
    old.submit([1001, 0, CALL, {"lane": OTHER}])

    assert driver.ready(OTHER).index(old.task(1001)) <= 2
