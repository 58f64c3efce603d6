"""The index of recent history: tables in this process's memory, written by one reader, read by many pages.

Everything in it can be made again from `events`; nothing in it is ever the only copy.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from gristmill.protocol.states import ACTIVE, State
from gristmill.snapshot import ChangeRow, Changes, FailedAttempt
from gristmill_web.history.spans import Spans
from gristmill_web.history.tracked import COLUMNS, Tracked, event_of

SCHEMA = f"""
CREATE TABLE tasks (id INTEGER PRIMARY KEY, {", ".join(COLUMNS[1:])}, UNIQUE (task));
CREATE INDEX tasks_odd ON tasks (state, id) WHERE state <> 'success';
CREATE INDEX tasks_graph ON tasks (graph, id) WHERE graph IS NOT NULL;
CREATE TABLE changes (
    id INTEGER PRIMARY KEY, at INTEGER, task TEXT, previous TEXT, state TEXT, event TEXT, attempt INTEGER, worker TEXT,
    function TEXT, duration_us INTEGER, cpu_us INTEGER, memory INTEGER, error TEXT, deaths INTEGER
);
CREATE TABLE failures (id INTEGER PRIMARY KEY, task TEXT, attempt INTEGER, worker TEXT, at INTEGER, traceback TEXT);
CREATE INDEX failures_task ON failures (task);
CREATE TABLE gaps (id INTEGER PRIMARY KEY, change INTEGER, began INTEGER, ended INTEGER, changes INTEGER, reason TEXT);
"""

LOOKED_UP = 500
"""Tasks asked for in one statement."""
REMEMBERED = 20_000
"""Unfinished tasks that are kept as objects, so that the next change of each need not be looked up."""
FAILURES_KEPT = 2_000
GAPS_KEPT = 200
TRIM_EVERY = 5_000
"""How many changes may come before it is looked whether something is to be forgotten."""
ACTIVE_STATES = frozenset(state.value for state in ACTIVE)
ACTIVE_ONLY = f"state <> 'success' AND state IN ({', '.join(repr(state) for state in sorted(ACTIVE_STATES))})"
"""The condition for unfinished tasks: with its first half the index of what has not succeeded is used."""
UNSEEN = "unseen"
"""The state of a task that ended in a gap: how, nobody recorded."""


class Bounds(NamedTuple):
    """How much is remembered."""

    tasks: int = 100_000
    changes: int = 300_000
    age_ms: int = 24 * 3_600_000


class Ended(NamedTuple):
    """One attempt that has ended."""

    wait_ms: int | None
    """From submit to assignment; only of first attempts."""
    duration_us: int | None


class Index:
    """Tasks, their changes, and what is missing. Every method may be called by any thread."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._connection.executescript(SCHEMA)
        self._lock = threading.Lock()
        """Held for a statement, or for what the reader adds at once: some milliseconds."""
        self.spans = Spans()
        """What workers did when."""
        self._live: dict[str, Tracked] = {}
        self._task_id = 0
        self._change_id = 0
        self._since_trim = 0
        self.number = 0
        """The running number of the newest change that was read; 0 before the first."""
        self.last_at = 0
        """Its time by Redis's clock, ms."""
        self.first_at = 0
        """Where history begins; 0 when it is empty."""
        self.gaps = 0
        """How many gaps were found so far."""

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._connection.close()

    def select(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """The rows that a statement answers."""
        with self._lock:
            return self._connection.execute(statement, parameters).fetchall()

    # --- what the reader adds -------------------------------------------------------------------------------

    def add(self, entries: Sequence[Changes]) -> list[Ended]:
        """Add what happened, oldest first; answers the attempts that have ended in it."""
        ended: list[Ended] = []
        touched: dict[str, Tracked] = {}
        changes: list[tuple[Any, ...]] = []
        with self._lock:
            self._connection.execute("BEGIN")
            try:
                self._recall({row.task for entry in entries for row in entry.rows})
                for entry in entries:
                    self._note_gap(entry)
                    for row in entry.rows:
                        self._change(entry.at, row, touched, changes, ended)
                self._connection.executemany(
                    "INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", changes
                )
                marks = ", ".join("?" * len(COLUMNS))
                self._connection.executemany(
                    f"INSERT OR REPLACE INTO tasks VALUES ({marks})", [task.row() for task in touched.values()]
                )
                self._forget()
            finally:
                self._connection.execute("COMMIT")
            self._since_trim += len(changes)
            if self._since_trim >= TRIM_EVERY:
                self._since_trim = 0
                self._trim()
        return ended

    def _recall(self, tasks: set[str]) -> None:
        """Look up the tasks that are not remembered as objects."""
        missing = [task for task in tasks if task not in self._live]
        for start in range(0, len(missing), LOOKED_UP):
            some = missing[start : start + LOOKED_UP]
            marks = ", ".join("?" * len(some))
            for row in self._connection.execute(f"SELECT * FROM tasks WHERE task IN ({marks})", some):
                self._live[row[1]] = Tracked(*row)

    def _note_gap(self, entry: Changes) -> None:
        first = entry.number - max(1, len(entry.rows)) + 1
        if self.number and entry.number <= self.number:
            self._gap(entry.at, 0, "reset")
        elif self.number and first > self.number + 1:
            self._gap(entry.at, first - self.number - 1, "trimmed")
        elif not self.number and first > 1:
            self._gap(entry.at, first - 1, "before")
        if not self.first_at:
            self.first_at = entry.at
        self.number, self.last_at = entry.number, entry.at

    def _gap(self, at: int, changes: int, reason: str) -> None:
        self._connection.execute(
            "INSERT INTO gaps VALUES (NULL, ?, ?, ?, ?, ?)", (self._change_id, self.last_at, at, changes, reason)
        )
        self.gaps += 1
        self._connection.execute("DELETE FROM gaps WHERE id <= (SELECT max(id) FROM gaps) - ?", (GAPS_KEPT,))

    def reset(self, at: int) -> None:
        """Redis has lost what was there: its numbers begin anew."""
        with self._lock:
            self._gap(at, 0, "reset")
            self.number, self.last_at = 0, at

    def _change(
        self,
        at: int,
        row: ChangeRow,
        touched: dict[str, Tracked],
        changes: list[tuple[Any, ...]],
        ended: list[Ended],
    ) -> None:
        self._change_id += 1
        task = self._live.get(row.task)
        if task is None or (task.ended is not None and row.state in (State.INACTIVE.value, State.RUNNING.value)):
            # New, or sent again after Redis had lost it.
            self._task_id += 1
            task = self._live[row.task] = Tracked.new(self._task_id, row.task, self._change_id)
        touched[row.task] = task
        previous, worker = task.state, row.worker or task.worker
        event = event_of(previous, row)
        span = task.apply(at, row, self._change_id)
        if span is not None:
            self.spans.add(span, row.memory_peak_bytes or 0)
        if task.ended is not None or (span is not None and row.duration_us):
            wait = task.assigned - task.submitted if task.assigned and task.submitted is not None else None
            ended.append(Ended(wait if row.attempt == 1 else None, row.duration_us or None))
        changes.append(
            (
                self._change_id, at, row.task, previous, row.state, event, row.attempt, worker, row.function,
                row.duration_us, row.cpu_us, row.memory_peak_bytes, row.error or None,
                row.about.get("deaths") if row.about else None,
            )
        )  # fmt: skip

    def add_failures(self, failures: Iterable[FailedAttempt]) -> None:
        """Add tracebacks."""
        rows = [(failure.task, failure.attempt, failure.worker, failure.at, failure.traceback) for failure in failures]
        if not rows:
            return
        with self._lock:
            self._connection.executemany("INSERT INTO failures VALUES (NULL, ?, ?, ?, ?, ?)", rows)
            forget = "DELETE FROM failures WHERE id <= (SELECT max(id) FROM failures) - ?"
            self._connection.execute(forget, (FAILURES_KEPT,))

    # --- what became of those that were in a gap -----------------------------------------------------------

    def unsure(self, before: int, after_id: int, most: int) -> list[tuple[int, str, str]]:
        """(id, task, state) of unfinished tasks whose last change was before that time, in order of id."""
        return self.select(
            f"SELECT id, task, state FROM tasks WHERE {ACTIVE_ONLY} AND changed < ? AND id > ? ORDER BY id LIMIT ?",
            (before, after_id, most),
        )

    def correct(self, states: Sequence[tuple[int, str, str]], at: int) -> None:
        """Write the state that the record of each (id, task) names; a task without a record has ended unseen."""
        rows = [(state or UNSEEN, None if state in ACTIVE_STATES else at, task_id) for task_id, _, state in states]
        with self._lock:
            self._connection.executemany("UPDATE tasks SET state = ?, ended = ? WHERE id = ? AND ended IS NULL", rows)
            for _, task, _ in states:
                self._live.pop(task, None)

    # --- forgetting -----------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Finished tasks do not change, and unfinished ones can be looked up again."""
        for task in [task for task, tracked in self._live.items() if tracked.ended is not None]:
            del self._live[task]
        for task in list(self._live)[: max(0, len(self._live) - REMEMBERED)]:
            del self._live[task]

    def _trim(self) -> None:
        """Forget what is too old or too much. Of unfinished tasks as many stay as of finished ones."""
        execute = self._connection.execute
        oldest = self.last_at - self.bounds.age_ms
        execute("DELETE FROM tasks WHERE id <= ? AND ended IS NOT NULL", (self._task_id - self.bounds.tasks,))
        execute(
            f"DELETE FROM tasks WHERE {ACTIVE_ONLY} AND id <= "
            f"(SELECT id FROM tasks WHERE {ACTIVE_ONLY} ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (self.bounds.tasks,),
        )
        (old,) = execute("SELECT max(id) FROM changes WHERE at < ?", (oldest,)).fetchone()
        cut = max(old or 0, self._change_id - self.bounds.changes)
        execute("DELETE FROM changes WHERE id <= ?", (cut,))
        execute("DELETE FROM tasks WHERE ended < ?", (oldest,))
        (first,) = execute("SELECT at FROM changes ORDER BY id LIMIT 1").fetchone() or (0,)
        self.first_at = first


def words(value: str | None) -> list[str]:
    """A list of words that lies in a column as JSON."""
    found = orjson.loads(value) if value else []
    return [str(word) for word in found]
