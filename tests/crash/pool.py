"""What the processes of a sweep's pool do; a module of its own, because they import it."""

from __future__ import annotations

from pathlib import Path

from crash import processes, sweep
from crash.points import Point
from crash.world import BrokenLawError
from support.database import Database

_database: Database | None = None
_redis = Path()


def begin(redis: Path) -> None:
    """Once in each process."""
    global _database, _redis
    _redis = redis
    _database = Database(f"unix://{redis}")


def run(job: tuple[str, Point]) -> tuple[str, Point, str, str]:
    """One run in a process of the pool: scenario or role, point, command of the crash, violation."""
    scenario, point = job
    assert _database is not None
    try:
        if scenario in processes.ROLES:
            return scenario, point, processes.run(_redis, scenario, point).crashed_at, ""
        return scenario, point, sweep.run(_database, scenario, point).crashed_at, ""
    except BrokenLawError as violation:
        return scenario, point, "", str(violation)
