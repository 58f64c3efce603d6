"""The overview: counts, alerts, workers, schedulers and the newest tasks.

`/` is the whole page, `/fragments/overview` what it polls: the same regions, read together, so that all figures are of
one moment. `/api/status` has the same for programs.
"""

from __future__ import annotations

from typing import Any

import orjson
from flask import Blueprint, Response, current_app, render_template, request

from gristmill.snapshot import SHOWN_STATES
from gristmill_web.board import Board, Query, View
from gristmill_web.pages import health

page = Blueprint("overview", __name__)

NOW_STATES = SHOWN_STATES[:4]
ENDED_STATES = SHOWN_STATES[4:]


def board() -> Board:
    """The application's board."""
    found: Board = current_app.extensions["gristmill_board"]
    return found


def _context() -> dict[str, Any]:
    query = Query.of(request.args.to_dict())
    view = board().view(query)
    return {
        "view": view,
        "seen": view.overview,
        "query": query,
        "now_states": NOW_STATES,
        "ended_states": ENDED_STATES,
        "news": _news(view),
    }


def _news(view: View) -> str:
    """What the tab's title says: that something is wrong, or how much runs."""
    if view.problem:
        return "Redis is away"
    if view.overview is None:
        return ""
    errors = sum(alert.level == "error" for alert in view.overview.alerts)
    if errors:
        return "1 error" if errors == 1 else f"{errors} errors"
    return f"{view.overview.counts.states['running']:,} running"


@page.get("/")
def whole() -> Response | str:
    """The whole page; HEAD is the health check, and costs as little."""
    if request.method == "HEAD":
        return health.health()
    return render_template("overview.html", **_context())


@page.get("/fragments/overview")
def fragment() -> str:
    """The regions alone, and the title."""
    return render_template("fragment.html", **_context())


@page.get("/api/status")
def status() -> Response:
    """What the page shows, as JSON; 503 with the last known figures when Redis is away."""
    view = board().view(Query.of(request.args.to_dict()))
    body = {
        "version": 1,
        "problem": view.problem,
        "finished_per_s": view.finished_per_s,
        "overview": view.overview.plain() if view.overview else None,
    }
    return Response(orjson.dumps(body), status=503 if view.problem else 200, mimetype="application/json")
