"""The overview: counts, alerts, schedulers, workers and the newest tasks."""

from __future__ import annotations

from dataclasses import replace

from gristmill.snapshot import SHOWN_STATES, WORKER_SORTS, Overview, overview_of
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.history.tasks import TaskFilter, find_tasks
from gristmill_web.memory import gone_lately
from gristmill_web.queries import Query

NOW_STATES = SHOWN_STATES[:4]
ENDED_STATES = SHOWN_STATES[4:]
WORKERS_A_PAGE = 50
TASKS_SHOWN = 10


def show(request: Request) -> Shown:
    """The overview of now, or the last one with the reason why there is no newer."""
    query = Query.of("overview", request.arguments, sorts=WORKER_SORTS)
    pulse, fleet = request.memory.pulse(request.board), request.memory.fleet(request.board)
    history = request.history
    tasks = find_tasks(history.index, TaskFilter(), limit=TASKS_SHOWN).rows
    problem = pulse.problem or fleet.problem or history.problem
    seen = None
    rates: dict[str, float] = {}
    if pulse.value and fleet.value:
        beat, rates = pulse.value
        team = replace(fleet.value, gone=gone_lately(fleet.value, request.preferences.gone))
        seen = overview_of(
            request.snapshot.keys, beat, team, page=query.page, per_page=WORKERS_A_PAGE, sort=query.sort,
            descending=query.descending,
        )  # fmt: skip
    return Shown(
        values={
            "seen": seen,
            "rates": rates,
            "tasks": tasks,
            "now_states": NOW_STATES,
            "ended_states": ENDED_STATES,
        },
        plain={
            "rates": rates,
            "overview": seen.plain() if seen else None,
            "tasks": [task._asdict() for task in tasks],
        },
        query=query,
        now=seen.now if seen else 0,
        problem=problem,
        news=_news(seen, problem),
    )


def _news(overview: Overview | None, problem: str) -> str:
    """What the tab's title says: that something is wrong, or how much runs."""
    if problem:
        return "Redis is away"
    if overview is None:
        return ""
    errors = sum(alert.level == "error" for alert in overview.alerts)
    if errors:
        return "1 error" if errors == 1 else f"{errors} errors"
    return f"{overview.counts.states['running']:,} running"


PAGE = Page("overview", "/", "Overview", show)
