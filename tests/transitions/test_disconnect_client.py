"""disconnect_client: a client goes; the clearing is left to the next slice."""

from __future__ import annotations

from gristmill.protocol.kinds import Request
from support.driver import Driver


def test_its_tasks_are_cancelled_and_its_objects_freed(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, 2, 3)

    assert client.disconnect() == "applied"
    driver.settle()
    assert driver.counts()["state:canceled"] == 3
    assert not driver.database.exists(driver.keys.object(client.function))
    assert driver.database.keys(driver.keys.task("")) == []


def test_it_waits_for_the_batch_that_it_needs(driver: Driver) -> None:
    client = driver.client()
    batch = client.body([1])
    driver.send(Request.DISCONNECT, {"client": client.id, "after": 1})
    (entry,) = driver.read("cancels")
    assert driver.apply_entry("cancels", entry) == "early"

    driver.request(Request.TASKS, batch)
    assert driver.apply_entry("cancels", entry) == "applied"
    driver.settle()
    assert driver.state(client.task(1)) == ""


def test_a_client_that_is_gone_waits_for_nothing(driver: Driver) -> None:
    assert driver.request(Request.DISCONNECT, {"client": "nobody", "after": 7}) == "applied"


def test_disconnecting_twice_changes_nothing_more(driver: Driver) -> None:
    client = driver.client()
    client.disconnect()
    driver.settle()
    before = driver.snapshot()
    client.disconnect()
    driver.settle()

    assert driver.snapshot().keys() == before.keys()
