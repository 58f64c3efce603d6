"""The workloads of the full suite, each run alike by the cluster and by the process pool, with every value checked.

All take a `submit` and give seconds. Who gives them a pool of processes must have warmed it up.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from gristmill.bench.clock import Submit, WrongValueError
from gristmill.bench.tasks import add, echo, length, spin

SPIN_TASKS, SPIN_MS = 5_000, 1.0
PAYLOADS, PAYLOAD_BYTES = 200, 1_000_000
SHARED_TASKS, SHARED_BYTES = 100, 100_000_000
LAYERS, WIDTH = 100, 10
LEAVES = 1_024

Graph = dict[str, Any]


def spin_tasks(submit: Submit) -> float:
    """5,000 tasks of 1 ms CPU."""
    started = time.perf_counter()
    futures = [submit(spin, SPIN_MS) for _ in range(SPIN_TASKS)]
    values = [future.result() for future in futures]
    seconds = time.perf_counter() - started
    _expect(values, [SPIN_MS] * SPIN_TASKS)
    return seconds


def payloads(submit: Submit) -> float:
    """200 tasks with 1 MB in and 1 MB out. No two are equal: what is seen before could be kept."""
    sent = [number.to_bytes(4, "big") * (PAYLOAD_BYTES // 4) for number in range(PAYLOADS)]
    started = time.perf_counter()
    futures = [submit(echo, data) for data in sent]
    values = [future.result() for future in futures]
    seconds = time.perf_counter() - started
    _expect(values, [data[::-1] for data in sent])
    return seconds


def shared_argument(submit: Submit) -> float:
    """One argument of 100 MB that 100 tasks look at."""
    data = bytes(SHARED_BYTES)
    started = time.perf_counter()
    futures = [submit(length, data, number) for number in range(SHARED_TASKS)]
    values = [future.result() for future in futures]
    seconds = time.perf_counter() - started
    _expect(values, [SHARED_BYTES + number for number in range(SHARED_TASKS)])
    return seconds


def layered_graph() -> tuple[Graph, list[str], list[int]]:
    """10 wide and 100 deep: each node adds three of the layer before. With the keys wanted, and their values."""
    graph: Graph = {f"seed-{column}": column for column in range(WIDTH)}
    graph |= {f"0-{column}": (add, f"seed-{column}") for column in range(WIDTH)}
    row = list(range(WIDTH))
    for layer in range(1, LAYERS):
        for column in range(WIDTH):
            graph[f"{layer}-{column}"] = (add, *(f"{layer - 1}-{(column + step) % WIDTH}" for step in range(3)))
        row = [sum(row[(column + step) % WIDTH] for step in range(3)) for column in range(WIDTH)]
    return graph, [f"{LAYERS - 1}-{column}" for column in range(WIDTH)], row


def tree_graph() -> tuple[Graph, list[str], list[int]]:
    """1,024 leaves, added in pairs up to the root."""
    graph: Graph = {f"seed-{number}": number for number in range(LEAVES)}
    graph |= {f"0-{number}": (add, f"seed-{number}") for number in range(LEAVES)}
    level, width = 0, LEAVES
    while width > 1:
        level, width = level + 1, width // 2
        for number in range(width):
            graph[f"{level}-{number}"] = (add, f"{level - 1}-{2 * number}", f"{level - 1}-{2 * number + 1}")
    return graph, [f"{level}-0"], [sum(range(LEAVES))]


def run_graph(get: Any, made: tuple[Graph, list[str], list[int]]) -> float:
    """A graph by `get(graph, keys)`."""
    graph, keys, expected = made
    started = time.perf_counter()
    values = get(graph, keys)
    seconds = time.perf_counter() - started
    _expect([values[key] for key in keys], expected)
    return seconds


def _expect(values: Sequence[Any], expected: Sequence[Any]) -> None:
    wrong = [at for at, (value, right) in enumerate(zip(values, expected, strict=True)) if value != right]
    if wrong:
        raise WrongValueError(f"expected the values of {len(expected):,} tasks; got {len(wrong):,} wrong ones")
