"""Graphs: how far each is, and what needs what in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from gristmill_web.history.index import Index

GRAPHS_SHOWN = 50
NODES_READ = 20_000
"""Of a larger graph so many are read; its counts are of all."""


class GraphRow(NamedTuple):
    """One graph."""

    graph: str
    client: str
    states: dict[str, int]
    submitted: int | None
    changed: int

    @property
    def nodes(self) -> int:
        """How many of its tasks history knows."""
        return sum(self.states.values())


class Node(NamedTuple):
    """One task of a graph."""

    task: str
    name: str
    function: str
    state: str
    error: str
    needs: tuple[str, ...]
    """Ids of the tasks that it needs."""


def find_graphs(index: Index, *, limit: int = GRAPHS_SHOWN, graph: str = "") -> list[GraphRow]:
    """The newest graphs, or the one of that id, the newest first."""
    one = "AND graph = ?" if graph else ""
    found = index.select(
        "SELECT graph, client, state, count(*), min(submitted), max(changed), max(id) FROM tasks "
        f"WHERE graph IS NOT NULL {one} GROUP BY graph, client, state",
        (graph,) if graph else (),
    )
    graphs: dict[str, GraphRow] = {}
    newest: dict[str, int] = {}
    for name, client, state, tasks, submitted, changed, last in found:
        row = graphs.get(name) or GraphRow(name, client, {}, submitted, changed)
        known = [moment for moment in (row.submitted, submitted) if moment]
        first = min(known) if known else None
        graphs[name] = GraphRow(name, client, {**row.states, state: tasks}, first, max(row.changed, changed))
        newest[name] = max(newest.get(name, 0), last)
    return sorted(graphs.values(), key=lambda row: -newest[row.graph])[:limit]


def nodes_of(index: Index, graph: str, *, limit: int = NODES_READ) -> list[Node]:
    """The tasks of one graph in the order in which they were submitted."""
    found = index.select(
        "SELECT task, client, node, function, state, error, needs FROM tasks "
        "WHERE graph IS NOT NULL AND graph = ? ORDER BY id LIMIT ?",
        (graph, limit),
    )
    return [
        Node(task, node or task.rpartition(".")[2], function, state, error or "", _ids(client, needs))
        for task, client, node, function, state, error, needs in found
    ]


def _ids(client: str, needs: str | None) -> tuple[str, ...]:
    numbers: Sequence[int] = orjson.loads(needs) if needs else ()
    return tuple(f"{client}.{number:07d}" for number in numbers)
