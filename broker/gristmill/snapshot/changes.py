"""The entries of `events`, unpacked: what changed, in the columns of `kinds.CHANGE_COLUMNS`."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from gristmill.protocol.kinds import CHANGE_COLUMNS
from gristmill.snapshot.reading import LONGEST_NAME, LONGEST_TEXT, number, pairs, text

_COLUMNS = len(CHANGE_COLUMNS)
_PADDING = [[None] * (_COLUMNS - length) for length in range(_COLUMNS + 1)]
_LARGEST = 1 << 62
LONGEST_ABOUT = 8192


class ChangeRow(NamedTuple):
    """One change; what it has not got is empty or None."""

    task: str
    state: str
    attempt: int
    worker: str
    function: str
    duration_us: int | None
    cpu_us: int | None
    memory_peak_bytes: int | None
    error: str
    about: dict[str, Any] | None


class Changes(NamedTuple):
    """What one script call changed."""

    entry: str
    """The id of the entry in `events`."""
    at: int
    """Redis's clock, ms."""
    number: int
    """The running number of the last of them."""
    rows: list[ChangeRow]
    """Oldest first."""


def unpack_changes(entry: Any) -> Changes:
    """One entry of `events` as XRANGE answers it. What was not written by a script of ours is passed over or cut."""
    identity = text(entry[0])
    at = number(identity.partition("-")[0])
    fields = pairs(entry[1] or ())
    last = number(fields.get("number"))
    try:
        rows = orjson.loads(fields.get("changes", b"[]"))
        workers = _names(orjson.loads(fields.get("workers", b"[]")))
        functions = _names(orjson.loads(fields.get("functions", b"[]")))
    except orjson.JSONDecodeError:
        return Changes(identity, at, last, [])
    if not isinstance(rows, list):
        return Changes(identity, at, last, [])
    found = []
    for row in rows:
        if type(row) is not list or not 2 <= len(row) <= _COLUMNS:
            continue
        task, state, attempt, worker, function, duration, cpu, memory, error, about = row + _PADDING[len(row)]
        found.append(
            ChangeRow(
                task if type(task) is str and len(task) <= LONGEST_NAME else str(task)[:LONGEST_NAME],
                state if type(state) is str and len(state) <= LONGEST_NAME else str(state)[:LONGEST_NAME],
                attempt if type(attempt) is int and 0 <= attempt < _LARGEST else 0,
                workers[worker] if type(worker) is int and 0 <= worker < len(workers) else "",
                functions[function] if type(function) is int and 0 <= function < len(functions) else "",
                duration if type(duration) is int and 0 <= duration < _LARGEST else _figure(duration),
                cpu if type(cpu) is int and 0 <= cpu < _LARGEST else _figure(cpu),
                memory if type(memory) is int and 0 <= memory < _LARGEST else _figure(memory),
                error[:LONGEST_TEXT] if type(error) is str else "",
                about if type(about) is dict and len(orjson.dumps(about)) <= LONGEST_ABOUT else None,
            )
        )
    return Changes(identity, at, last, found)


def _names(names: Any) -> list[str]:
    return [str(name)[:LONGEST_NAME] for name in names] if isinstance(names, list) else []


def _figure(column: Any) -> int | None:
    return int(column) if isinstance(column, float) and 0 <= column < _LARGEST else None
