"""The benchmark itself: a fresh cluster and a process pool, by turns."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gristmill._version import __version__
from gristmill.bench.clock import cpu_seconds, machine_time, map_all, processes_below, round_trips, submit_loop
from gristmill.bench.figures import Figures, difference
from gristmill.bench.pool import PoolProcess
from gristmill.bench.tasks import noop
from gristmill.cores import cores
from gristmill.store.connection import connect

if TYPE_CHECKING:
    import redis

    from gristmill import Client, LocalCluster

WARM_UP_TASKS = 2000
WARM_UP_ROUNDS = 50
QUEUED_WARM_UP = 100
SETTLE_SECONDS = 10.0
MAP_ITEMS = 100_000
"""Map gets ten times the tasks of the submit loop, else it is over before it can be timed, but no more than this."""

Announce = Callable[[str], None]


def run(tasks: int, workers: int, repetitions: int, rounds: int, announce: Announce) -> Figures:
    """Measure everything. Raises WrongValueError when a task gives another value than it must."""
    from gristmill import Client, LocalCluster

    announce("memory of queued tasks")
    bytes_per_task = queued_bytes(tasks)
    with PoolProcess(workers) as pool, LocalCluster(workers=workers) as cluster, Client(cluster) as client:
        store = connect(cluster.address)
        try:
            figures = Figures(machine(store), workers, tasks, max(tasks, min(10 * tasks, MAP_ITEMS)))
            figures.redis_bytes_per_queued_task = bytes_per_task
            submit_loop(client.submit, WARM_UP_TASKS)
            round_trips(client.submit, WARM_UP_ROUNDS)
            for repetition in range(1, repetitions + 1):
                # By turns: whatever else this machine does meets both alike.
                announce(f"repetition {repetition} of {repetitions}")
                measure_submit(figures, cluster, client, store)
                figures.pool_submit_seconds.append(pool.submit(tasks))
                figures.map_seconds.append(map_all(client.map, figures.map_items))
                figures.pool_map_seconds.append(pool.map(figures.map_items))
                figures.round_trips_ms.append(round_trips(client.submit, rounds))
                figures.pool_round_trips_ms.append(pool.latency(rounds))
        finally:
            store.close()
    return figures


def measure_submit(figures: Figures, cluster: LocalCluster, client: Client, store: redis.Redis) -> None:
    """One submit run, with the CPU time and the Redis commands that it took."""
    commands = store.info("commandstats")
    before = cpu_by_role(cluster)
    machine_before = machine_time()
    seconds = submit_loop(client.submit, figures.tasks)
    machine_after = machine_time()
    after = cpu_by_role(cluster)
    used = {role: _used(before[role], after[role]) for role in after}
    figures.submit_seconds.append(seconds)
    figures.cpu_seconds.append(used)
    other = machine_after.busy - machine_before.busy - sum(used.values())
    total = machine_after.total - machine_before.total
    figures.other_cpu_percent.append(max(0.0, 100 * other / total) if total else 0.0)
    figures.commands.append(difference(commands, store.info("commandstats"), figures.tasks))


def cpu_by_role(cluster: LocalCluster) -> dict[str, dict[int, float]]:
    """CPU seconds so far of each process, by role and pid."""
    assert cluster.redis is not None
    roots = {
        "client": [os.getpid()],
        "scheduler": [program.pid for program in cluster.schedulers],
        "redis": [cluster.redis.pid],
        "workers": [pid for worker in cluster.workers for pid in (worker.pid, *processes_below(worker.pid))],
    }
    return {role: {pid: cpu_seconds(pid) for pid in pids} for role, pids in roots.items()}


def _used(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Seconds in between; a process that came in between counts with all of its own."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


def queued_bytes(tasks: int) -> float:
    """Redis memory of one no-op that waits: what `tasks` of them add on a cluster without workers, divided."""
    from gristmill import Client, LocalCluster

    with LocalCluster(workers=0) as cluster, Client(cluster) as client:
        store = connect(cluster.address)
        try:
            futures = [client.submit(noop, number) for number in range(QUEUED_WARM_UP)]
            client.flush()
            before = settled_memory(store)
            futures += [client.submit(noop, number) for number in range(tasks)]
            client.flush()
            after = settled_memory(store)
        finally:
            store.close()
    return (after - before) / tasks


def settled_memory(store: redis.Redis) -> int:
    """Bytes that Redis uses once they no longer change from one look to the next."""
    deadline = time.monotonic() + SETTLE_SECONDS
    last, same = -1, 0
    while same < 3 and time.monotonic() < deadline:
        used = int(store.info("memory")["used_memory"])
        same = same + 1 if abs(used - last) < 4096 else 0
        last = used
        time.sleep(0.1)
    return last


def machine(store: redis.Redis) -> dict[str, Any]:
    """What the figures were measured on."""
    server = store.info("server")
    name, version = "redis", server["redis_version"]
    if "valkey_version" in server:
        name, version = "valkey", server["valkey_version"]
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "gristmill": __version__,
        "redis": f"{name} {version}",
    }


def cpu_model() -> str:
    """The processor's name; on Linux `platform` does not know it."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
