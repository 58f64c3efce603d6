"""A process is killed at one of its Redis commands; whatever the command, nothing is lost, and nothing done twice.

The complete form is `make crash-sweep`; here is a sample, another one with another GRISTMILL_TEST_SEED.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from crash import processes, sweep
from crash.points import Mode, Point
from crash.scenarios import SCENARIOS
from crash.world import BrokenLawError, CrashingConnection, Killed, World
from gristmill.errors import ConnectionLostError
from gristmill.store.connection import pack
from support.database import Database
from support.leaks import Leaks
from support.server import RedisServer

SEED = int(os.environ.get("GRISTMILL_TEST_SEED", "1"))
POINTS = 10
FEWEST = {"client": 30, "agent": 15, "processor": 15, "scheduler": 60}
"""How many commands a process of each kind sends at least."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_scheduler_may_die_at_any_command(database: Database, scenario: str) -> None:
    reached = set()
    for point in sweep.sampled(database, scenario, POINTS, SEED):
        reached.add(sweep.run(database, scenario, point).crashed_at)

    assert len(reached - {""}) > 1, "the sample kills at different commands"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("role", processes.ROLES)
def test_a_real_process_may_die_at_any_command(no_leaks: Leaks, server: RedisServer, role: str) -> None:
    modes = list(Mode)
    draw = random.Random(f"{SEED} {role}")
    point = Point(draw.randint(1, FEWEST[role]), modes[(SEED + list(processes.ROLES).index(role)) % len(modes)])

    assert processes.run(server.socket, role, point).crashed_at != "", "the process sent that many commands"


@pytest.fixture
def worlds(database: Database) -> Iterator[list[World]]:
    worlds: list[World] = []
    yield worlds
    for world in worlds:
        world.close()


def connected(database: Database, point: Point) -> CrashingConnection:
    connection = CrashingConnection(database.address, "crashing", point)
    connection.connect()
    return connection


@pytest.mark.parametrize(
    ("mode", "applied", "heard", "end"),
    [
        (Mode.BEFORE, 1, 1, Killed),
        (Mode.AFTER, 2, 2, Killed),
        (Mode.LOST, 2, 0, Killed),
        (Mode.CUT, 2, 0, ConnectionLostError),
    ],
)
def test_a_crash_is_at_the_very_command(
    database: Database, mode: Mode, applied: int, heard: int, end: type[BaseException]
) -> None:
    connection = connected(database, Point(3, mode))  # the first command is the INFO of connecting
    increment = pack(("INCR", "n"))
    replies = []

    def use() -> None:
        connection.send(increment)
        if mode in (Mode.BEFORE, Mode.AFTER):
            replies.append(connection.read())
            connection.send(increment, increment)
            replies.append(connection.read())
            replies.append(connection.read())
        else:
            connection.send(increment, increment)

    with pytest.raises(end):
        use()

    assert database.string("n") == str(applied)
    assert replies == list(range(1, heard + 1))
    assert connection.crashed_at == "INCR"
    connection.close()


def test_the_checker_notices_an_outcome_that_is_told_twice(database: Database, worlds: list[World]) -> None:
    world = World(database)
    worlds.append(world)
    client = world.client()
    world.worker(1)
    client.submit(1)
    world.work_off({client: {1: "success"}})
    (entry,) = [entry for entry in database.stream(world.keys.client_inbox(client.id)) if "outcomes" in entry.fields]
    database.run("XADD", world.keys.client_inbox(client.id), "*", "outcomes", entry.fields["outcomes"])

    with pytest.raises(BrokenLawError, match="a client was told"):
        world.work_off({client: {1: "success"}})


def test_the_checker_notices_a_task_that_is_nowhere(database: Database, worlds: list[World]) -> None:
    world = World(database)
    worlds.append(world)
    client = world.client()
    client.submit(1)
    database.run("DEL", world.keys.ready("python3.11"))

    with pytest.raises(BrokenLawError, match="is inactive, which is one place"):
        world.work_off({client: {}})
