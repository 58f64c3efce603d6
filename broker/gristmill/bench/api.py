"""What a program's calls take: every way of calling, measured one after the other on a fresh cluster."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gristmill.bench import workloads
from gristmill.bench.clock import WrongValueError, map_all, submit_loop
from gristmill.bench.suite import Row
from gristmill.bench.tasks import noop

if TYPE_CHECKING:
    from gristmill import Client, LocalCluster

Announce = Callable[[str], None]

MAP_ITEMS = 100_000
WARM_UP_TASKS = 2_000
REPETITIONS = 3
NESTED_NUMBER, NESTED_VALUE = 12, 144
ANSWER_SECONDS = 0.3
"""What connecting, submitting, the result and leaving may take each, on an idle cluster."""


def fibonacci(number: int) -> int:
    """By nested submits: two tasks for each call, which waits for them."""
    if number < 2:
        return number
    from gristmill import Client

    with Client() as client:
        futures = [client.submit(fibonacci, number - 1), client.submit(fibonacci, number - 2)]
        return sum(future.result() for future in futures)


def run_api(workers: int, announce: Announce) -> list[Row]:
    """The rows. Raises WrongValueError when a value is not what it must be."""
    from gristmill import Client, LocalCluster

    with LocalCluster(workers=workers) as cluster:
        rows = list(_answers(cluster))
        with Client(cluster) as client:
            submit_loop(client.submit, WARM_UP_TASKS)
            rows += _maps(client, announce)
            announce("graphs")
            made = workloads.layered_graph()
            seconds = statistics.median(workloads.run_graph(client.get, made) for _ in range(REPETITIONS))
            rows.append(Row("graph_s", "graph of 1,000 nodes, 10 wide and 100 deep", seconds, "s", 0.3))
            announce("nested tasks")
            began = time.perf_counter()
            value = client.submit(fibonacci, NESTED_NUMBER).result()
            seconds = time.perf_counter() - began
            if value != NESTED_VALUE:
                raise WrongValueError(f"expected fibonacci({NESTED_NUMBER}) to be {NESTED_VALUE}; got {value!r}")
            rows.append(Row("nested_s", f"fibonacci({NESTED_NUMBER}) by nested submits", seconds, "s", 10.0))
    return rows


def _answers(cluster: LocalCluster) -> Iterator[Row]:
    """One call on an idle cluster, step by step; the first of all is not counted."""
    from gristmill import Client

    steps: list[list[float]] = []
    for _ in range(1 + REPETITIONS):
        times = [time.perf_counter()]
        client = Client(cluster)
        times.append(time.perf_counter())
        future = client.submit(noop, 1)
        times.append(time.perf_counter())
        future.result()
        times.append(time.perf_counter())
        client.disconnect()
        times.append(time.perf_counter())
        steps.append([after - before for before, after in pairwise(times)])
    for at, (name, what) in enumerate(
        (
            ("connect_s", "connecting a client"),
            ("submit_s", "the first submit"),
            ("result_s", "its result"),
            ("disconnect_s", "leaving"),
        )
    ):
        yield Row(name, what, statistics.median(step[at] for step in steps[1:]), "s", ANSWER_SECONDS)


def _maps(client: Client, announce: Announce) -> Iterator[Row]:
    executor = client.executor()
    ways: tuple[tuple[str, str, Any, float], ...] = (
        ("map_items_per_s", "map", client.map, 300_000),
        ("imap_items_per_s", "imap, its window of 1,000", client.imap, 100_000),
        ("imap_unordered_items_per_s", "imap in any order", _sorted(client.imap_unordered), 100_000),
        ("executor_map_items_per_s", "map of the executor", executor.map, 300_000),
    )
    for name, what, mapping, bar in ways:
        announce(what)
        seconds = statistics.median(map_all(mapping, MAP_ITEMS) for _ in range(REPETITIONS))
        yield Row(name, f"{what}: {MAP_ITEMS:,} no-ops", MAP_ITEMS / seconds, "items/s", bar, True)


def _sorted(mapping: Any) -> Any:
    return lambda function, items: sorted(mapping(function, items))
