"""The clients, and what they have submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from gristmill.snapshot import Client
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.history.tasks import failures_by_client
from gristmill_web.queries import Query, paged

CLIENTS_READ = 2000
CLIENTS_A_PAGE = 50
READ_SECONDS = 2.0


@dataclass(frozen=True)
class Row(Client):
    """A client, with what the history knows of its tasks."""

    finished: int
    """Submitted and ended, in whatever way."""
    failed: int
    """Of those that the history knows."""


SORTS: dict[str, Callable[[Row], Any]] = {
    "client": lambda client: client.client,
    "host": lambda client: (client.host, client.pid),
    "name": lambda client: client.name,
    "tasks": lambda client: client.unfinished,
    "submitted": lambda client: client.submitted,
    "finished": lambda client: client.finished,
    "failed": lambda client: client.failed,
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
    history = request.history
    failures = request.board.look("clients failures", "", lambda: failures_by_client(history.index)).value or {}
    rows = [
        Row(**asdict(one), finished=max(0, one.submitted - one.unfinished), failed=failures.get(one.client, 0))
        for one in look.value or ()
    ]
    part = paged(sorted(rows, key=SORTS[query.sort], reverse=query.descending), query.page, CLIENTS_A_PAGE)
    return Shown(
        values={"part": part, "known": look.value is not None},
        plain={
            "total": part.total,
            "page": part.page,
            "pages": part.pages,
            "clients": [asdict(client) for client in part.rows],
        },
        query=query,
        now=history.clock,
        problem=look.problem,
    )


PAGE = Page("clients", "/clients", "Clients", show)
