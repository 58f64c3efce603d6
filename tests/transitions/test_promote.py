"""promote: retries that are due go to their lanes."""

from __future__ import annotations

from support.driver import CALL, Driver, PlayedClient, numbers


def delayed(driver: Driver, count: int = 1) -> PlayedClient:
    client, worker = driver.client(), driver.worker(count)
    client.submit(*([number, 0, CALL, {"retries": 1, "retry_delay_ms": 60_000}] for number in range(1, count + 1)))
    worker.read(count)
    worker.retry(*(client.task(number) for number in range(1, count + 1)))
    worker.drain()
    return client


def test_a_retry_that_is_not_due_stays(driver: Driver) -> None:
    delayed(driver)
    before = driver.snapshot()

    assert driver.duty("promote") == "promoted"
    assert driver.snapshot() == before


def test_a_retry_that_is_due_goes_to_its_place_in_its_lane(driver: Driver) -> None:
    client = delayed(driver)
    client.submit(2)
    driver.database.run("ZADD", driver.keys.delayed(), 1, client.task(1))
    driver.duty("promote")

    assert numbers(driver.ready()) == [1, 2]
    assert driver.database.zset(driver.keys.delayed()) == {}


def test_a_retry_that_is_due_goes_straight_to_a_worker_with_room(driver: Driver) -> None:
    client = delayed(driver)
    worker = driver.worker(1)
    driver.database.run("ZADD", driver.keys.delayed(), 1, client.task(1))
    driver.duty("promote")

    assert worker.queue() == [client.task(1)]
    assert driver.record(client.task(1))["attempt"] == "2"


def test_a_retry_whose_record_is_gone_is_dropped(driver: Driver) -> None:
    driver.database.run("ZADD", driver.keys.delayed(), 1, "nobody.0000001")
    driver.duty("promote")

    assert driver.database.zset(driver.keys.delayed()) == {}
    assert driver.ready() == []


def test_many_are_promoted_in_slices(driver: Driver) -> None:
    client = delayed(driver, 90)
    for number in range(1, 91):
        driver.database.run("ZADD", driver.keys.delayed(), 1, client.task(number))
    driver.duty("promote")

    assert len(driver.ready()) == 90
