"""The processors of each worker."""

from __future__ import annotations

from dataclasses import asdict

from gristmill.snapshot import Worker
from gristmill.snapshot.fleet import page_of
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.memory import gone_lately
from gristmill_web.queries import Query

WORKERS_A_PAGE = 20


def show(request: Request) -> Shown:
    """A table a worker; of one worker when the address names it."""
    query = Query.of("processors", request.arguments, filters={"worker": None})
    look = request.memory.fleet(request.board)
    fleet = look.value
    rows: tuple[Worker, ...] = ()
    page, pages, total = 1, 1, 0
    if fleet:
        everyone = [*fleet.workers, *gone_lately(fleet, request.preferences.gone)]
        wanted = [worker for worker in everyone if query["worker"] in ("", worker.worker, worker.name)]
        part = page_of(wanted, total=len(wanted), page=query.page, per_page=WORKERS_A_PAGE)
        rows, page, pages, total = part.rows, part.page, part.pages, part.total
    return Shown(
        values={"workers": rows, "page_number": page, "pages": pages, "total": total, "known": fleet is not None},
        plain={"page": page, "pages": pages, "total": total, "workers": [asdict(worker) for worker in rows]},
        query=query,
        now=fleet.now if fleet else 0,
        problem=look.problem,
    )


PAGE = Page("processors", "/processors", "Processors", show)
