"""The allocation policy even_load: capabilities do not count, but for the Python version."""

from __future__ import annotations

import pytest

from support.driver import CALL, LANE, Driver, PlayedClient, numbers

GPU = f"gpu,{LANE}"


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


def set_allocation(driver: Driver, policy: str) -> None:
    driver.database.run("HSET", driver.keys.namespace_facts(), "allocation", policy)


def test_a_task_that_asks_for_more_runs_anywhere(driver: Driver, client: PlayedClient) -> None:
    set_allocation(driver, "even_load")
    worker = driver.worker(1)
    client.submit([1, 0, CALL, {"lane": GPU}], 2)

    assert numbers(worker.queue()) == [1, 2]
    assert driver.record(client.task(1))["lane"] == LANE
    assert set(driver.database.hash(driver.keys.lanes())) == {LANE}


def test_what_waits_keeps_its_order_in_the_one_lane(driver: Driver, client: PlayedClient) -> None:
    set_allocation(driver, "even_load")
    client.submit(1, [2, 0, CALL, {"lane": GPU}], 3, [4, 0, CALL, {"lane": GPU, "priority": 1}])

    assert numbers(driver.ready()) == [4, 1, 2, 3]


@pytest.mark.parametrize("policy", ["capability", ""])
def test_under_another_policy_it_waits_for_a_worker_that_can(driver: Driver, client: PlayedClient, policy: str) -> None:
    if policy:
        set_allocation(driver, policy)
    worker = driver.worker(2)
    client.submit([1, 0, CALL, {"lane": GPU}], 2)

    assert numbers(worker.queue()) == [2]
    assert numbers(driver.ready(GPU)) == [1]


def test_a_lane_that_is_none_is_refused_all_the_same(driver: Driver, client: PlayedClient) -> None:
    set_allocation(driver, "even_load")
    client.submit([1, 0, CALL, {"lane": "a b"}])

    assert len(driver.quarantine()) == 1
