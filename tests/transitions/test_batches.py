"""Which batch comes when: numbers belong to a registration, and nobody waits for a batch that will never come."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gristmill.protocol.keys import GROUP_SCHEDULERS, Keys
from gristmill.protocol.kinds import VERSION, Request
from support.database import Database, Entry
from support.driver import CALL, Driver, PlayedClient


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


def test_a_batch_of_an_earlier_registration_is_void(driver: Driver, client: PlayedClient) -> None:
    late = client.body([1, 2], registration=1)
    client.register(registration=2)
    before = driver.snapshot()

    assert driver.request(Request.TASKS, late) == "duplicate"
    assert driver.snapshot() == before
    assert driver.counts()["refused:tasks:applied_batch"] == 1


def test_a_void_batch_does_not_use_up_its_number(driver: Driver, client: PlayedClient) -> None:
    client.submit(1)
    late = client.body([2], registration=1, batch=1)
    client.register(registration=2)
    driver.request(Request.TASKS, late)

    assert client.record()["batch"] == "0"
    assert client.submit(3, registration=2) == "applied"
    assert driver.state(client.task(3)) == "inactive"


def test_a_batch_of_a_later_registration_waits_for_it(driver: Driver, client: PlayedClient) -> None:
    driver.send(Request.TASKS, client.body([1], registration=2, batch=1))
    (entry,) = driver.read("submit")
    before = driver.snapshot()
    assert driver.apply_entry("submit", entry) == "early"
    assert driver.snapshot() == before

    client.register(registration=2)
    assert driver.apply_entry("submit", entry) == "applied"
    assert driver.state(client.task(1)) == "inactive"


@pytest.mark.parametrize("registration", [1, None, "two", [], {}], ids=str)
def test_a_batch_of_this_registration_or_of_none_is_applied(client: PlayedClient, registration: Any) -> None:
    assert client.submit(1, registration=registration) == "applied"


def test_a_batch_of_a_later_registration_of_a_client_that_has_ended_waits_for_nothing(
    driver: Driver, client: PlayedClient
) -> None:
    client.disconnect()
    driver.settle()

    assert client.submit(1, registration=2) == "unknown"


# --- a client that has ended --------------------------------------------------------------------------------

NEVER = 1000
"""A batch that was never sent."""


@pytest.fixture
def ended(driver: Driver, client: PlayedClient) -> PlayedClient:
    """A client that has disconnected; its record is still there."""
    client.submit(1)
    client.disconnect()
    driver.settle()
    assert "ended" in client.record()
    return client


def test_a_cancel_of_a_client_that_has_ended_waits_for_nothing(ended: PlayedClient) -> None:
    assert ended.cancel(1, after=NEVER) == "applied"


def test_a_release_of_a_client_that_has_ended_waits_for_nothing(ended: PlayedClient) -> None:
    assert ended.release(ended.function, after=NEVER) == "applied"


def test_a_second_disconnect_of_a_client_waits_for_nothing(ended: PlayedClient) -> None:
    assert ended.disconnect(after=NEVER) == "applied"


def test_a_batch_of_a_client_that_has_ended_waits_for_nothing(ended: PlayedClient) -> None:
    assert ended.submit(2, after=NEVER) == "unknown"


def test_what_waited_when_the_client_ended_waits_no_longer(driver: Driver, client: PlayedClient) -> None:
    driver.send(Request.CANCEL, {"client": client.id, "tasks": [client.task(1)], "after": NEVER, "reason": ""})
    driver.send(Request.RELEASE, {"client": client.id, "objects": [], "after": NEVER})
    driver.send(Request.DISCONNECT, {"client": client.id, "after": NEVER})
    waiting = driver.read("cancels")
    assert [driver.apply_entry("cancels", entry) for entry in waiting] == ["early"] * 3

    driver.request(Request.END_CLIENT, {"client": client.id})
    assert [driver.apply_entry("cancels", entry) for entry in waiting] == ["applied"] * 3


# --- a batch that does not exist ----------------------------------------------------------------------------


def sent_a_minute_ago(driver: Driver, stream: str, kind: Request, body: dict[str, Any]) -> Entry:
    """A request as the first of its stream, read and not applied."""
    key = getattr(driver.keys, stream)()
    text = json.dumps({"version": VERSION, **body})
    driver.database.run("XADD", key, f"{driver.now_ms() - 61_000}-0", kind.value, text)
    (entry,) = driver.read(stream)
    return entry


def test_a_request_behind_a_batch_that_does_not_exist_does_not_wait_for_ever(
    driver: Driver, client: PlayedClient
) -> None:
    body = {"client": client.id, "tasks": [client.task(1)], "after": NEVER, "reason": ""}
    waiting = sent_a_minute_ago(driver, "cancels", Request.CANCEL, body)

    assert driver.apply_entry("cancels", waiting) == "applied"
    assert client.told("unknown") == [{"tasks": [1]}]


def test_a_part_of_what_a_task_needs_behind_one_that_does_not_exist_does_not_wait_for_ever(
    driver: Driver, client: PlayedClient
) -> None:
    client.submit(1, [9, 0, CALL, {"dependencies": [client.task(1)], "incomplete": True}])
    driver.database.run("DEL", driver.keys.submit())
    driver.database.run("XGROUP", "CREATE", driver.keys.submit(), GROUP_SCHEDULERS, "0", "MKSTREAM")
    body = {"client": client.id, "task": client.task(9), "part": 2, "last": True, "dependencies": [], "after": 0}
    waiting = sent_a_minute_ago(driver, "submit", Request.DEPEND, body)

    assert driver.apply_entry("submit", waiting) == "applied"
    assert driver.counts()["stale:depend"] == 1
    assert client.depend(9) == "applied"


@pytest.fixture
def old_client(driver: Driver, keys: Keys, database: Database) -> PlayedClient:
    """A client that registered so long ago that nothing in `submit` tells of it."""
    client = PlayedClient(driver)
    key = keys.client(client.id)
    database.run("HSET", key, "registration", 1, "batch", 0, "last", -1, "lease_ms", 120_000, "registered", 1)
    database.run("ZADD", keys.clients(), 120_000, client.id)
    database.run("XADD", keys.client_inbox(client.id), "*", "registered", "{}")
    return client


def test_while_batches_of_that_time_are_unread_it_waits(driver: Driver, old_client: PlayedClient) -> None:
    client = old_client
    body = {"client": client.id, "tasks": [client.task(1)], "after": 1, "reason": ""}
    waiting = sent_a_minute_ago(driver, "cancels", Request.CANCEL, body)
    driver.send(Request.TASKS, client.body([1]))
    assert driver.apply_entry("cancels", waiting) == "early"

    driver.settle()
    assert driver.words[-2:] == [("tasks", "applied"), ("cancel", "applied")]
    assert client.outcome(1).state == "canceled"


def test_a_batch_of_a_registration_that_does_not_exist_is_dropped_in_the_end(
    driver: Driver, old_client: PlayedClient
) -> None:
    waiting = sent_a_minute_ago(driver, "submit", Request.TASKS, old_client.body([1], registration=9))

    assert driver.apply_entry("submit", waiting) == "unknown"
    assert driver.state(old_client.task(1)) == ""


@pytest.mark.parametrize("lost", ["stream", "group"])
def test_when_nobody_can_tell_what_was_sent_it_does_not_wait(
    driver: Driver, old_client: PlayedClient, lost: str
) -> None:
    body = {"client": old_client.id, "tasks": [old_client.task(1)], "after": 1, "reason": ""}
    waiting = sent_a_minute_ago(driver, "cancels", Request.CANCEL, body)
    stream = driver.keys.submit()
    driver.database.run(*(("DEL", stream) if lost == "stream" else ("XGROUP", "DESTROY", stream, "schedulers")))

    assert driver.apply_entry("cancels", waiting) == "applied"
    driver.database.run("XGROUP", "CREATE", stream, "schedulers", "0", "MKSTREAM")
