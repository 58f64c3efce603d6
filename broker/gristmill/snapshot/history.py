"""What happened after a moment: the events, and the tracebacks of failed attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gristmill.protocol.keys import Keys
from gristmill.snapshot.changes import Changes, unpack_changes
from gristmill.snapshot.fleet import redis_now
from gristmill.snapshot.reading import Reading, number, pairs, short, sure, text

LONGEST_TRACEBACK = 10_000


class FailedAttempt(NamedTuple):
    """One attempt that failed, with its traceback as text."""

    entry: str
    at: int
    task: str
    attempt: int
    worker: str
    traceback: str


@dataclass(frozen=True)
class Happened:
    """What happened after a moment, oldest first."""

    now: int
    """Redis's clock, ms."""
    changes: tuple[Changes, ...]
    failures: tuple[FailedAttempt, ...]
    newest: int
    """The running number of the newest change of all."""
    more: bool
    """Whether there may be more than was asked for."""


def read_happened(keys: Keys, after: str, failures_after: str, most: int) -> Reading[Happened]:
    """What `events` and `failures` hold after these entries (`0`: from the beginning), at most `most` entries each."""
    time, events, failures, newest = yield [
        ("TIME",),
        ("XRANGE", keys.events(), f"({after}", "+", "COUNT", most),
        ("XRANGE", keys.failures(), f"({failures_after}", "+", "COUNT", most),
        ("HGET", keys.counts(), "events"),
    ]
    entries, failed = sure(events), sure(failures)
    return Happened(
        now=redis_now(time),
        changes=tuple(unpack_changes(entry) for entry in entries),
        failures=tuple(_failure(text(entry[0]), pairs(entry[1] or ())) for entry in failed),
        newest=number(sure(newest)),
        more=len(entries) == most or len(failed) == most,
    )


def _failure(entry: str, fields: dict[str, bytes]) -> FailedAttempt:
    return FailedAttempt(
        entry=entry,
        at=number(entry.partition("-")[0]),
        task=short(fields.get("task")),
        attempt=number(fields.get("attempt")),
        worker=short(fields.get("worker")),
        traceback=text(fields.get("traceback"))[:LONGEST_TRACEBACK],
    )
