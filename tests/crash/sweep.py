"""The sweep over the scheduler's commands: which points there are, and what is run at one."""

from __future__ import annotations

from typing import NamedTuple

from crash import points
from crash.points import Point
from crash.scenarios import SCENARIOS
from crash.world import BrokenLawError, World
from support.database import Database


class Run(NamedTuple):
    """What one run of a scenario was."""

    commands: int
    """How many commands the scheduler sent that was to be killed."""
    crashed_at: str
    """The command of the crash point; empty when the run ended before it."""


def run(database: Database, scenario: str, point: Point | None = None) -> Run:
    """Run a scenario, with a crash or without; raises `BrokenLawError` with the point and the command in its text."""
    world = World(database, point)
    try:
        SCENARIOS[scenario](world)
    except (BrokenLawError, AssertionError, ValueError) as error:
        where = f"{point.mode.value}: command {point.number} ({world.first.crashed_at})" if point else "no crash"
        raise BrokenLawError(f"{scenario}, scheduler {where}: {error}") from error
    finally:
        world.close()
    return Run(world.commands, world.first.crashed_at)


def connecting(database: Database) -> int:
    """How many commands the scheduler sends before it reads for the first time: the same in every scenario."""
    world = World(database)
    try:
        world._loop._connect()
        return world.commands
    finally:
        world.close()


def extent(database: Database, scenario: str) -> tuple[int, int]:
    """The first and the last command of a scenario; those of connecting, always the same, only in the first one."""
    first = 1 if scenario == next(iter(SCENARIOS)) else connecting(database) + 1
    return first, run(database, scenario).commands


def sampled(database: Database, scenario: str, count: int, seed: int) -> list[Point]:
    """Some of its points."""
    return points.sample(*extent(database, scenario), count, seed)
