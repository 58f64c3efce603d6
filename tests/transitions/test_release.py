"""release: the last holder's release frees an object."""

from __future__ import annotations

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, Driver, PlayedClient


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    client = driver.client()
    client.submit(1)
    return client


def test_a_released_function_is_gone(driver: Driver, client: PlayedClient) -> None:
    assert client.release(client.function) == "applied"

    assert not driver.database.exists(driver.keys.object(client.function))
    assert not driver.database.exists(driver.keys.holders(client.function))
    assert driver.database.set(driver.keys.client_objects(client.id)) == set()


def test_an_object_that_another_holds_stays(driver: Driver, client: PlayedClient) -> None:
    other = driver.client()
    other.submit(1, functions=[[client.function, "shared"]])
    client.release(client.function)
    assert driver.database.set(driver.keys.holders(client.function)) == {other.id}

    other.release(client.function)
    assert not driver.database.exists(driver.keys.object(client.function))


def test_what_one_does_not_hold_one_cannot_release(driver: Driver, client: PlayedClient) -> None:
    other = driver.client()
    before = driver.snapshot()
    other.release(client.function)

    assert driver.snapshot() == before


def test_what_nobody_holds_yet_one_cannot_release_for_another(driver: Driver, client: PlayedClient) -> None:
    thing = client.object("f9", b"x")
    driver.client().release(thing)

    assert driver.database.exists(driver.keys.object(thing))


def test_a_release_twice_changes_nothing_more(driver: Driver, client: PlayedClient) -> None:
    client.release(client.function)
    before = driver.snapshot()
    client.release(client.function, client.function)

    assert driver.snapshot() == before


def test_a_release_waits_for_the_batch_that_it_needs(driver: Driver, client: PlayedClient) -> None:
    batch = client.body([2])
    driver.send(Request.RELEASE, {"client": client.id, "objects": [client.function], "after": 2})
    (entry,) = driver.read("cancels")
    assert driver.apply_entry("cancels", entry) == "early"
    assert driver.database.exists(driver.keys.object(client.function))

    driver.request(Request.TASKS, batch)
    assert driver.apply_entry("cancels", entry) == "applied"


def test_a_release_of_a_client_that_is_gone_waits_for_nothing(driver: Driver) -> None:
    assert driver.request(Request.RELEASE, {"client": "nobody", "objects": ["a-1"], "after": 3}) == "applied"


@pytest.mark.parametrize("bad", [5, None, "a b", {}, "*", ""])
def test_an_id_that_is_none_is_passed_over(driver: Driver, client: PlayedClient, bad: object) -> None:
    body = {"client": client.id, "objects": [bad, client.function], "after": 0}

    assert driver.request(Request.RELEASE, body) == "applied"
    assert not driver.database.exists(driver.keys.object(client.function))


def test_what_is_held_is_listed_by_size_until_it_is_released(driver: Driver) -> None:
    client = driver.client()
    called = client.object("f8", b"x" * (1 << 20), b"y" * 1234)
    client.submit([1, 0, CALL], functions=[[called, "f"]])
    assert driver.database.zset(driver.keys.objects())[called] == (1 << 20) + 1234

    client.cancel(1)
    client.release(called)

    assert called not in driver.database.zset(driver.keys.objects())
