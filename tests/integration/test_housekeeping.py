"""Housekeeping walks over a whole namespace, finds what is left over, and leaves everything else alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gristmill.protocol.keys import GROUP_SCHEDULERS, Keys
from gristmill.protocol.kinds import Request
from gristmill.scheduler import housekeeping
from gristmill.scheduler.controller import Replica
from gristmill.scheduler.housekeeping import Survey
from gristmill.settings import SchedulerSettings
from gristmill.store.connection import Connection
from gristmill.transitions import Scripts
from support.database import Database
from support.driver import CALL, Driver


@pytest.fixture
def driver(database: Database, keys: Keys) -> Iterator[Driver]:
    driver = Driver(database, keys)
    yield driver
    driver.close()


@pytest.fixture
def replica(database: Database, keys: Keys) -> Iterator[Replica]:
    connection = Connection(database.address)
    connection.connect()
    settings = SchedulerSettings(redis=database.address, namespace=keys.namespace)
    yield Replica("replica", settings, keys, Scripts(keys), connection)
    connection.close()


def walk(survey: Survey, replica: Replica) -> None:
    """One whole pass, sets and streams included."""
    survey.step(replica)
    while survey._cursor != b"0":
        survey.step(replica)
    while survey._walks:
        survey._walk(replica, *survey._walks.popleft())


def repairs(driver: Driver) -> dict[str, int]:
    return {name.partition(":")[2]: n for name, n in driver.counts().items() if name.startswith("repaired:")}


def test_a_namespace_in_order_is_left_alone(driver: Driver, replica: Replica) -> None:
    client, worker = driver.client(), driver.worker(2)
    for first in range(0, 1000, 100):
        client.submit(*range(first, first + 100))
    client.submit([1000, 0, CALL, {"dependencies": [client.task(3)]}])
    worker.read(2)
    before = driver.snapshot()
    walk(Survey(), replica)

    assert driver.snapshot() == before
    assert repairs(driver) == {}


def test_gauges_are_put_right_when_nothing_has_moved(driver: Driver, replica: Replica, database: Database) -> None:
    client = driver.client()
    client.submit(1, 2, 3)
    database.run("HINCRBY", driver.keys.counts(), "state:inactive", 5)
    database.run("HINCRBY", driver.keys.counts(), "state:canceling", -2)
    walk(Survey(), replica)

    assert driver.counts()["state:inactive"] == 3
    assert "state:canceling" not in driver.counts()


def test_a_request_that_was_deleted_by_hand_is_forgotten(driver: Driver, replica: Replica, database: Database) -> None:
    sent = driver.send(Request.CANCEL, {"client": "", "tasks": []})
    driver.read("cancels")
    database.run("XDEL", driver.keys.cancels(), sent)
    walk(Survey(), replica)

    assert database.pending(driver.keys.cancels(), GROUP_SCHEDULERS) == []
    assert repairs(driver) == {"request": 1}


def test_a_key_of_another_type_than_its_name_says_stops_nothing(
    driver: Driver, replica: Replica, database: Database
) -> None:
    client = driver.client()
    client.submit(1)
    database.run("DEL", driver.keys.ready("python3.11"))
    odd = [driver.keys.task("abc.0000001"), driver.keys.client("abc"), driver.keys.worker_tasks("x|1||y")]
    for key in odd:
        database.run("SET", key, "text")
    walk(Survey(), replica)

    assert driver.ready() == [client.task(1)]
    database.run("DEL", *odd)


def test_bytes_that_are_no_text_stop_nothing(driver: Driver, replica: Replica, database: Database) -> None:
    client = driver.client()
    client.submit(1)
    database.run("DEL", driver.keys.ready("python3.11"))
    database.run("SADD", driver.keys.client_tasks(client.id), b"\xff")
    database.run("HSET", driver.keys.task("abc.0000001"), "state", b"\xff")
    walk(Survey(), replica)

    assert driver.ready() == [client.task(1)]
    database.run("SREM", driver.keys.client_tasks(client.id), b"\xff")
    database.run("DEL", driver.keys.task("abc.0000001"))


@pytest.mark.parametrize("kind", ["client", "worker"])
def test_what_belongs_to_one_without_a_record_is_cleared_up_when_it_stays_away(
    driver: Driver, replica: Replica, database: Database, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read()
    owner = client.id if kind == "client" else worker.id
    database.run("DEL", getattr(driver.keys, kind)(owner))
    if kind == "worker":
        database.run("DEL", driver.keys.load("python3.11"))
    database.run("ZREM", getattr(driver.keys, kind + "s")(), owner)
    survey = Survey()
    walk(survey, replica)
    first = repairs(driver)
    assert f"{kind}_gone" not in first or kind == "worker"  # its tasks say so at once
    monkeypatch.setitem(housekeeping.MISSING_SECONDS, kind, 0.0)
    walk(survey, replica)
    driver.settle()

    assert repairs(driver)[f"{kind}_gone"] >= 1
    if kind == "client":
        assert [body["task"] for body in worker.asked("cancel")] == [client.task(1)]
        worker.confirm(client.task(1), "canceled")
        assert not [key for key in database.keys(driver.keys.prefix) if client.id in key and "object" not in key]
    else:
        assert driver.ready() == [client.task(1), client.task(2)]
        assert not database.exists(driver.keys.worker_tasks(worker.id))


def test_a_client_whose_kept_tasks_outlive_it_is_not_missing(
    driver: Driver, replica: Replica, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"keep_ms": 60_000}])
    worker.read()
    worker.succeed(client.task(1))
    client.disconnect(after=1)
    driver.settle()
    database.run("DEL", driver.keys.client(client.id))
    monkeypatch.setitem(housekeeping.MISSING_SECONDS, "client", 0.0)
    survey = Survey()
    for _ in range(2):
        walk(survey, replica)

    assert repairs(driver) == {}
