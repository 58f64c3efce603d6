"""The scheduler replicas, side by side."""

from __future__ import annotations

from dataclasses import asdict

from gristmill_web.frame import Page, Request, Shown
from gristmill_web.queries import Query


def show(request: Request) -> Shown:
    """A column a kind of request, a row a replica; and what waits for them."""
    query = Query.of("schedulers", request.arguments)
    fleet, pulse = request.memory.fleet(request.board), request.memory.pulse(request.board)
    schedulers = fleet.value.schedulers if fleet.value else ()
    beat = pulse.value[0] if pulse.value else None
    kinds = sorted({kind for scheduler in schedulers for kind in scheduler.requests})
    return Shown(
        values={"schedulers": schedulers, "kinds": kinds, "beat": beat, "known": fleet.value is not None},
        plain={
            "schedulers": [asdict(scheduler) for scheduler in schedulers],
            "backlog": beat.backlog if beat else None,
            "requests": beat.counts.requests if beat else None,
            "refused": beat.counts.refused if beat else None,
            "repaired": beat.counts.repaired if beat else None,
        },
        query=query,
        now=beat.now if beat else 0,
        problem=fleet.problem or pulse.problem,
    )


PAGE = Page("schedulers", "/schedulers", "Schedulers", show)
