"""submit: tasks that need the values of others."""

from __future__ import annotations

from typing import Any

from support.driver import CALL, FAILURE, VALUE, Driver, numbers

# --- dependencies -------------------------------------------------------------------------------------------


def needs(number: int, *dependencies: str) -> list[Any]:
    return [number, 0, CALL, {"dependencies": list(dependencies)}]


def test_a_task_waits_behind_its_dependencies_even_of_the_same_batch(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, needs(3, client.task(1), client.task(2)))

    assert numbers(worker.queue()) == [1, 2]
    assert driver.ready() == []
    assert driver.record(client.task(3))["dependencies"] == "2"
    assert driver.database.set(driver.keys.dependents(client.task(1))) == {client.task(3)}


def test_a_dependency_that_has_succeeded_gives_its_value_at_once(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, needs(3, client.task(1), client.task(2)))
    worker.read(2)
    worker.succeed(client.task(1))
    client.submit(needs(4, client.task(1)))

    (entry,) = [entry for entry in worker.entries() if entry.fields["task"] == client.task(4)]
    assert entry.fields["values"] == f'{{"{client.task(1)}":"{VALUE}"}}'


def test_a_dependency_that_is_gone_is_named_to_the_client_and_nothing_is_left(driver: Driver) -> None:
    client = driver.client()
    large = client.object("c2", b"bytes")
    client.submit(1, [2, 0, None, {"object": large, "size": 5, "dependencies": [client.task(9)]}])

    assert client.told("missing") == [{"tasks": [[2, [client.task(9)]]]}]
    assert driver.record(client.task(2)) == {}
    assert numbers(driver.ready()) == [1]


def test_a_dependency_that_has_failed_fails_the_task_at_once(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(2)
    client.submit(1, 2, 3)
    client.submit(needs(4, client.task(1), client.task(2)))
    worker.read(3)
    driver.database.run("HINCRBY", driver.keys.task(client.task(1)), "users", 1)  # somebody still needs the value
    driver.database.run("HSET", driver.keys.task(client.task(1)), "more", 1)
    worker.fail(client.task(1))
    client.submit(needs(5, client.task(1)))

    assert client.outcome(5).state == "failed"
    assert client.outcome(5).payload == FAILURE
    assert client.outcome(5).because == client.task(1)
    driver.database.run("HSET", driver.keys.task(client.task(1)), "users", 0)
    driver.database.run("DEL", driver.keys.task(client.task(1)), driver.keys.value(client.task(1)))


def test_a_dependency_named_twice_counts_once(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, needs(2, client.task(1), client.task(1)))
    worker.read()
    worker.succeed(client.task(1))

    assert driver.state(client.task(2)) == "running" or client.told("refused")


def test_a_task_cannot_wait_for_itself(driver: Driver) -> None:
    client = driver.client()
    client.submit(needs(1, client.task(1)))

    assert driver.record(client.task(1)) == {}
    assert client.told("missing") or client.told("refused")


def test_a_task_of_another_client_may_be_a_dependency(driver: Driver) -> None:
    client, other = driver.client(), driver.client()
    other.submit(1)
    client.submit(needs(1, other.task(1)))

    assert driver.state(client.task(1)) == "inactive"
    other.cancel(1)
    assert client.outcome(1)[2:] == ("canceled", None, other.task(1))


def test_up_to_64_values_ride_in_the_entry_and_more_are_named(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(10)
    client.submit(*range(1, 66))
    client.submit(
        needs(100, *(client.task(number) for number in range(1, 65))),
        needs(101, *(client.task(number) for number in range(1, 66))),
    )
    while len(worker.queue()) > 2 or driver.state(client.task(100)) == "inactive":
        worker.read(100)
        worker.succeed(*(task for task in worker.queue() if numbers([task]) < [100]), ms=1)
    fields = {entry.fields["task"]: entry.fields for entry in worker.entries()}

    assert fields[client.task(100)]["values"].count(VALUE) == 64
    assert fields[client.task(101)]["needs"].split() == [client.task(number) for number in range(1, 66)]
    assert driver.database.string(driver.keys.value(client.task(65))) == f'"{VALUE}"'


def test_a_task_behind_others_goes_to_nobody_although_there_is_room(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(5)
    client.submit(1, needs(2, client.task(1)), needs(3, client.task(2)), 4)

    assert numbers(worker.queue()) == [1, 4]
    assert driver.ready() == []
