"""Events: every change of every task of the history, newest first, and what is missing between them."""

from __future__ import annotations

from typing import Any

from gristmill.protocol.states import Event
from gristmill.snapshot import SHOWN_STATES
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.history.events import EventFilter, EventRow, find_events, gaps
from gristmill_web.history.tasks import totals
from gristmill_web.history.tracked import SUBMITTED
from gristmill_web.moments import moment_of
from gristmill_web.pages.task import why
from gristmill_web.pages.tasks import MOST_FOR_PROGRAMS, limit_of, row_number
from gristmill_web.queries import Query

EVENTS_A_PAGE = 100
EVENT_NAMES = (SUBMITTED, *(event.value for event in Event))
FILTERS = ("task", "state", "event", "function", "worker", "client")


def show(request: Request) -> Shown:
    """One page of the changes that the filter lets through."""
    allowed: dict[str, Any] = {**dict.fromkeys(FILTERS), "state": SHOWN_STATES, "event": EVENT_NAMES}
    allowed |= dict.fromkeys(("from", "to", "before", "after", "limit"))
    query = Query.of("events", request.arguments, filters=allowed)
    history = request.history
    wanted = EventFilter(
        **{name: query[name].strip() for name in FILTERS}, since=moment_of(query["from"]), until=moment_of(query["to"])
    )
    found = find_events(
        history.index,
        wanted,
        before=row_number(query["before"]),
        after=row_number(query["after"]),
        limit=limit_of(query["limit"], EVENTS_A_PAGE, MOST_FOR_PROGRAMS),
    )
    held = totals(history.index, history.behind)
    return Shown(
        values={
            "events": found,
            "wanted": wanted,
            "held": held,
            "any_filter": wanted != EventFilter(),
            "states": SHOWN_STATES,
            "event_names": EVENT_NAMES,
            "why": why,
        },
        plain={
            "events": [plain(row) for row in found.rows],
            "older": found.rows[-1].id if found.rows and found.older else None,
            "newer": found.rows[0].id if found.rows and found.newer else None,
            "gaps": [gap._asdict() for gap in gaps(history.index)],
            "history": held._asdict(),
        },
        query=query,
        now=history.now,
        problem=history.problem,
    )


def plain(row: EventRow) -> dict[str, Any]:
    """One change for programs."""
    return {**row._asdict(), "gap": row.gap._asdict() if row.gap else None}


PAGE = Page("events", "/events", "Events", show, controls="events_controls.html")
