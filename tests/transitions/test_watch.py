"""watch and keep: a detached task outlives its client, and whoever knows its id is told how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, VALUE, Driver, PlayedClient, PlayedWorker
from support.waiting import wait_until

KEEP: dict[str, Any] = {"keep_ms": 60_000}


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


@pytest.fixture
def other(driver: Driver) -> PlayedClient:
    return driver.client()


def watch(driver: Driver, client: PlayedClient, task: str) -> str:
    return driver.request(Request.WATCH, {"client": client.id, "task": task})


@pytest.fixture
def worker(driver: Driver) -> PlayedWorker:
    return driver.worker(processors=4)


def run(worker: PlayedWorker, *tasks: str, **changes: Any) -> None:
    """The worker reads these tasks and returns a value from each."""
    worker.read(len(tasks))
    worker.succeed(*tasks, **changes)


def test_a_kept_outcome_is_told_to_whoever_asks_as_long_as_it_is_kept(
    driver: Driver, worker: PlayedWorker, client: PlayedClient, other: PlayedClient
) -> None:
    client.submit([1, 0, CALL, KEEP])
    run(worker, client.task(1))
    for _ in range(2):
        watch(driver, other, client.task(1))

    assert client.outcome(1).payload == VALUE
    told = other.told("watched")
    assert [one["row"][:4] for one in told] == [[1, 1, "success", VALUE]] * 2
    assert told[0]["worker"].startswith("here|1|")
    assert 0 < driver.database.lifetime_ms(driver.keys.task(client.task(1))) <= 60_000
    assert 0 < driver.database.lifetime_ms(driver.keys.value(client.task(1))) <= 60_000


def test_who_asks_before_the_end_is_told_at_the_end(
    driver: Driver, worker: PlayedWorker, client: PlayedClient, other: PlayedClient
) -> None:
    client.submit([1, 0, CALL, KEEP], 2)
    for number in (1, 1, 2):
        watch(driver, other, client.task(number))
    assert other.told("watched") == []
    run(worker, client.task(1), client.task(2))

    assert [(one["task"], one["row"][2]) for one in other.told("watched")] == [
        (client.task(1), "success"),
        (client.task(2), "success"),
    ]


def test_expired_and_unknown_are_different_answers(
    driver: Driver, worker: PlayedWorker, client: PlayedClient, other: PlayedClient
) -> None:
    client.submit([1, 0, CALL, KEEP], 2)
    run(worker, client.task(1), client.task(2))
    driver.database.run("DEL", driver.keys.task(client.task(1)), driver.keys.value(client.task(1)))
    for task in (client.task(1), client.task(2), client.task(3), "nobody.0000001"):
        watch(driver, other, task)

    assert [one["gone"] for one in other.told("watched")] == ["expired", "expired", "unknown", "unknown"]


def test_a_client_that_left_kept_tasks_is_remembered_for_a_week(driver: Driver, client: PlayedClient) -> None:
    client.submit([1, 0, CALL, KEEP])
    client.disconnect(after=1)
    driver.settle()
    assert driver.record(client.task(1))["state"] == "inactive"
    assert 6 * 86_400_000 < driver.database.lifetime_ms(driver.keys.client(client.id)) <= 7 * 86_400_000

    plain = driver.client()
    plain.submit(1)
    plain.disconnect(after=1)
    driver.settle()
    assert driver.record(plain.task(1)) == {}
    assert driver.database.lifetime_ms(driver.keys.client(plain.id)) <= 600_000


def test_a_detached_task_holds_what_it_needs_until_it_ends(
    driver: Driver, worker: PlayedWorker, client: PlayedClient
) -> None:
    things = [client.object("o1"), client.object("o2")]
    functions = [[client.function, "partial", [things[1]]]]
    client.submit([1, 0, CALL, {**KEEP, "objects": things[:1]}], functions=functions)
    client.disconnect(after=1)
    driver.settle()
    for thing in (*things, client.function):
        assert driver.database.set(driver.keys.holders(thing)) == {client.task(1)}

    run(worker, client.task(1))
    for thing in (*things, client.function):
        assert not driver.database.exists(driver.keys.object(thing))


def test_a_large_value_is_kept_as_long_as_its_outcome(
    driver: Driver, worker: PlayedWorker, client: PlayedClient, other: PlayedClient
) -> None:
    client.submit([1, 0, CALL, KEEP])
    thing = client.object("0000001.1", b"x", b"y")
    run(worker, client.task(1), payload={"object": thing, "size": 2})
    watch(driver, other, client.task(1))

    assert other.told("watched")[0]["row"][3] == {"object": thing, "size": 2}
    assert driver.database.set(driver.keys.holders(thing)) == {client.task(1)}
    for key in (driver.keys.object(thing), driver.keys.object_chunk(thing, "1"), driver.keys.holders(thing)):
        assert 0 < driver.database.lifetime_ms(key) <= 60_000


def test_a_large_value_that_is_not_kept_is_held_by_all_who_wait(
    driver: Driver, worker: PlayedWorker, client: PlayedClient, other: PlayedClient
) -> None:
    client.submit(1)
    watch(driver, other, client.task(1))
    thing = client.object("0000001.1", b"x")
    run(worker, client.task(1), payload={"object": thing, "size": 1})

    assert driver.database.set(driver.keys.holders(thing)) == {client.id, other.id}
    client.release(thing)
    assert driver.database.exists(driver.keys.object(thing))
    other.release(thing)
    assert not driver.database.exists(driver.keys.object(thing))


def test_its_time_begins_when_no_dependent_needs_it(driver: Driver, worker: PlayedWorker, client: PlayedClient) -> None:
    client.submit([1, 0, CALL, KEEP], [2, 0, CALL, {"dependencies": [client.task(1)]}])
    run(worker, client.task(1))
    assert driver.database.lifetime_ms(driver.keys.task(client.task(1))) == -1

    run(worker, client.task(2))
    assert 0 < driver.database.lifetime_ms(driver.keys.task(client.task(1))) <= 60_000
    assert client.outcome(2).state == "success"


def test_a_task_that_may_be_on_its_way_is_waited_for(driver: Driver, client: PlayedClient, other: PlayedClient) -> None:
    driver.send(Request.TASKS, client.body([[1, 0, CALL, KEEP]]))
    driver.send(Request.WATCH, {"client": other.id, "task": client.task(1)})
    (batch,) = driver.read("submit")
    (question,) = driver.read("cancels")
    assert driver.apply_entry("cancels", question) == "early"

    assert driver.apply_entry("submit", batch) == "applied"
    assert driver.apply_entry("cancels", question) == "applied"
    assert other.told("watched") == []


def test_of_a_task_that_has_come_nobody_waits_for_other_batches(
    driver: Driver, client: PlayedClient, other: PlayedClient
) -> None:
    client.submit(1)
    client.cancel(1)
    driver.send(Request.TASKS, other.body([1]))
    driver.send(Request.WATCH, {"client": other.id, "task": client.task(1)})
    (question,) = driver.read("cancels")

    assert driver.apply_entry("cancels", question) == "applied"
    assert other.told("watched") == [{"task": client.task(1), "gone": "expired"}]


def test_a_detached_task_is_known_when_its_client_is_not_any_more(
    driver: Driver, client: PlayedClient, other: PlayedClient
) -> None:
    client.submit([1, 0, CALL, KEEP])
    last = client.record()["last"]
    driver.database.run("HDEL", driver.keys.client(client.id), "last")
    driver.send(Request.TASKS, other.body([1]))
    driver.send(Request.WATCH, {"client": other.id, "task": client.task(1)})
    (question,) = driver.read("cancels")

    assert driver.apply_entry("cancels", question) == "applied"
    driver.database.run("HSET", driver.keys.client(client.id), "last", last)


def test_what_comes_after_the_question_does_not_hold_it_up(
    driver: Driver, client: PlayedClient, other: PlayedClient
) -> None:
    driver.send(Request.WATCH, {"client": other.id, "task": client.task(1)})
    (question,) = driver.read("cancels")
    wait_until(lambda: driver.now_ms() > int(question.id.partition("-")[0]), "the clock goes on")
    driver.send(Request.TASKS, other.body([1]))

    assert driver.apply_entry("cancels", question) == "applied"
    assert other.told("watched") == [{"task": client.task(1), "gone": "unknown"}]


def test_nobody_waits_for_ever_for_a_batch_that_nobody_applies(
    driver: Driver, client: PlayedClient, other: PlayedClient
) -> None:
    now = driver.now_ms()
    entries = {
        driver.keys.submit(): (now - 20_000, "tasks", client.body([1])),
        driver.keys.cancels(): (now - 11_000, "watch", {"version": 1, "client": other.id, "task": client.task(1)}),
    }
    for stream, (at, kind, body) in entries.items():
        driver.database.run("DEL", stream)
        driver.database.run("XADD", stream, f"{at}-0", kind, json.dumps({"version": 1, **body}))
        driver.database.run("XGROUP", "CREATE", stream, "schedulers", "0")
    (question,) = driver.read("cancels")

    assert driver.apply_entry("cancels", question) == "applied"
    assert other.told("watched") == [{"task": client.task(1), "gone": "unknown"}]


def test_several_may_wait_for_one_task(
    driver: Driver, worker: PlayedWorker, client: PlayedClient, other: PlayedClient
) -> None:
    third = driver.client()
    client.submit(1)
    for one in (other, third):
        watch(driver, one, client.task(1))
    run(worker, client.task(1))

    assert [one.told("watched")[0].get("row", [])[2:3] for one in (other, third)] == [["success"], ["success"]]


def test_very_many_may_not(driver: Driver, client: PlayedClient, other: PlayedClient) -> None:
    client.submit(1)
    driver.database.run("HSET", driver.keys.task(client.task(1)), "watchers", "x" * 22_001)
    watch(driver, other, client.task(1))

    assert other.told("watched") == [{"task": client.task(1), "gone": "crowded"}]
    driver.database.run("HDEL", driver.keys.task(client.task(1)), "watchers")


def test_a_cancel_by_a_person_ends_a_detached_task(driver: Driver, client: PlayedClient, other: PlayedClient) -> None:
    client.submit([1, 0, CALL, KEEP])
    watch(driver, other, client.task(1))
    driver.request(Request.CANCEL, {"tasks": [client.task(1)], "client": "", "after": 0, "reason": "not needed"})

    assert other.told("watched")[0]["row"][2] == "canceled"


@pytest.mark.parametrize("task", ["", "a b", "no-number", 5, "a.b.c", None])
def test_what_is_no_task_is_set_aside(driver: Driver, client: PlayedClient, task: object) -> None:
    assert driver.request(Request.WATCH, {"client": client.id, "task": task}) == "malformed"


@pytest.mark.parametrize("large", [False, True])
def test_a_kept_value_does_not_expire_under_a_task_that_needs_it(
    driver: Driver, worker: PlayedWorker, client: PlayedClient, other: PlayedClient, large: bool
) -> None:
    client.submit([1, 0, CALL, KEEP])
    thing = client.object("0000001.1", b"x", b"y")
    run(worker, client.task(1), payload={"object": thing, "size": 2} if large else VALUE)
    keys = driver.keys
    expiring = [keys.task(client.task(1)), keys.value(client.task(1))]
    expiring += [keys.holders(thing), keys.object(thing), keys.object_chunk(thing, "1")] if large else []
    assert all(driver.database.lifetime_ms(key) > 0 for key in expiring)
    other.submit([1, 0, CALL, {"dependencies": [client.task(1)]}])
    assert {driver.database.lifetime_ms(key) for key in expiring} == {-1}
    assert (thing in driver.database.zset(keys.objects())) == large

    run(worker, other.task(1))
    assert all(0 < driver.database.lifetime_ms(key) <= 60_000 for key in expiring)


def test_who_waits_for_a_large_value_that_is_kept_does_not_hold_it(
    driver: Driver, worker: PlayedWorker, client: PlayedClient, other: PlayedClient
) -> None:
    client.submit([1, 0, CALL, KEEP])
    watch(driver, other, client.task(1))
    thing = client.object("0000001.1", b"x")
    run(worker, client.task(1), payload={"object": thing, "size": 1})

    assert other.told("watched")[0]["row"][3] == {"object": thing, "size": 1}
    assert driver.database.set(driver.keys.holders(thing)) == {client.task(1)}
    assert thing not in driver.database.set(driver.keys.client_objects(other.id))


def test_a_watcher_that_has_gone_holds_nothing(
    driver: Driver, worker: PlayedWorker, client: PlayedClient, other: PlayedClient
) -> None:
    client.submit(1)
    watch(driver, other, client.task(1))
    other.disconnect()
    driver.settle()
    thing = client.object("0000001.1", b"x")
    run(worker, client.task(1), payload={"object": thing, "size": 1})

    assert driver.database.set(driver.keys.holders(thing)) == {client.id}
    assert not driver.database.exists(driver.keys.client_objects(other.id))
