"""Graphs: how far each is, and a drawing of one."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.snapshot import SHOWN_STATES
from gristmill_web.drawing import HEIGHT, WIDTH, Drawing, draw
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.history import UNSEEN, History
from gristmill_web.history.graphs import GraphRow, Node, find_graphs, nodes_of
from gristmill_web.queries import Query

STATES = (*SHOWN_STATES[4:], UNSEEN, *SHOWN_STATES[1:4], SHOWN_STATES[0])
"""In the order in which a bar is filled: what has ended first."""
FAILURES_SHOWN = 20


@dataclass(frozen=True)
class Seen:
    """One graph, read once for all who look at it."""

    row: GraphRow
    nodes: list[Node]
    drawing: Drawing


def show(request: Request) -> Shown:
    """A row a graph, the newest first."""
    query = Query.of("graphs", request.arguments)
    history = request.history
    look = request.board.look("graphs", "", lambda: find_graphs(history.index))
    graphs = look.value or []
    return Shown(
        values={"graphs": graphs, "states": STATES},
        plain={"total": len(graphs), "graphs": [{**row._asdict(), "nodes": row.nodes} for row in graphs]},
        query=query,
        now=history.clock,
        problem=history.problem or look.problem,
    )


def show_one(request: Request) -> Shown:
    """One graph: its counts, what has failed in it, and the drawing."""
    graph = request.place["graph"]
    query = Query.of("graph", request.arguments, graph=graph)
    history = request.history
    look = request.board.look("graph", graph, lambda: _read(history, graph))
    seen = look.value if look.value and look.value.row.graph == graph else None
    unended = sum(seen.row.states.get(state, 0) for state in SHOWN_STATES[:4]) if seen else 0
    failed = [node for node in seen.nodes if node.state in ("failed", "failed_worker_died")] if seen else []
    return Shown(
        values={
            "graph": graph, "seen": seen, "failed": failed[:FAILURES_SHOWN], "failed_more": failed[FAILURES_SHOWN:],
            "states": STATES, "unended": unended, "box_width": WIDTH, "box_height": HEIGHT,
        },
        plain={
            "graph": {**seen.row._asdict(), "nodes": seen.row.nodes} if seen else None,
            "tasks": [node._asdict() for node in seen.nodes] if seen else [],
        },
        query=query,
        now=history.clock,
        problem=history.problem or look.problem,
        news=f"{unended:,} to go" if unended else "",
        status=200 if seen else 404,
        title=f"Graph {graph}",
    )  # fmt: skip


def _read(history: History, graph: str) -> Seen | None:
    found = find_graphs(history.index, graph=graph)
    if not found:
        return None
    nodes = nodes_of(history.index, graph)
    return Seen(found[0], nodes, draw(nodes))


PAGE = Page("graphs", "/graphs", "Graphs", show)
ONE = Page("graph", "/graphs/<graph>", "Graph", show_one, in_navigation=False)
