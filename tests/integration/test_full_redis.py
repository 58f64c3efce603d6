"""A scheduler that starts while Redis is full applies what is in, closes the intake, and goes on when there is room."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from gristmill.owner import OWNER_VARIABLE, Lifeline
from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import Request
from support.database import Database
from support.driver import LANE, Driver, PlayedClient
from support.invariants import wait_for_invariants
from support.server import RedisServer
from support.waiting import wait_until


class SchedulerProcess:
    """`python -m gristmill.scheduler`; it ends with the tests, however they end."""

    def __init__(self, address: str, namespace: str, folder: Path) -> None:
        self.log_path = folder / "scheduler.log"
        self.lifeline = Lifeline()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gristmill.scheduler", "--redis", address, "--namespace", namespace],
                env={**os.environ, OWNER_VARIABLE: str(self.lifeline.descriptor)}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=folder, pass_fds=(self.lifeline.descriptor,),
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.lifeline.cut()


@pytest.fixture
def full_database(own_server: RedisServer) -> Iterator[Database]:
    database = Database(own_server.address)
    yield database
    database.close()


@pytest.fixture
def driver(full_database: Database, keys: Keys) -> Iterator[Driver]:
    driver = Driver(full_database, keys)
    yield driver
    driver.close()


@pytest.fixture
def client(driver: Driver, full_database: Database) -> PlayedClient:
    """A client with three tasks, of which a worker has finished the first; nobody has applied that yet. From now on
    Redis refuses every command that needs memory.
    """
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)
    worker.read()
    driver.send(Request.OUTCOMES, {"worker": worker.id, "outcomes": [worker.row(client.task(1))]})
    driver.send(Request.CANCEL, {"client": client.id, "tasks": [client.task(3)], "after": 0, "reason": ""})
    full_database.run("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(redis.ResponseError, match="maxmemory"):
        full_database.run("SET", "x", "x")
    return client


@pytest.fixture
def scheduler(
    client: PlayedClient, own_server: RedisServer, namespace: str, tmp_path: Path
) -> Iterator[SchedulerProcess]:
    """It starts when Redis is full."""
    scheduler = SchedulerProcess(own_server.address, namespace, tmp_path)
    yield scheduler
    scheduler.end()


def test_what_is_in_is_applied(scheduler: SchedulerProcess, driver: Driver, client: PlayedClient) -> None:
    wait_until(lambda: len(client.outcomes()) == 2, "the outcome and the cancel that were in are applied")

    assert {outcome.number: outcome.state for outcome in client.outcomes()} == {1: "success", 3: "canceled"}
    assert driver.database.length(driver.keys.results()) == 0
    assert scheduler.process.poll() is None


def test_the_intake_is_closed_with_the_reason(scheduler: SchedulerProcess, driver: Driver) -> None:
    wait_until(
        lambda: "maxmemory" in (driver.database.string(driver.keys.intake()) or ""),
        f"the intake is closed because of maxmemory; the scheduler's log is in {scheduler.log_path}",
    )


def test_duties_are_put_off_and_the_scheduler_stays_connected(
    scheduler: SchedulerProcess, driver: Driver, client: PlayedClient
) -> None:
    def applied(number: int) -> bool:
        return any(outcome.number == number for outcome in client.outcomes())

    def reports_refused() -> int:
        found = re.search(r"cmdstat_hsetnx:.*rejected_calls=(\d+)", "\n".join(driver.database.info("commandstats")))
        return int(found[1]) if found else 0

    wait_until(lambda: reports_refused() >= 3, "a duty is put off again and again")
    wait_until(lambda: applied(1), "what was in is applied")

    assert scheduler.log.count("a duty is put off duty=report") == 1
    assert scheduler.log.count("scheduler connected") == 1
    assert "waiting for Redis" not in scheduler.log
    assert driver.database.zset(driver.keys.schedulers()) == {}


@pytest.fixture
def suspect(driver: Driver, client: PlayedClient) -> str:
    """It waits to run alone: a worker is to be emptied for it, and the first write of that takes memory."""
    # (A script may write anything after a write that takes no memory.)
    script = "redis.call('DEL', KEYS[1]) redis.call('ZADD', KEYS[1], 9, ARGV[1])"
    driver.database.run("EVAL", script, 1, driver.keys.ready(f"{LANE}!"), client.task(9))
    return client.task(9)


def test_a_duty_whose_script_is_refused_holds_up_no_request(
    suspect: str, scheduler: SchedulerProcess, client: PlayedClient
) -> None:
    wait_until(lambda: len(client.outcomes()) == 2, "the outcome and the cancel that were in are applied")
    wait_until(lambda: "duty=alone" in scheduler.log, "the duty is put off")

    assert scheduler.log.count("scheduler connected") == 1


def test_when_there_is_room_again_everything_goes_on(
    scheduler: SchedulerProcess, driver: Driver, client: PlayedClient
) -> None:
    database, keys = driver.database, driver.keys
    wait_until(lambda: "maxmemory" in (database.string(keys.intake()) or ""), "the intake is closed")
    database.run("CONFIG", "SET", "maxmemory", "0")

    wait_until(lambda: database.string(keys.intake()) == "open", "the intake is open again")
    wait_until(lambda: database.zset(keys.schedulers()), "the scheduler reports")
    driver.send(Request.TASKS, client.body([4]))
    wait_until(lambda: driver.state(client.task(4)), "a new task is taken")
    driver.send(Request.DISCONNECT, {"client": client.id, "after": 0})
    wait_for_invariants(database, keys)


def test_a_full_redis_without_streams_keeps_nobody_busy(
    own_server: RedisServer, full_database: Database, namespace: str, tmp_path: Path
) -> None:
    full_database.run("CONFIG", "SET", "maxmemory", "1")
    scheduler = SchedulerProcess(own_server.address, namespace, tmp_path)
    try:
        wait_until(lambda: "waiting for Redis" in scheduler.log, "the scheduler waits")
        began, before = time.monotonic(), psutil.Process(scheduler.process.pid).cpu_times().user
        lines = scheduler.log.count("\n")
        time.sleep(2)
        used = psutil.Process(scheduler.process.pid).cpu_times().user - before
        assert used < 0.25 * (time.monotonic() - began)
        assert scheduler.log.count("\n") - lines <= 2
        full_database.run("CONFIG", "SET", "maxmemory", "0")
        wait_until(lambda: "Redis is back" in scheduler.log, "the scheduler works")
    finally:
        scheduler.end()
