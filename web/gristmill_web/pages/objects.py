"""The largest objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gristmill.snapshot import StoredObject
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.queries import Query, paged

OBJECTS_A_PAGE = 100
READ_SECONDS = 5.0

SORTS: dict[str, Callable[[StoredObject], Any]] = {
    "size": lambda row: -row.size_bytes,
    "object": lambda row: row.object,
    "kind": lambda row: row.kind,
    "client": lambda row: row.client,
    "holders": lambda row: row.holders,
}


def show(request: Request) -> Shown:
    """A row an object."""
    query = Query.of("objects", request.arguments, sorts=tuple(SORTS), filters={"client": None})
    look = request.board.glance("objects", request.snapshot.objects, max_age_seconds=READ_SECONDS)
    rows = [row for row in (look.value.rows if look.value else ()) if query["client"] in ("", row.client)]
    part = paged(sorted(rows, key=SORTS[query.sort], reverse=query.descending), query.page, OBJECTS_A_PAGE)
    return Shown(
        values={"part": part, "objects": look.value},
        plain={
            "total": look.value.total if look.value else None,
            "page": part.page,
            "pages": part.pages,
            "objects": [asdict(row) for row in part.rows],
        },
        query=query,
        now=request.history.clock,
        problem=look.problem,
    )


PAGE = Page("objects", "/objects", "Objects", show)
