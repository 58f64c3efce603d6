"""One task: its life, its attempts with their tracebacks, what it needs and who needs it, and its record in Redis."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

from gristmill.errors import UnknownTaskError
from gristmill.protocol.states import TERMINAL, Event
from gristmill.snapshot import TaskDetail, check_task_id
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.history.events import EventRow, Story, story_of
from gristmill_web.history.index import Index
from gristmill_web.history.tasks import NEEDED_SHOWN, TaskRow, dependents_of, task_of, tasks_of
from gristmill_web.queries import Query

_TERMINAL = frozenset(state.value for state in TERMINAL)
MOMENTS = ("submitted",)
"""Fields of the record that are times (Redis's clock, ms)."""


class Attempt(NamedTuple):
    """One try at running the task, as its changes tell it."""

    number: int
    worker: str
    assigned: int | None
    ended: int | None
    """When it had an outcome or was taken back."""
    state: str
    """The state that the attempt has led to; empty while it goes on."""
    event: str
    duration_us: int | None
    cpu_us: int | None
    memory: int | None
    error: str
    traceback: str


class Relative(NamedTuple):
    """A task that this one needs, or that needs this one."""

    task: str
    row: TaskRow | None
    """None when history does not know it."""


def attempts_of(story: Story) -> list[Attempt]:
    """The attempts, newest first."""
    found: dict[int, Attempt] = {}
    for change in story.changes:
        if not change.attempt:
            continue
        known = found.get(change.attempt) or Attempt(
            change.attempt, change.worker, None, None, "", "", None, None, None, "", ""
        )
        if change.state == "running" and known.assigned is None:
            known = known._replace(assigned=change.at, worker=change.worker)
        elif change.state in _TERMINAL or change.state == "inactive":
            known = known._replace(
                ended=change.at,
                worker=known.worker or change.worker,
                state=change.state,
                event=change.event,
                duration_us=change.duration_us or None,
                cpu_us=change.cpu_us if change.duration_us else None,
                memory=change.memory or None,
                error=change.error or "",
            )
        found[change.attempt] = known._replace(traceback=story.tracebacks.get(change.attempt, ""))
    return [found[number] for number in sorted(found, reverse=True)]


def _relatives(index: Index, task: TaskRow | None, detail: TaskDetail) -> tuple[list[Relative], int, list[Relative]]:
    """(what it needs, how many more, who needs it)."""
    needs = detail.record.get("needs", "").split()
    if not needs and task is not None:
        needs = [f"{task.client}.{number:07}" for number in task.needs]
    known = tasks_of(index, needs)
    parents = [Relative(one, known.get(one)) for one in needs[:NEEDED_SHOWN]]
    children = [Relative(row.task, row) for row in dependents_of(index, task)] if task is not None else []
    return parents, max(0, len(needs) - NEEDED_SHOWN), children


def show(request: Request) -> Shown:
    """Everything that is known about one task."""
    name = request.place["task"]
    query = Query.of("task", request.arguments, task=name)
    try:
        check_task_id(name)
    except UnknownTaskError as error:
        return _unknown(query, str(error))
    history = request.history
    look = request.board.look("task", name, lambda: _Read(name, request.snapshot.task(name, with_story=False)))
    # Better nothing than the record of another task, which a board may keep while Redis is away.
    detail = look.value.detail if look.value is not None and look.value.task == name else None
    index = history.index
    row = task_of(index, name)
    if row is None and (detail is None or not detail.record):
        problem = look.problem or history.problem
        return _unknown(query, "Redis has no record of it, and history does not know it.", history.now, problem)
    detail = detail or _without_record(name)
    story = story_of(index, name)
    state = _state(row, detail)
    parents, more_parents, children = _relatives(index, row, detail)
    attempts = attempts_of(story)
    relatives = {"needs": parents, "needed_by": children}
    task = {"task": name, "state": state, "function": (row.function if row else "") or detail.function}
    return Shown(
        values={
            "task": task,
            "row": row,
            "detail": detail,
            "story": story,
            "attempts": attempts,
            "parents": parents,
            "more_parents": more_parents,
            "children": children,
            "moments": MOMENTS,
            "why": why,
        },
        plain={
            **task,
            "summary": row._asdict() if row else None,
            "record": detail.record,
            "call": asdict(detail.call) if detail.call else None,
            "value": asdict(detail.value) if detail.value else None,
            "waits": detail.waits,
            "changes": [_plain_change(change) for change in story.changes],
            "complete": story.complete,
            "attempts": [attempt._asdict() for attempt in attempts],
            **{
                name: [{"task": one.task, "state": one.row.state if one.row else None} for one in some]
                for name, some in relatives.items()
            },
            "redis_cli": list(detail.recipes),
        },
        query=query,
        now=history.now,
        problem=look.problem or history.problem,
        news=state,
        title=f"Task {name}",
    )


class _Read(NamedTuple):
    task: str
    detail: TaskDetail


def _state(row: TaskRow | None, detail: TaskDetail) -> str:
    """The record is of now, what history knows may be half a second old; an end is an end."""
    if row is not None and row.ended is not None:
        return row.state
    return detail.state or (row.state if row else "")


def _without_record(task: str) -> TaskDetail:
    return TaskDetail(
        task=task, known=True, state="", function="", record={}, call=None, value=None, waits="", dependents=0,
        story=(), story_complete=False, recipes=(),
    )  # fmt: skip


def _unknown(query: Query, reason: str, now: int = 0, problem: str = "") -> Shown:
    return Shown(
        values={"task": None, "reason": reason}, plain={}, query=query, now=now, problem=problem, final=True,
        status=503 if problem else 404, title="Unknown task",
    )  # fmt: skip


def why(change: EventRow) -> str:
    """The sentence of the event that brought a change; empty when history does not know it."""
    if change.event == "Submitted":
        return "Its client submitted it." + (" A worker had room." if change.state == "running" else "")
    try:
        return Event(change.event).sentence
    except ValueError:
        return ""


def _plain_change(change: EventRow) -> dict[str, Any]:
    gap = change.gap._asdict() if change.gap else None
    return {**change._asdict(), "why": why(change), "gap": gap}


PAGE = Page("task", "/tasks/<task>", "Task", show, in_navigation=False)
