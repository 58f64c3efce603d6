"""Tasks: the newest ones and one task's story from `events`, and one task's record. Nothing is ever unpickled."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from gristmill.errors import UnknownTaskError
from gristmill.protocol.keys import GROUP_PROCESSORS, Keys
from gristmill.protocol.records import unpack_record
from gristmill.protocol.states import ACTIVE, TERMINAL, State
from gristmill.snapshot.changes import ChangeRow, unpack_changes
from gristmill.snapshot.fleet import redis_now
from gristmill.snapshot.reading import Reading, number, or_else, pairs, short, sure, text
from gristmill.snapshot.recipes import recipes
from gristmill.snapshot.records import Bytes, Change, TaskDetail, TaskList, TaskRow

NEWEST_STEPS = (20, 80, 200, 300)
"""How many entries of `events` are read at a time: one holds 1 to 100 changes, so the first step often suffices."""
STORY_STEPS = (100, 200, 300)
AROUND_A_MOMENT = 40
"""Entries read from the moment at which a record says that something happened."""
LONGEST_PAYLOAD = 16_384
"""What lies beside a record has about 4 KB; of something longer no digest is made."""

_TASK_ID = re.compile(r"[A-Za-z0-9_-]{1,180}\.[0-9]{1,19}\Z")
_WITHOUT_BYTES = ("call",)
_ACTIVE = frozenset(state.value for state in ACTIVE)
_TERMINAL = frozenset(state.value for state in TERMINAL)


def check_task_id(task: str) -> str:
    """Return `task`, or raise UnknownTaskError when it cannot be the id of a task."""
    if not _TASK_ID.match(task):
        raise UnknownTaskError(f"expected the id of a task, such as k3JxQm9aTz.0000042; got {task!r}; copy it whole")
    return task


def is_task_id(task: str) -> bool:
    """Whether it can be the id of a task."""
    return _TASK_ID.match(task) is not None


class _Row(NamedTuple):
    """One change, and where it lies in history."""

    order: tuple[int, int, int]
    """Its place in history: time (Redis, ms) and number of the entry, and place in the entry."""
    change: ChangeRow

    @property
    def at(self) -> int:
        return self.order[0]


def changes_of(entry: Any) -> Iterator[_Row]:
    """The changes of one entry of `events`, the newest first."""
    changes = unpack_changes(entry)
    sequence = number(changes.entry.partition("-")[2])
    for place in range(len(changes.rows) - 1, -1, -1):
        yield _Row((changes.at, sequence, place), changes.rows[place])


_REASONS = {
    "WorkerDisconnect": "its worker was lost or has left",
    "BalanceTaskCancel": "it goes to a worker with less to do",
    "CancelConfirmCanceled": "its worker gave it back",
    "CancelConfirmNotFound": "its worker never received it",
    "TaskReturned": "its worker gave it back",
    "ResultFailedRetry": "it failed and is tried again",
}
"""Why a task waits again, by the event that the change names."""


def _reason(about: Any) -> str:
    if not isinstance(about, dict):
        return ""
    reason = _REASONS.get(str(about.get("event", "")), "")
    deaths = number(about.get("deaths"))
    return f"{reason} while executing it ({deaths} so far)" if reason and deaths else reason


class _Newest:
    """Collects the newest tasks while it is shown changes from the newest to the oldest."""

    def __init__(self, limit: int, state: str, function: str) -> None:
        self.limit = limit
        self.state = state
        self.function = function.casefold()
        self.shown: dict[str, TaskRow] = {}
        self.changes = 0
        self._passed_over: set[str] = set()
        self._ended = f'"{state}"'.encode() if state in _TERMINAL else b""

    @property
    def full(self) -> bool:
        return len(self.shown) >= self.limit

    def read(self, entry: Any) -> None:
        """Look at one entry, the next older one."""
        if self._ended and not any(self._ended in value for value in entry[1] or ()):
            # A terminal state never changes, so nothing in here can be, or hide, what is looked for.
            self.changes += sum(value.count(b"],[") + 1 for value in (entry[1] or ())[-1:])
            return
        for row in changes_of(entry):
            self.changes += 1
            self._see(row.at, row.change)

    def _see(self, at: int, row: ChangeRow) -> None:
        shown = self.shown.get(row.task)
        if shown is not None:
            self.shown[row.task] = _with_earlier(shown, at, row)
        elif row.task not in self._passed_over:
            if self.full or not self._wanted(row):
                # Only the newest state counts: an earlier one of the same task must not let it in.
                self._passed_over.add(row.task)
            else:
                self.shown[row.task] = TaskRow(
                    task=row.task,
                    function=row.function,
                    state=row.state,
                    worker=row.worker,
                    attempt=row.attempt,
                    changed=at,
                    started=at if row.state == State.RUNNING.value else 0,
                    duration_us=row.duration_us,
                    cpu_us=row.cpu_us,
                    memory_peak_bytes=row.memory_peak_bytes,
                    error=row.error,
                )

    def _wanted(self, row: ChangeRow) -> bool:
        return (not self.state or row.state == self.state) and self.function in row.function.casefold()


def _with_earlier(shown: TaskRow, at: int, row: ChangeRow) -> TaskRow:
    """What an earlier change of the task adds to what is known."""
    started = shown.started
    if not started and row.state == State.RUNNING.value and row.attempt == shown.attempt:
        started = at
    if started == shown.started and shown.function:
        return shown
    known = {name: getattr(shown, name) for name in TaskRow.__dataclass_fields__}
    return TaskRow(**{**known, "started": started, "function": shown.function or row.function})


def read_newest_tasks(keys: Keys, *, limit: int = 25, state: str = "", function: str = "") -> Reading[TaskList]:
    """The tasks that changed last, filtered by their state now and by text in the function's name."""
    newest = _Newest(limit, state, function)
    end = "+"
    complete = False
    for count in NEWEST_STEPS:
        (entries,) = yield [("XREVRANGE", keys.events(), end, "-", "COUNT", count)]
        for entry in sure(entries):
            newest.read(entry)
        complete = len(entries) < count
        if complete or newest.full:
            break
        end = f"({text(entries[-1][0])}"
    return TaskList(
        rows=tuple(newest.shown.values()),
        state=state,
        function=function,
        changes_read=newest.changes,
        complete=complete or newest.full,
    )


