"""The audit: what people have ordered, and what became of it."""

from __future__ import annotations

from dataclasses import asdict

from gristmill_web.frame import Page, Request, Shown
from gristmill_web.queries import Query

ORDERS_SHOWN = 200


def show(request: Request) -> Shown:
    """The newest orders."""
    query = Query.of("audit", request.arguments)
    look = request.board.look("audit", "", lambda: request.snapshot.audit(ORDERS_SHOWN))
    orders = look.value or ()
    return Shown(
        values={"orders": orders, "known": look.value is not None},
        plain={"orders": [asdict(order) for order in orders]},
        query=query,
        now=request.history.clock,
        problem=look.problem,
    )


PAGE = Page("audit", "/audit", "Audit", show)
