"""Measures one system, in its own environment: `python measure.py NAME`; one line of JSON for each figure.

Nothing of Gristmill is imported here: each system has an installation of its own.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from system import WORKERS, System
from tasks import add

BULK = LOOP = 10_000
ROUNDS = 500
SPINS = 5_000
PAYLOADS, PAYLOAD_BYTES = 200, 1_000_000
WIDTH, DEPTH, LEAVES = 10, 100, 1024
REPETITIONS = 5
PATIENCE_SECONDS = 30.0
"""A workload that has taken so long is not repeated."""


def repeated(once: Callable[[], float]) -> float:
    """The median of some repetitions, in seconds."""
    began, seconds = time.perf_counter(), []
    while len(seconds) < REPETITIONS and (not seconds or time.perf_counter() - began < PATIENCE_SECONDS):
        seconds.append(once())
    return statistics.median(seconds)


def timed(run: Callable[[], list[Any]], expected: list[Any]) -> float:
    """Seconds; raises when a value is not what it must be."""
    began = time.perf_counter()
    values = run()
    seconds = time.perf_counter() - began
    if list(values) != expected:
        raise RuntimeError("wrong values")
    return seconds


def bulk(system: System) -> dict[str, float]:
    """No-ops by the call for many."""
    numbers = list(range(BULK))
    return {"bulk_tasks_per_s": BULK / repeated(lambda: timed(lambda: system.bulk("noop", numbers), numbers))}


def loop(system: System) -> dict[str, float]:
    """No-ops, submitted one by one."""
    numbers = list(range(LOOP))
    return {"loop_tasks_per_s": LOOP / repeated(lambda: timed(lambda: system.loop("noop", numbers), numbers))}


def latency(system: System) -> dict[str, float]:
    """One no-op after the other."""
    milliseconds = []
    for number in range(ROUNDS):
        milliseconds.append(1000 * timed(lambda: system.results([system.submit("noop", number)]), [number]))  # noqa: B023
        if sum(milliseconds) > 1000 * PATIENCE_SECONDS:
            break
    ordered = sorted(milliseconds)
    return {"p50_ms": ordered[len(ordered) // 2], "p99_ms": ordered[int(len(ordered) * 0.99)]}


def spin(system: System) -> dict[str, float]:
    """Tasks of 1 ms CPU."""
    numbers = list(range(SPINS))
    seconds = repeated(lambda: timed(lambda: system.bulk("spin", numbers), numbers))
    return {"spin_percent": 100 * SPINS * 0.001 / WORKERS / seconds}


def payload(system: System) -> dict[str, float]:
    """1 MB in, 1 MB out."""
    data = [number.to_bytes(4, "big") * (PAYLOAD_BYTES // 4) for number in range(PAYLOADS)]
    return {"payload_s": repeated(lambda: timed(lambda: system.loop("echo", data), data))}


def layers(system: System) -> dict[str, float]:
    """A graph 10 wide and 100 deep; each node needs three of the layer before."""
    graph: dict[str, Any] = {f"0-{column}": (add, column) for column in range(WIDTH)}
    row = list(range(WIDTH))
    for layer in range(1, DEPTH):
        row = [row[at] + row[(at + 1) % WIDTH] + row[(at + 2) % WIDTH] for at in range(WIDTH)]
        for column in range(WIDTH):
            graph[f"{layer}-{column}"] = (add, *(f"{layer - 1}-{(column + step) % WIDTH}" for step in range(3)))
    keys = [f"{DEPTH - 1}-{column}" for column in range(WIDTH)]
    return {"layers_s": repeated(lambda: timed(lambda: system.graph(graph, keys), row))}


def tree(system: System) -> dict[str, float]:
    """1,024 leaves, added up in pairs."""
    graph: dict[str, Any] = {f"0-{number}": (add, number) for number in range(LEAVES)}
    level, width = 0, LEAVES
    while width > 1:
        level, width = level + 1, width // 2
        for number in range(width):
            graph[f"{level}-{number}"] = (add, f"{level - 1}-{2 * number}", f"{level - 1}-{2 * number + 1}")
    expected = [sum(range(LEAVES))]
    return {"tree_s": repeated(lambda: timed(lambda: system.graph(graph, [f"{level}-0"]), expected))}


WORKLOADS = {function.__name__: function for function in (bulk, loop, latency, spin, payload, layers, tree)}
GRAPHS = ("layers", "tree")


def main(name: str, workload: str) -> None:
    """One workload on one system."""
    began = time.perf_counter()
    system: System = importlib.import_module(f"with_{name}").SYSTEM
    try:
        system.start()
        timed(lambda: system.results([system.submit("noop", 1)]), [1])
        found = {"start_s": time.perf_counter() - began}
        for number in range(20):
            system.results([system.submit("noop", number)])
        system.bulk("noop", list(range(200)))
        if workload not in GRAPHS or system.has_graphs:
            found |= WORKLOADS[workload](system)
        print(json.dumps(found), flush=True)
    finally:
        system.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
