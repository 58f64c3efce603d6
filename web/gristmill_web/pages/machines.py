"""The machines on which workers run."""

from __future__ import annotations

from dataclasses import asdict

from gristmill.snapshot import MACHINE_SORTS, machines_of
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.queries import Query, paged

MACHINES_A_PAGE = 50


def show(request: Request) -> Shown:
    """A row a host."""
    query = Query.of("machines", request.arguments, sorts=tuple(MACHINE_SORTS))
    look = request.memory.fleet(request.board)
    fleet = look.value
    machines = machines_of(fleet.workers) if fleet else []
    machines.sort(key=MACHINE_SORTS[query.sort], reverse=query.descending)
    part = paged(machines, query.page, MACHINES_A_PAGE)
    return Shown(
        values={"part": part, "known": fleet is not None},
        plain={"page": part.page, "pages": part.pages, "machines": [asdict(machine) for machine in part.rows]},
        query=query,
        now=fleet.now if fleet else 0,
        problem=look.problem,
    )


PAGE = Page("machines", "/machines", "Machines", show)
