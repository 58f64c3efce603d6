"""submit: large arguments are objects that calls and functions name; their client holds them."""

from __future__ import annotations

import pytest

from support.driver import CALL, Driver, PlayedClient


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


def held(driver: Driver, thing: str) -> bool:
    """Whether the object is there for good."""
    return driver.database.lifetime_ms(driver.keys.object(thing)) == -1


def known(driver: Driver, client: PlayedClient) -> set[str]:
    """The client's tasks."""
    return driver.database.set(driver.keys.client_tasks(client.id))


def test_the_client_holds_what_a_call_names_until_it_releases_it(driver: Driver, client: PlayedClient) -> None:
    one, other = client.object("o1", b"x", b"y"), client.object("o2")
    client.submit([1, 0, CALL, {"objects": [one, other]}], [2, 0, CALL, {"objects": [one]}])

    assert held(driver, one)
    assert driver.database.lifetime_ms(driver.keys.object_chunk(one, "1")) == -1
    assert driver.database.set(driver.keys.holders(one)) == {client.id}
    assert {one, other} < driver.database.set(driver.keys.client_objects(client.id))
    assert known(driver, client) == {client.task(1), client.task(2)}

    client.release(one)
    assert not driver.database.exists(driver.keys.object(one))
    assert not driver.database.exists(driver.keys.object_chunk(one, "1"))
    assert held(driver, other)


def test_the_client_holds_what_a_function_names(driver: Driver, client: PlayedClient) -> None:
    thing = client.object("o1")
    client.submit(1, functions=[[client.function, "partial", [thing]]])

    assert held(driver, thing)
    assert known(driver, client) == {client.task(1)}


def test_tasks_whose_objects_are_gone_are_refused_and_the_others_go_on(driver: Driver, client: PlayedClient) -> None:
    there, gone = client.object("o1"), f"{client.id}.o2-1"
    client.submit([1, 0, CALL, {"objects": [there]}], [2, 0, CALL, {"objects": [there, gone]}], 3)

    (refused,) = client.told("refused")
    assert refused["tasks"] == [2]
    assert refused["reason"].startswith("object: ")
    assert known(driver, client) == {client.task(1), client.task(3)}
    assert gone not in driver.database.set(driver.keys.client_objects(client.id))


def test_a_function_that_names_what_is_gone_runs_no_task(driver: Driver, client: PlayedClient) -> None:
    client.submit(1, functions=[[client.function, "partial", [f"{client.id}.o2-1"]]])

    assert client.told("refused")[0]["tasks"] == [1]
    assert not known(driver, client)


def test_the_object_of_another_client_is_held_by_both(driver: Driver, client: PlayedClient) -> None:
    other = driver.client()
    thing = other.object("o1")
    other.submit([1, 0, CALL, {"objects": [thing]}])
    client.submit([1, 0, CALL, {"objects": [thing]}])
    assert driver.database.set(driver.keys.holders(thing)) == {client.id, other.id}

    other.disconnect(after=1)
    driver.settle()
    assert held(driver, thing)


@pytest.mark.parametrize("objects", [["a b"], [5], ["no-number-"], [f"a.o{n}-1" for n in range(501)]])
def test_ids_that_are_none_and_too_many_are_set_aside(driver: Driver, client: PlayedClient, objects: object) -> None:
    client.submit([1, 0, CALL, {"objects": objects}], 2)

    assert client.told("refused")[0]["tasks"] == [1]
    assert "objects" in driver.quarantine()[0]["reason"]
    assert known(driver, client) == {client.task(2)}


def test_a_refused_row_frees_the_object_of_its_own_call_and_no_other(driver: Driver, client: PlayedClient) -> None:
    other = driver.client()
    own, shared = client.object("c1"), client.object("c2")
    kept = [other.object("c1"), client.object("o1"), client.function, shared]
    driver.database.run("SADD", driver.keys.holders(shared), "somebody")
    client.submit(*([number, 9, None, {"object": thing}] for number, thing in enumerate([own, *kept])))

    assert not driver.database.exists(driver.keys.object(own))
    assert all(driver.database.exists(driver.keys.object(thing)) for thing in kept)
    driver.database.run("DEL", driver.keys.holders(shared))
