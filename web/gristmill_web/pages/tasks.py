"""Tasks: every task of the history, filtered by its address, newest first."""

from __future__ import annotations

import re
from typing import Any

from gristmill.snapshot import SHOWN_STATES
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.history import UNSEEN
from gristmill_web.history.tasks import TaskFilter, TaskRow, find_tasks, totals
from gristmill_web.moments import moment_of
from gristmill_web.queries import Query

STATES = (*SHOWN_STATES, UNSEEN)
TASKS_A_PAGE = 50
MOST_FOR_PROGRAMS = 500
FILTERS = ("find", "state", "function", "worker", "client", "graph", "tag", "text")
_ROW = re.compile(r"[0-9]{1,15}\Z")


def show(request: Request) -> Shown:
    """One page of the tasks that the filter lets through."""
    allowed = {**dict.fromkeys(FILTERS), "from": None, "to": None, "before": None, "after": None, "limit": None}
    query = Query.of("tasks", request.arguments, filters={**allowed, "state": STATES})
    history = request.history
    wanted = TaskFilter(
        **{name: query[name].strip() for name in FILTERS}, since=moment_of(query["from"]), until=moment_of(query["to"])
    )
    found = find_tasks(
        history.index,
        wanted,
        before=row_number(query["before"]),
        after=row_number(query["after"]),
        limit=limit_of(query["limit"], TASKS_A_PAGE, MOST_FOR_PROGRAMS),
    )
    held = totals(history.index, history.behind)
    return Shown(
        values={"tasks": found, "wanted": wanted, "held": held, "states": STATES},
        plain={
            "tasks": [plain(row) for row in found.rows],
            "older": found.rows[-1].id if found.rows and found.older else None,
            "newer": found.rows[0].id if found.rows and found.newer else None,
            "history": held._asdict(),
        },
        query=query,
        now=history.now,
        problem=history.problem,
        news=f"{query['state']} tasks" if query["state"] else "",
    )


def row_number(value: str) -> int:
    """The row of an address behind which a page begins; 0 when there is none."""
    return int(value) if _ROW.match(value) else 0


def limit_of(value: str, usual: int, most: int) -> int:
    """How many rows an address asks for."""
    return max(1, min(int(value), most)) if _ROW.match(value) else usual


def plain(row: TaskRow) -> dict[str, Any]:
    """One task for programs."""
    return row._asdict()


PAGE = Page("tasks", "/tasks", "Tasks", show, controls="tasks_controls.html")
