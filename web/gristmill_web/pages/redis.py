"""Redis itself."""

from __future__ import annotations

from dataclasses import asdict

from gristmill.snapshot import redis_cli
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.queries import Query


def show(request: Request) -> Shown:
    """Version, memory, persistence, streams."""
    query = Query.of("redis", request.arguments)
    look = request.board.look("redis", "", request.snapshot.server)
    return Shown(
        values={"picture": look.value, "command": redis_cli(request.snapshot.address)},
        plain={"redis": asdict(look.value) if look.value else None},
        query=query,
        now=look.value.now if look.value else 0,
        problem=look.problem,
    )


PAGE = Page("redis", "/redis", "Redis", show)
