"""Graphs: progress, failures first, a drawing of up to 300 tasks, by function above."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gristmill_web.drawing import EDGES_DRAWN, NODES_DRAWN, depths, draw
from gristmill_web.history.graphs import Node
from support.seeding import Seeding
from support.waiting import wait_until

if TYPE_CHECKING:
    from flask.testing import FlaskClient


def node(name: str, *needs: str, function: str = "f", state: str = "success") -> Node:
    return Node(name, name, function, state, "", needs)


def test_each_stands_behind_what_it_needs() -> None:
    assert depths({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c", "gone"], "e": []}) == {
        "a": 0, "b": 1, "c": 1, "d": 2, "e": 0
    }  # fmt: skip


def test_a_deep_graph_needs_no_recursion_and_a_circle_no_end() -> None:
    deep = {str(n): [str(n - 1)] if n else [] for n in range(20_000, -1, -1)}
    assert depths(deep)["20000"] == 20_000
    assert set(depths({"a": ["b"], "b": ["a"]})) == {"a", "b"}


def test_a_small_graph_is_drawn_task_by_task() -> None:
    drawing = draw([node("a"), node("b", "a"), node("c", "a", state="failed"), node("d", "b", "c", state="inactive")])

    assert not drawing.grouped
    places = {box.task: (box.x, box.y) for box in drawing.boxes}
    assert places["a"][0] < places["b"][0] == places["c"][0] < places["d"][0]
    assert len(set(places.values())) == 4
    assert len(drawing.edges) == 4
    assert all(box.x + 1 < drawing.width and box.y + 1 < drawing.height for box in drawing.boxes)


def test_a_large_graph_is_drawn_by_function_with_the_state_that_asks_for_attention() -> None:
    nodes = [node(f"l{n}", function="load") for n in range(NODES_DRAWN)]
    nodes += [node(f"p{n}", f"l{n}", function="price", state="failed" if n == 7 else "success") for n in range(200)]
    nodes.append(node("sum", *(f"p{n}" for n in range(200)), function="total", state="inactive"))

    drawing = draw(nodes)

    assert drawing.grouped
    assert [(re.sub(r"\W+", " ", box.label), box.state) for box in drawing.boxes] == [
        ("300 load", "success"),
        ("200 price", "failed"),
        ("1 total", "inactive"),
    ]
    assert len(drawing.edges) == 2


def test_lines_are_bounded() -> None:
    nodes = [node(f"a{n}") for n in range(100)]
    nodes += [node(f"b{n}", *(f"a{m}" for m in range(100))) for n in range(100)]

    drawing = draw(nodes)

    assert len(drawing.edges) == EDGES_DRAWN
    assert drawing.edges_left_out == 10_000 - EDGES_DRAWN


@pytest.fixture
def graphs(page: FlaskClient, seeding: Seeding) -> FlaskClient:
    """The page, which has read of one graph."""
    worker = "mill-1|1|w1|r"
    about = [{"graph": "g1", "key": key, "needs": needs} for key, needs in (("load", []), ("tax", [1]), ("sum", [2]))]
    seeding.changes(
        *((f"c.000000{n}", "inactive", 0, "", function, *[None] * 4, about[n - 1])
          for n, function in ((1, "shop.load"), (2, "shop.tax"), (3, "shop.sum")))
    )  # fmt: skip
    seeding.changes(("c.0000001", "success", 1, worker, "shop.load", 10, 10, 10))
    seeding.changes(("c.0000002", "failed", 1, worker, "shop.tax", 10, 10, 10, "ValueError: no"))
    wait_until(lambda: "g1" in page.get("/graphs").text, "the graph is read")
    return page


def test_the_list_says_how_far_each_is(graphs: FlaskClient) -> None:
    (row,) = graphs.get("/api/v1/graphs").get_json()["graphs"]

    assert (row["graph"], row["client"], row["nodes"]) == ("g1", "c", 3)
    assert row["states"] == {"success": 1, "failed": 1, "inactive": 1}
    assert re.search(r'aria-label="1 of 3 succeeded"', graphs.get("/graphs").text)


def test_one_graph_shows_what_failed_and_what_needs_what(graphs: FlaskClient) -> None:
    html = graphs.get("/graphs/g1").text

    assert "ValueError: no" in html
    assert html.count('class="node"') == 3
    assert html.count('class="edge"') == 2
    assert '/tasks/c.0000002"' in html
    tasks = graphs.get("/api/v1/graphs/g1").get_json()["tasks"]
    assert [(task["name"], task["needs"]) for task in tasks] == [
        ("load", []), ("tax", ["c.0000001"]), ("sum", ["c.0000002"])
    ]  # fmt: skip


def test_a_graph_that_history_does_not_know_is_not_there(graphs: FlaskClient) -> None:
    assert graphs.get("/graphs/never").status_code == 404
    assert graphs.get("/api/v1/graphs/never").status_code == 404
