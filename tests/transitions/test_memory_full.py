"""When Redis is full, what is in still drains: every script of a request is allowed to run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import Request
from support.database import Database
from support.driver import CALL, Driver
from support.invariants import check_invariants
from support.server import RedisServer


@pytest.fixture
def driver(own_server: RedisServer, keys: Keys) -> Iterator[Driver]:
    database = Database(own_server.address)
    driver = Driver(database, keys)
    yield driver
    database.run("CONFIG", "SET", "maxmemory", "0")
    driver.settle()
    driver.close()
    check_invariants(database, keys)
    database.close()


def fill(driver: Driver) -> None:
    """From now on Redis refuses every command that needs memory."""
    driver.database.run("CONFIG", "SET", "maxmemory", "1")


def refuses(driver: Driver) -> bool:
    try:
        driver.database.run("SET", "x", "x")
    except Exception as error:
        return "OOM" in str(error) or "maxmemory" in str(error)
    return False


def test_a_full_redis_refuses_plain_writes(driver: Driver) -> None:
    fill(driver)

    assert refuses(driver)


def test_outcomes_that_are_in_end_their_tasks(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)
    worker.read(2)
    driver.send(Request.OUTCOMES, {"worker": worker.id, "outcomes": [worker.row(client.task(1))]})
    entries = driver.read("results")
    fill(driver)

    assert driver.apply_entry("results", entries[0]) == "applied"
    assert client.outcome(1).state == "success"
    assert len(worker.queue()) == 2


def test_a_batch_that_is_in_is_applied_whole(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    driver.send(Request.TASKS, client.body([*range(1, 20), [20, 0, CALL, {"dependencies": [client.task(1)]}]]))
    entries = driver.read("submit")
    fill(driver)

    assert driver.apply_entry("submit", entries[0]) == "applied"
    assert len(worker.queue()) + len(driver.ready()) == 19
    assert driver.state(client.task(20)) == "inactive"


def test_cancels_beats_and_ends_that_are_in_are_applied(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)
    worker.read()
    driver.send(Request.CANCEL, {"client": client.id, "tasks": [client.task(3)], "after": 0, "reason": ""})
    driver.send(Request.BEAT, {"worker": worker.id, "processors_ready": 2})
    driver.send(Request.CLIENT_BEAT, {"client": client.id})
    driver.send(Request.END_WORKER, {"worker": worker.id, "reason": "expired"})
    driver.send(Request.DISCONNECT, {"client": client.id, "after": 0})
    waiting = [(name, entry) for name in ("cancels", "heartbeats", "continued") for entry in driver.read(name)]
    fill(driver)

    assert [driver.apply_entry(name, entry) for name, entry in waiting] == ["applied"] * 5
    assert client.outcome(3).state == "canceled"


def test_rubbish_that_is_in_is_set_aside(driver: Driver) -> None:
    driver.send(Request.TASKS, b"{")
    entries = driver.read("submit")
    fill(driver)

    assert driver.apply_entry("submit", entries[0]) == "malformed"
    assert len(driver.quarantine()) == 1


def test_duties_run_or_are_refused_whole(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)
    before = driver.snapshot()
    fill(driver)
    for name, arguments in (("promote", ()), ("dispatch_waiting", ("python3.11",)), ("balance", ("python3.11",))):
        driver.duty(name, *arguments)

    assert driver.snapshot() == before
    assert len(worker.queue()) == 2


def test_while_no_heartbeat_is_taken_nobody_expires(driver: Driver) -> None:
    worker, client = driver.worker(1, lease_ms=1_000), driver.client(lease_ms=1_000)
    clock = driver.keys.clock()
    driver.duty("sweep", 1000)
    driver.database.run("HSET", clock, "observed", 1_500)
    driver.database.run("HSET", clock, "swept", driver.now_ms() - 900)
    fill(driver)

    for _ in range(3):
        assert driver.duty("sweep", 1000) == "swept"

    assert driver.database.hash(clock)["observed"] == "1500"
    assert driver.now_ms() - int(driver.database.hash(clock)["swept"]) < 900
    assert "gone" not in worker.record()
    assert "ended" not in client.record()