def _rows_of(entries: Any, task: str) -> Iterator[_Row]:
    """The changes of one task. A look at the bytes spares reading most entries."""
    needle = f'"{task}"'.encode()
    for entry in sure(entries):
        if any(needle in value for value in (entry[1] or ())):
            for row in changes_of(entry):
                if row.change.task == task:
                    yield row


def read_task(keys: Keys, task: str, *, address: str = "", with_story: bool = True) -> Reading[TaskDetail]:
    """Everything that is known about one task: its record, where it waits, its story, and how to see it by hand.

    Who has the story from elsewhere goes without: then it is one round trip, and a second while the task is unfinished.
    """
    time, record, payload, dependents, due, value = yield [
        ("TIME",),
        ("HGETALL", keys.task(task)),
        ("GETRANGE", keys.payload(task), 0, LONGEST_PAYLOAD),
        ("SCARD", keys.dependents(task)),
        ("ZSCORE", keys.delayed(), task),
        ("GETRANGE", keys.value(task), 0, LONGEST_PAYLOAD),
    ]
    now = redis_now(time)
    fields = unpack_record({name: text(value) for name, value in pairs(sure(record)).items()})
    lane, worker, entry = (text(fields.get(name)) for name in ("lane", "worker", "entry"))
    place = waiting = pending = None
    if fields.get("state") in _ACTIVE:
        place, waiting, pending = yield [
            ("ZRANK", keys.ready(lane), task),
            ("ZCARD", keys.ready(lane)),
            ("XPENDING", keys.worker_tasks(worker), GROUP_PROCESSORS, entry or "-", entry or "+", 1),
        ]
    story: list[_Row] = []
    if with_story:
        # An entry's id begins with the time at which the task was assigned.
        moments = sorted({number(fields.get("submitted")), number(entry.partition("-")[0])} - {0})
        story = yield from _read_story(keys, task, moments)
    state = text(fields.get("state")) or (story[-1].change.state if story else "")
    names = (row.change.function for row in reversed(story) if row.change.function)
    return TaskDetail(
        task=task,
        known=bool(fields or story),
        state=state,
        function=text(fields.get("name")) or next(names, ""),
        record={name: text(value) for name, value in fields.items() if name not in _WITHOUT_BYTES},
        call=_call(fields, sure(payload)),
        value=_value(sure(value)),
        waits=_waits(
            fields,
            state,
            lane,
            worker,
            sure(due),
            sure(place),
            sure(waiting) or 0,
            bool(entry) and not or_else(pending, [], "NOGROUP"),
            now,
        ),
        dependents=number(sure(dependents)),
        story=tuple(_change(row) for row in story),
        story_complete=_has_beginning(story),
        recipes=recipes(keys, address, task, state=state, lane=lane, worker=worker, entry=entry),
    )


