"""What pages ask the index about changes: the newest ones, and the story of one task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from gristmill_web.history.index import Index


@dataclass(frozen=True)
class EventFilter:
    """Which changes are wanted; what is empty or 0 lets everything through."""

    task: str = ""
    state: str = ""
    event: str = ""
    function: str = ""
    worker: str = ""
    client: str = ""
    since: int = 0
    until: int = 0


class EventRow(NamedTuple):
    """One change of one task."""

    id: int
    at: int
    task: str
    previous: str
    """The state before; empty when the task was new, or history does not know."""
    state: str
    event: str
    attempt: int
    worker: str
    function: str
    duration_us: int | None
    cpu_us: int | None
    memory: int | None
    error: str | None
    deaths: int | None
    gap: GapRow | None = None
    """What is missing just before it."""


class GapRow(NamedTuple):
    """What is missing in history, and why."""

    id: int
    change: int
    """The last change before it."""
    began: int
    """Time of the last change before it, ms; 0 when there was none."""
    ended: int
    changes: int
    """How many changes are missing; 0 when nobody knows."""
    reason: str
    """trimmed: Redis forgot them before they were read; reset: Redis lost its data; before: they are older than what
    Redis kept when this page started."""

    @property
    def sentence(self) -> str:
        """What a person reads."""
        if self.reason == "reset":
            return "Redis lost its data here: history begins anew."
        many = f"{self.changes:,} changes are" if self.changes != 1 else "1 change is"
        if self.reason == "before":
            return f"{many} older than what Redis kept when this page was started."
        return f"{many} missing here: Redis forgot them before they were read."


_CHANGE = "id, at, task, previous, state, event, attempt, worker, function, duration_us, cpu_us, memory, error, deaths"


class Events(NamedTuple):
    """A part of the changes, newest first."""

    rows: list[EventRow]
    newer: bool
    older: bool


def gaps_between(index: Index, after: int, upto: int) -> list[GapRow]:
    """The gaps behind a change and before another, oldest first."""
    found = index.select("SELECT * FROM gaps WHERE change >= ? AND change < ? ORDER BY id", (after, upto))
    return [GapRow(*row) for row in found]


def gaps(index: Index) -> list[GapRow]:
    """All gaps that are remembered, newest first."""
    return [GapRow(*row) for row in index.select("SELECT * FROM gaps ORDER BY id DESC")]


def find_events(index: Index, wanted: EventFilter, *, before: int = 0, after: int = 0, limit: int = 100) -> Events:
    """The changes that the filter lets through, newest first, each with the gap that lies before it."""
    conditions, values = _conditions(wanted)
    if after:
        conditions.append("id > ?")
        values.append(after)
    elif before:
        conditions.append("id < ?")
        values.append(before)
    where = " AND ".join(conditions) or "1"
    order = "ASC" if after else "DESC"
    found = index.select(
        f"SELECT {_CHANGE} FROM changes WHERE {where} ORDER BY id {order} LIMIT ?", (*values, limit + 1)
    )
    more = len(found) > limit
    rows = [EventRow(*row) for row in found[:limit]]
    if after:
        if not more and len(rows) < limit:
            return find_events(index, wanted, limit=limit)
        rows.reverse()
    older = True if after else more
    # A gap stands between two rows when it lies anywhere between them, whatever the filter has left out.
    with_gaps = []
    for at, row in enumerate(rows):
        below = rows[at + 1].id if at + 1 < len(rows) else (row.id - 1 if older else 0)
        between = gaps_between(index, below, row.id) if index.gaps else []
        with_gaps.append(row._replace(gap=between[-1]) if between else row)
    return Events(with_gaps, newer=more if after else bool(before), older=older)


def _conditions(wanted: EventFilter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    for column in ("state", "event", "function", "worker", "task"):
        if value := getattr(wanted, column):
            conditions.append(f"{column} = ?")
            values.append(value)
    if wanted.client:
        conditions.append("task >= ? AND task < ?")
        values += [f"{wanted.client}.", f"{wanted.client}/"]
    if wanted.since:
        conditions.append("at >= ?")
        values.append(wanted.since)
    if wanted.until:
        conditions.append("at < ?")
        values.append(wanted.until)
    return conditions, values


class Story(NamedTuple):
    """What history knows of one task's life."""

    changes: list[EventRow]
    """Oldest first, at most `STORY_SHOWN`."""
    complete: bool
    """Whether they begin with the task's beginning, and nothing is missing between."""
    tracebacks: dict[int, str]
    """By attempt."""


STORY_SHOWN = 500


def story_of(index: Index, task: str) -> Story:
    """The changes of one task, found between its first and its last one."""
    place = index.select("SELECT first_change, last_change FROM tasks WHERE task = ?", (task,))
    if not place:
        return Story([], False, {})
    first, last = place[0]
    found = index.select(
        f"SELECT {_CHANGE} FROM changes WHERE id BETWEEN ? AND ? AND task = ? ORDER BY id DESC LIMIT ?",
        (first, last, task, STORY_SHOWN),
    )
    rows = [EventRow(*row) for row in reversed(found)]
    between = gaps_between(index, first, last) if index.gaps else []
    for at in range(1, len(rows)):
        missing = [gap for gap in between if rows[at - 1].id <= gap.change < rows[at].id]
        if missing:
            rows[at] = rows[at]._replace(gap=missing[-1])
    begun = bool(rows) and not rows[0].previous and rows[0].event == "Submitted"
    tracebacks = dict(index.select("SELECT attempt, traceback FROM failures WHERE task = ? ORDER BY id", (task,)))
    return Story(rows, begun and not between, tracebacks)
