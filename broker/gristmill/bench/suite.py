"""The full suite: every figure that Gristmill holds itself to, beside the process pool's of the same run.

A row has a bar, and says whether it is met here and now. Nothing fails by missing it: a figure depends on the machine
and on its mood, and tests are not the place for it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from gristmill.bench import workloads
from gristmill.bench.clock import WrongValueError, cpu_seconds, processes_below, submit_loop
from gristmill.bench.figures import Figures
from gristmill.bench.fleet import dispatch_cost
from gristmill.bench.pool import PoolProcess
from gristmill.bench.tasks import noop
from gristmill.bench.viewers import Viewers

if TYPE_CHECKING:
    from gristmill import Client, LocalCluster

Announce = Callable[[str], None]

MORE_TASKS = 100_000
MOST_TASKS = 1_000_000
FEW_WORKERS, MANY_WORKERS = 2, 1_000
FLEET_TASKS = 3_000
STARTS = 3
IDLE_SECONDS = 10.0
VIEWERS, VIEW_SECONDS = 20, 2.0
VIEWED_TURNS = 8
VIEWED_TASKS = 20_000
_SETTLE_SECONDS = 2.0
_MB = 1_000_000


@dataclass(frozen=True)
class Row:
    """One figure."""

    name: str
    """Its key in the JSON: may not change."""
    what: str
    value: float
    unit: str
    bar: float
    """What Gristmill holds itself to."""
    at_least: bool = False
    """Whether the bar is the least that will do; else it is the most."""
    pool: float | None = None
    """The process pool's, in the same unit, where it has one."""

    @property
    def met(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar


def run_suite(figures: Figures, workers: int, announce: Announce) -> list[Row]:
    """The rows, after the base run has given `figures`. Raises WrongValueError when a value is not what it must be."""
    rows = list(_base_rows(figures))
    rows += _with_cluster(figures, workers, announce)
    announce("an idle cluster")
    rows += _idle(workers)
    announce("starting a cluster")
    rows.append(Row("start_s", "start of a cluster of 2 to the first result", _start(), "s", 0.6))
    announce("importing")
    rows.append(Row("import_ms", "import gristmill", _import_ms(), "ms", 120))
    announce(f"dispatch with {MANY_WORKERS:,} workers")
    few, many = dispatch_cost(FEW_WORKERS, FLEET_TASKS), dispatch_cost(MANY_WORKERS, FLEET_TASKS)
    rows.append(
        Row("many_workers", f"dispatch of a task, {MANY_WORKERS:,} workers over {FEW_WORKERS}", many / few, "x", 1.2)
    )
    announce(f"{VIEWERS} viewers of the page")
    rows.append(Row("viewers_percent", f"throughput lost to {VIEWERS} viewers", _viewers(workers), "%", 3))
    return rows


def _base_rows(figures: Figures) -> Iterator[Row]:
    ours, pool = figures.latency_ms, figures.pool_latency_ms
    ratio = figures.submit_tasks_per_s / figures.pool_submit_tasks_per_s
    yield Row("submit_ratio", f"submit loop of {figures.tasks:,}, over the pool's", ratio, "x", 2.5, True, 1.0)
    yield Row(
        "map_items_per_s", f"map of {figures.map_items:,}", figures.map_items_per_s, "items/s", 300_000, True,
        figures.pool_map_items_per_s,
    )  # fmt: skip
    yield Row("latency_p50_ms", "round trip of one, p50", ours["p50"], "ms", 0.7, pool=pool["p50"])
    yield Row("latency_p99_ms", "round trip of one, p99", ours["p99"], "ms", 2.0, pool=pool["p99"])
    yield Row("queued_bytes", "Redis memory of a queued task", figures.redis_bytes_per_queued_task, "bytes", 600)


def _with_cluster(figures: Figures, workers: int, announce: Announce) -> Iterator[Row]:
    from gristmill import Client, LocalCluster

    with PoolProcess(workers) as pool, LocalCluster(workers=workers) as cluster, Client(cluster) as client:
        submit_loop(client.submit, 2_000)
        announce("tasks of 1 ms")
        ideal = workloads.SPIN_TASKS * workloads.SPIN_MS / 1000 / workers
        yield Row(
            "spin_percent", f"{workloads.SPIN_TASKS:,} tasks of 1 ms, of the ideal",
            100 * ideal / workloads.spin_tasks(client.submit), "%", 90, True, 100 * ideal / pool.workload("spin"),
        )  # fmt: skip
        announce("payloads")
        yield Row(
            "payloads_s", f"{workloads.PAYLOADS} tasks, 1 MB in and out", workloads.payloads(client.submit), "s", 1.1,
            pool=pool.workload("payloads"),
        )  # fmt: skip
        announce("a shared argument")
        yield Row(
            "shared_s", f"100 MB shared by {workloads.SHARED_TASKS} tasks", workloads.shared_argument(client.submit),
            "s", 0.5, pool=pool.workload("shared"),
        )  # fmt: skip
        announce("graphs")
        yield Row("layers_s", "graph, 10 wide and 100 deep", _graph(client, workloads.layered_graph()), "s", 0.3)
        yield Row("tree_s", "tree of 1,024 leaves", _graph(client, workloads.tree_graph()), "s", 0.3)
        for name, tasks in (("submit_100k", MORE_TASKS), ("submit_1m", MOST_TASKS)):
            announce(f"{tasks:,} tasks")
            speed = tasks / submit_loop(client.submit, tasks)
            yield Row(
                name, f"submit loop of {tasks:,}, over that of {figures.tasks:,}", speed / figures.submit_tasks_per_s,
                "x", 0.85, True,
            )  # fmt: skip


def _graph(client: Client, made: Any) -> float:
    return statistics.median(workloads.run_graph(client.get, made) for _ in range(3))


def _idle(workers: int) -> Iterator[Row]:
    from gristmill import Client, LocalCluster

    with LocalCluster(workers=workers, web=True) as cluster, Client(cluster) as client:
        client.submit(noop, 1).result()
        time.sleep(_SETTLE_SECONDS)
        before = {pid: cpu_seconds(pid) for pid in _pids(cluster)}
        time.sleep(IDLE_SECONDS)
        used = sum(cpu_seconds(pid) - seconds for pid, seconds in before.items())
        yield Row("idle_percent", "CPU of an idle cluster", 100 * used / IDLE_SECONDS, "% of a core", 1)
        agent = cluster.workers[0].pid
        for name, what, pid, bar in (
            ("scheduler_mb", "a scheduler", cluster.schedulers[0].pid, 45),
            ("agent_mb", "a worker's agent", agent, 45),
            ("processor_mb", "an idle processor", processes_below(agent)[0], 40),
        ):
            yield Row(name, f"memory of {what}", psutil.Process(pid).memory_info().rss / _MB, "MB", bar)


def _pids(cluster: LocalCluster) -> list[int]:
    assert cluster.redis is not None
    roots = [cluster.redis.pid, *(program.pid for program in cluster.processes)]
    return [pid for root in roots for pid in (root, *processes_below(root))]


def _start() -> float:
    from gristmill import Client, LocalCluster

    seconds = []
    for _ in range(STARTS):
        started = time.perf_counter()
        with LocalCluster(workers=2) as cluster, Client(cluster) as client:
            if client.submit(noop, 1).result() != 1:
                raise WrongValueError("expected 1 from the first task")
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _import_ms() -> float:
    program = "import time; t = time.perf_counter(); import gristmill; gristmill.Client; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", program]
    took = [float(subprocess.run(command, check=True, capture_output=True, env=os.environ).stdout) for _ in range(5)]
    return 1000 * statistics.median(took)


def _viewers(workers: int) -> float:
    """By turns with and without, because what else the machine does comes and goes; per cent of the throughput.

    Both after the same rest: a cluster that has just worked is some per cent faster.
    """
    from gristmill import Client, LocalCluster

    lost = []
    with LocalCluster(workers=workers, web=True) as cluster, Client(cluster) as client:
        submit_loop(client.submit, VIEWED_TASKS)
        for _ in range(VIEWED_TURNS):
            time.sleep(VIEW_SECONDS)
            alone = submit_loop(client.submit, VIEWED_TASKS)
            with Viewers(f"{cluster.web_url.rstrip('/')}/fragments/overview", VIEWERS, VIEW_SECONDS):
                time.sleep(VIEW_SECONDS)
                lost.append(1 - alone / submit_loop(client.submit, VIEWED_TASKS))
    return 100 * statistics.median(lost)


def as_json(rows: list[Row]) -> dict[str, Any]:
    """What `--json` has of them, by name."""
    return {
        row.name: {
            "what": row.what,
            "value": round(row.value, 4),
            "unit": row.unit,
            "bar": row.bar,
            "met": row.met,
            "process_pool": None if row.pool is None else round(row.pool, 4),
        }
        for row in rows
    }
