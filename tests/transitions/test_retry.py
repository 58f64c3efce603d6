"""retry: a retry that waits its time runs now, when a person says so."""

from __future__ import annotations

from gristmill.protocol.kinds import Request
from support.driver import CALL, Driver, PlayedClient, numbers


def waiting(driver: Driver) -> PlayedClient:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"retries": 1, "retry_delay_ms": 60_000}])
    worker.read(1)
    worker.retry(client.task(1))
    worker.drain()
    return client


def test_it_goes_to_its_lane_and_the_audit_says_who_and_why(driver: Driver) -> None:
    client = waiting(driver)

    assert driver.request(Request.RETRY, {"task": client.task(1), "by": "ada", "reason": "mended"}) == "applied"
    assert numbers(driver.ready()) == [1]
    assert driver.database.zset(driver.keys.delayed()) == {}
    (order,) = driver.audit()
    assert order == {"action": "retry", "target": client.task(1), "by": "ada", "reason": "mended", "answer": "applied"}


def test_it_is_assigned_at_once_when_a_worker_has_room(driver: Driver) -> None:
    client = waiting(driver)
    worker = driver.worker(1)

    driver.request(Request.RETRY, {"task": client.task(1), "by": "ada"})

    assert worker.queue() == [client.task(1)]


def test_a_second_one_changes_nothing_but_the_audit(driver: Driver) -> None:
    client = waiting(driver)
    driver.request(Request.RETRY, {"task": client.task(1), "by": "ada"})

    assert driver.request(Request.RETRY, {"task": client.task(1), "by": "ada"}) == "unknown"
    assert numbers(driver.ready()) == [1]
    assert [order["answer"] for order in driver.audit()] == ["applied", "it does not wait for an attempt"]


def test_a_task_whose_record_was_lost_goes_nowhere(driver: Driver) -> None:
    driver.database.run("ZADD", driver.keys.delayed(), "1e15", "nobody.0000001")

    assert driver.request(Request.RETRY, {"task": "nobody.0000001", "by": "ada"}) == "applied"
    assert driver.database.zset(driver.keys.delayed()) == {}
    assert driver.ready() == []


def test_a_task_that_runs_goes_on(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)

    assert driver.request(Request.RETRY, {"task": client.task(1), "by": "ada"}) == "unknown"
    assert worker.queue() == [client.task(1)]


def test_without_a_person_it_is_refused(driver: Driver) -> None:
    client = waiting(driver)

    assert driver.request(Request.RETRY, {"task": client.task(1)}) == "malformed"
    assert driver.ready() == []
