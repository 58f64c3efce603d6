"""What pages ask the index about tasks and their changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gristmill.protocol.states import TERMINAL
from gristmill_web.history.index import Index, words
from gristmill_web.history.tracked import Tracked

_TERMINAL = frozenset(state.value for state in TERMINAL)
NEEDED_SHOWN = 100


@dataclass(frozen=True)
class TaskFilter:
    """Which tasks are wanted; what is empty or 0 lets everything through."""

    find: str = ""
    """The beginning of the task's id."""
    state: str = ""
    function: str = ""
    worker: str = ""
    client: str = ""
    graph: str = ""
    tag: str = ""
    text: str = ""
    """In the id, the names of function and task, or the error; capital letters do not matter."""
    since: int = 0
    """Tasks that have changed at or after this time, ms."""
    until: int = 0
    """Tasks whose last change was before this time, ms."""

    @property
    def any(self) -> bool:
        """Whether it keeps anything back."""
        return self != TaskFilter()


class TaskRow(NamedTuple):
    """One task as history knows it; what it does not know is empty or None. Times: Redis's clock, ms."""

    id: int
    task: str
    function: str
    state: str
    worker: str
    client: str
    attempt: int
    submitted: int | None
    started: int | None
    """When its last attempt began: exactly once it has ended, until then when it was assigned."""
    ended: int | None
    changed: int
    wait_ms: int | None
    """From submit to the beginning of the last attempt."""
    duration_us: int | None
    cpu_us: int | None
    memory: int | None
    error: str
    graph: str
    node: str
    tags: list[str]
    lane: str
    needs: list[int]


class Rows(NamedTuple):
    """A part of a list, newest first."""

    rows: list[Any]
    newer: bool
    """Whether there are newer ones that the filter lets through."""
    older: bool


def _row(columns: Sequence[Any]) -> TaskRow:
    task = Tracked(*columns)
    started = task.assigned
    if task.ended is not None and task.duration_us:
        started = task.ended - task.duration_us // 1000
        if task.submitted is not None:
            started = max(started, task.submitted)  # within a millisecond the two clocks may disagree
    if task.state == "inactive":
        started = None
    wait = started - task.submitted if started is not None and task.submitted is not None else None
    measured = task.ended is not None and bool(task.duration_us or task.state == "success")
    return TaskRow(
        id=task.id,
        task=task.task,
        function=task.function,
        state=task.state,
        worker=task.worker,
        client=task.client,
        attempt=task.attempt,
        submitted=task.submitted,
        started=started,
        ended=task.ended,
        changed=task.changed,
        wait_ms=max(0, wait) if wait is not None else None,
        duration_us=task.duration_us if measured else None,
        cpu_us=task.cpu_us if measured else None,
        memory=task.memory or None,
        error=task.error or "",
        graph=task.graph or "",
        node=task.node or "",
        tags=words(task.tags),
        lane=task.lane or "",
        needs=[int(number) for number in words(task.needs)],
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _conditions(wanted: TaskFilter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *parameters: Any) -> None:
        conditions.append(condition)
        values.extend(parameters)

    if wanted.find:
        add("task >= ? AND task < ?", wanted.find, wanted.find + "\U0010ffff")
    if wanted.state:
        add("state = ?" if wanted.state == "success" else "state <> 'success' AND state = ?", wanted.state)
    for column in ("function", "worker", "client"):
        if value := getattr(wanted, column):
            add(f"{column} = ?", value)
    if wanted.graph:
        add("graph IS NOT NULL AND graph = ?", wanted.graph)
    if wanted.tag:
        add("tags IS NOT NULL AND EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)", wanted.tag)
    if wanted.text:
        like = f"%{_escaped(wanted.text)}%"
        columns = ("function", "node", "error", "task")
        add("(" + " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in columns) + ")", *[like] * len(columns))
    if wanted.since:
        add("changed >= ?", wanted.since)
    if wanted.until:
        add("changed < ?", wanted.until)
    return conditions, values


def _page(index: Index, conditions: list[str], values: list[Any], before: int, after: int, limit: int) -> Rows:
    """One page by keyset: rows older than `before`, or those just newer than `after`, or the newest."""
    place: list[str] = []
    if after:
        place, values = ["id > ?"], [*values, after]
    elif before:
        place, values = ["id < ?"], [*values, before]
    where = " AND ".join([*conditions, *place]) or "1"
    order = "ASC" if after else "DESC"
    found = index.select(f"SELECT * FROM tasks WHERE {where} ORDER BY id {order} LIMIT ?", (*values, limit + 1))
    more = len(found) > limit
    found = found[:limit]
    if after:
        found.reverse()
        if not more and len(found) < limit:  # the newest page is always a full one
            return _page(index, conditions, values[:-1], 0, 0, limit)
        return Rows(found, newer=more, older=True)
    return Rows(found, newer=bool(before), older=more)


def find_tasks(index: Index, wanted: TaskFilter, *, before: int = 0, after: int = 0, limit: int = 50) -> Rows:
    """The tasks that the filter lets through, newest first: `limit` of them, older than the row `before`."""
    found = _page(index, *_conditions(wanted), before, after, limit)
    return found._replace(rows=[_row(row) for row in found.rows])


def task_of(index: Index, task: str) -> TaskRow | None:
    """One task; None when history does not know it."""
    found = index.select("SELECT * FROM tasks WHERE task = ?", (task,))
    return _row(found[0]) if found else None


def tasks_of(index: Index, tasks: Iterable[str]) -> dict[str, TaskRow]:
    """Those of these tasks that history knows, at most 100."""
    some = list(tasks)[:NEEDED_SHOWN]
    marks = ", ".join("?" * len(some))
    return {row[1]: _row(row) for row in index.select(f"SELECT * FROM tasks WHERE task IN ({marks})", some)}


def dependents_of(index: Index, task: TaskRow, limit: int = NEEDED_SHOWN) -> list[TaskRow]:
    """Tasks of the same client that need this one."""
    number = task.task.rpartition(".")[2].lstrip("0") or "0"
    found = index.select(
        "SELECT * FROM tasks WHERE id > ? AND client = ? AND needs IS NOT NULL "
        "AND instr(replace(replace(needs, '[', ','), ']', ','), ?) ORDER BY id LIMIT ?",
        (task.id, task.client, f",{number},", limit),
    )
    return [_row(row) for row in found]


class Totals(NamedTuple):
    """What the index holds."""

    tasks: int
    changes: int
    first_at: int
    behind: int


def totals(index: Index, behind: int) -> Totals:
    """How much history there is."""
    (tasks,), (changes,) = index.select("SELECT count(*) FROM tasks UNION ALL SELECT count(*) FROM changes")
    return Totals(tasks, changes, index.first_at, behind)


def failures_by_client(index: Index) -> dict[str, int]:
    """How many tasks of each client the history knows as failed; clients without any are left out."""
    found = index.select(
        "SELECT client, count(*) FROM tasks WHERE state IN ('failed', 'failed_worker_died') AND state <> 'success' "
        "GROUP BY client"
    )
    return dict(found)
