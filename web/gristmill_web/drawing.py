"""Drawing a graph: nodes in columns by how many others must come before them; a large one by function. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gristmill_web.history.graphs import Node

NODES_DRAWN = 300
EDGES_DRAWN = 1200
WORST_FIRST = (
    "failed", "failed_worker_died", "canceled", "canceled_not_found", "unseen", "canceling", "running",
    "balance_canceling", "inactive", "success",
)  # fmt: skip
"""Which state a group shows: the one that asks for attention."""
WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 132, 26, 56, 10, 8
"""Of a box, of the space between columns and rows, and around all: units of the drawing."""
LETTERS = 18


class Box(NamedTuple):
    """One node, or one group of nodes."""

    id: str
    x: int
    y: int
    label: str
    title: str
    state: str
    task: str
    """The task to which it leads; empty for a group."""


class Drawing(NamedTuple):
    """What is drawn, in units of the SVG."""

    boxes: list[Box]
    edges: list[str]
    """Each the `d` of a path."""
    width: int
    height: int
    grouped: bool
    """Whether a box is all the tasks of a function."""
    edges_left_out: int


def draw(nodes: Sequence[Node]) -> Drawing:
    """The graph as boxes and lines; by function when it has more nodes than can be told apart."""
    needs = {node.task: list(node.needs) for node in nodes}
    depth = depths(needs)
    if len(nodes) > NODES_DRAWN:
        return _by_function(nodes, depth)
    order = [(node.task, depth[node.task]) for node in nodes]
    by_task = {node.task: node for node in nodes}
    places = _places(order, needs)
    boxes = [
        Box(
            f"node-{task}", *place, _short(by_task[task].name),
            f"{by_task[task].name}: {by_task[task].function}, {by_task[task].state}"
            + (f": {by_task[task].error}" if by_task[task].error else ""),
            by_task[task].state, task,
        )
        for task, place in places.items()
    ]  # fmt: skip
    edges = [(parent, task) for task, parents in needs.items() for parent in parents if parent in by_task]
    return _drawing(boxes, edges, places, grouped=False)


def _by_function(nodes: Sequence[Node], depth: Mapping[str, int]) -> Drawing:
    states: dict[str, Counter[str]] = defaultdict(Counter)
    levels: dict[str, list[int]] = defaultdict(list)
    function_of = {node.task: node.function for node in nodes}
    pairs: set[tuple[str, str]] = set()
    for node in nodes:
        states[node.function][node.state] += 1
        levels[node.function].append(depth[node.task])
        pairs |= {(function_of[one], node.function) for one in node.needs if one in function_of}
    # Functions may need each other in a circle: each stands where half of its tasks do, and lines lead forward.
    middle = {function: sorted(found)[len(found) // 2] for function, found in levels.items()}
    columns = {level: column for column, level in enumerate(sorted(set(middle.values())))}
    shown = sorted(states, key=lambda function: (middle[function], -sum(states[function].values())))[:NODES_DRAWN]
    edges = sorted((one, other) for one, other in pairs if one in shown and other in shown and one != other)
    parents: dict[str, list[str]] = defaultdict(list)
    for one, other in edges:
        parents[other].append(one)
    places = _places([(function, columns[middle[function]]) for function in shown], parents)
    boxes = []
    for function, place in places.items():
        counts = states[function]
        worst = next((state for state in WORST_FIRST if counts[state]), "inactive")
        told = ", ".join(f"{number:,} {state}" for state, number in counts.most_common())
        label = _short(f"{sum(counts.values()):,} \N{MULTIPLICATION SIGN} {function}")
        boxes.append(Box(f"group-{function}", *place, label, f"{function}: {told}", worst, ""))
    return _drawing(boxes, edges, places, grouped=True)


def depths(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How many others must come before each, one after the other; without recursion, and circles end it."""
    depth: dict[str, int] = {}
    for start in needs:
        path = [start]
        open_ones = {start}
        while path:
            task = path[-1]
            unknown = [one for one in needs[task] if one in needs and one not in depth and one not in open_ones]
            if unknown and task not in depth:
                path.append(unknown[0])
                open_ones.add(unknown[0])
                continue
            if task not in depth:
                depth[task] = 1 + max((depth.get(one, -1) for one in needs[task] if one in needs), default=-1)
            open_ones.discard(path.pop())
    return depth


def _places(order: Sequence[tuple[str, int]], needs: Mapping[str, Sequence[str]]) -> dict[str, tuple[int, int]]:
    """Where each stands: in its column, near what it needs."""
    columns: dict[int, list[str]] = defaultdict(list)
    for name, column in order:
        columns[column].append(name)
    row: dict[str, float] = {}
    for column in sorted(columns):
        wanted = {
            name: sum(near) / len(near)
            if (near := [row[one] for one in needs.get(name, ()) if one in row])
            else float(at)
            for at, name in enumerate(columns[column])
        }
        columns[column].sort(key=lambda name: wanted[name])
        row.update({name: float(at) for at, name in enumerate(columns[column])})
    return {
        name: (MARGIN + column * (WIDTH + ACROSS), MARGIN + at * (HEIGHT + DOWN))
        for column, names in columns.items()
        for at, name in enumerate(names)
    }


def _drawing(
    boxes: list[Box], edges: Sequence[tuple[str, str]], places: Mapping[str, tuple[int, int]], *, grouped: bool
) -> Drawing:
    paths = []
    for parent, child in edges[:EDGES_DRAWN]:
        (x1, y1), (x2, y2) = places[parent], places[child]
        x1, y1, y2 = x1 + WIDTH, y1 + HEIGHT // 2, y2 + HEIGHT // 2
        bend = max(ACROSS // 2, abs(x2 - x1) // 3)
        paths.append(f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}")
    width = max((box.x + WIDTH for box in boxes), default=0) + MARGIN
    height = max((box.y + HEIGHT for box in boxes), default=0) + MARGIN
    return Drawing(boxes, paths, width, height, grouped, max(0, len(edges) - EDGES_DRAWN))


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