def _read_story(keys: Keys, task: str, moments: list[int]) -> Reading[list[_Row]]:
    """The changes of one task, from around the moments at which something happened to it, and among the newest."""
    around = yield [("XRANGE", keys.events(), max(0, moment - 5), "+", "COUNT", AROUND_A_MOMENT) for moment in moments]
    found = {row.order: row for entries in around for row in _rows_of(entries, task)}
    end = "+"
    begun = False
    for count in STORY_STEPS:
        (entries,) = yield [("XREVRANGE", keys.events(), end, "-", "COUNT", count)]
        found.update((row.order, row) for row in _rows_of(entries, task))
        if (
            len(entries) < count
            or begun
            or State.INACTIVE.value in (row.change.state for row in found.values() if not row.change.attempt)
        ):
            break
        if moments and int(entries[-1][0].partition(b"-")[0]) < moments[0] - 1000:
            break  # what is older happened before the task was submitted
        # A first attempt begins the story of a task that did not have to wait: of others, one more step tells.
        begun = _has_beginning(found.values())
        end = f"({text(entries[-1][0])}"
    return [found[order] for order in sorted(found)]


def _has_beginning(rows: Any) -> bool:
    """A task begins inactive, or running when a worker had room; a later attempt is not its beginning."""
    return any(
        (row.change.state == State.INACTIVE.value and row.change.attempt == 0)
        or (row.change.state == State.RUNNING.value and row.change.attempt == 1)
        for row in rows
    )


def _change(row: _Row) -> Change:
    found = row.change
    return Change(
        row.at, found.state, found.attempt, found.worker, found.function, found.duration_us, found.cpu_us,
        found.memory_peak_bytes, found.error, _reason(found.about),
    )  # fmt: skip


def _call(fields: dict[str, Any], payload: bytes) -> Bytes | None:
    """The pickled call: in the record or beside it as base64, or an object of its own."""
    if fields.get("object"):
        return Bytes(number(fields.get("size")), "", text(fields["object"]))
    return _bytes(text(fields.get("call")) or text(payload))


def _value(value: bytes) -> Bytes | None:
    """The outcome, while dependents need it."""
    try:
        found = orjson.loads(value) if value else None
    except orjson.JSONDecodeError:
        return None
    if isinstance(found, dict) and found.get("object"):
        return Bytes(number(found.get("size")), "", short(found["object"]))
    return _bytes(found) if isinstance(found, str) else None


def _bytes(encoded: str) -> Bytes | None:
    """Size and digest of what lies in Redis as base64. It is never unpickled."""
    if not encoded:
        return None
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:
        return None
    return Bytes(len(data), hashlib.sha256(data).hexdigest(), "")


def _waits(
    fields: dict[str, Any],
    state: str,
    lane: str,
    worker: str,
    due: Any,
    place: Any,
    waiting: int,
    unread: bool,
    now: int,
) -> str:
    """Why the task is not executing, in a sentence."""
    if not fields or state not in _ACTIVE:
        return ""
    if state == State.INACTIVE.value:
        left = number(fields.get("dependencies"))
        if left:
            return f"It waits for {left} of the tasks that it depends on."
        if due is not None:
            return f"It failed and runs again in {max(0, number(due) - now) / 1000:.1f} s."
        if place is not None:
            return f"It waits for a worker: number {place + 1:,} of {waiting:,} in lane {lane}."
        return "It waits."
    if unread:
        return f"It is queued at worker {worker}: none of its processors has read it yet."
    return ""
