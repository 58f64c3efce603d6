"""The clients, and what they have submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gristmill.snapshot import Client
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.queries import Query, paged

CLIENTS_READ = 2000
CLIENTS_A_PAGE = 50
READ_SECONDS = 2.0

SORTS: dict[str, Callable[[Client], Any]] = {
    "client": lambda client: client.client,
    "host": lambda client: (client.host, client.pid),
    "name": lambda client: client.name,
    "tasks": lambda client: client.unfinished,
    "submitted": lambda client: client.submitted,
    "cpu": lambda client: client.cpu_percent or 0.0,
    "rss": lambda client: client.rss_bytes or 0,
    "latency": lambda client: client.latency_ms or 0.0,
    "connected": lambda client: client.registered,
    "seen": lambda client: client.seen,
}


def show(request: Request) -> Shown:
    """A row a client."""
    query = Query.of("clients", request.arguments, sorts=tuple(SORTS))
    look = request.board.glance(
        "clients", lambda: request.snapshot.clients(per_page=CLIENTS_READ), max_age_seconds=READ_SECONDS
    )
    clients = sorted(look.value or (), key=SORTS[query.sort], reverse=query.descending)
    part = paged(clients, query.page, CLIENTS_A_PAGE)
    return Shown(
        values={"part": part, "known": look.value is not None},
        plain={
            "total": part.total,
            "page": part.page,
            "pages": part.pages,
            "clients": [asdict(client) for client in part.rows],
        },
        query=query,
        now=request.history.clock,
        problem=look.problem,
    )


PAGE = Page("clients", "/clients", "Clients", show)
