"""Priority, balance and namespaces, as tasks on real workers feel them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gristmill import Client, LocalCluster
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def test_an_urgent_task_starts_before_a_thousand_that_wait(start_cluster: Starter) -> None:
    cluster = start_cluster(workers=2)
    with Client(cluster) as client:
        crowd = [client.submit(tasks.sleep_long, 0.2) for _ in range(1000)]
        client.flush()
        wait_until(lambda: crowd[6].done(), "the crowd is being worked off")
        began = time.monotonic()
        client.options(priority=10).submit(abs, -1).result(timeout=60)
        waited = time.monotonic() - began
        client.cancel(crowd)

    assert waited < 50  # behind the crowd it would be 100 s


def test_tasks_of_one_client_start_in_their_order(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(workers=1, schedulers=1, worker_options=LONG_LEASE)
    in_order = 0
    with Client(cluster) as client:
        for turn in range(20):
            log = tmp_path / f"log{turn}"
            futures = [client.submit(tasks.note_start, str(log), str(number)) for number in range(1000)]
            client.gather(futures)
            # What waits behind a task for which the machine had no time goes back to its lane, and may come behind
            # others.
            steady = {number for number, future in enumerate(futures) if future.profiling_info().attempt == 1}
            started = [int(line) for line in tasks.started_lines(log)]
            assert sorted(started) == list(range(1000))
            assert [number for number in started if number in steady] == sorted(steady)
            in_order = max(in_order, len(steady))
            if in_order > 100:
                break

    assert in_order > 100


def test_a_worker_that_joins_takes_over_what_has_not_started(start_cluster: Starter, tmp_path: Path) -> None:
    # Were the lease of the busy one to end, the other would get its task too.
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    with Client(cluster) as client:
        client.map(abs, range(2000))  # short ones: the queue of the worker grows
        gate = tmp_path / "gate"
        blocker = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "the only worker is busy")
        others = [client.submit(tasks.pid) for _ in range(20)]
        client.flush()
        cluster.add_worker()

        elsewhere = client.gather(others, timeout=60)
        assert not blocker.done()
        gate.touch()
        assert blocker.result(timeout=60) not in elsewhere


def test_short_tasks_do_not_wait_behind_a_long_one_while_a_worker_idles(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(workers=2)
    with Client(cluster) as client:
        client.map(abs, range(2000))  # short ones: the queues of the workers grow
        gate = tmp_path / "gate"
        long = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        short = [client.submit(tasks.sleep_long, 0.01) for _ in range(20)]

        assert client.gather(short, timeout=60) == [0.01] * 20
        assert not long.done()
        gate.touch()
        long.result(timeout=60)


def test_a_task_runs_only_where_its_capabilities_are(start_cluster: Starter) -> None:
    cluster = start_cluster(workers=1)
    cluster.add_worker(capabilities="gpu=1", name="with-gpu")
    with Client(cluster) as client:
        view = client.options(capabilities=["gpu"])
        futures = [view.submit(abs, -number) for number in range(20)]

        assert client.gather(futures, timeout=60) == list(range(20))
        assert {"with-gpu" in future.worker for future in futures} == {True}


def test_a_task_waits_for_a_worker_that_can_run_it(start_cluster: Starter) -> None:
    cluster = start_cluster(workers=1)
    with Client(cluster) as client:
        future = client.options(capabilities={"gpu": 1}).submit(abs, -1)
        assert client.map(abs, range(100)) == list(range(100))
        assert not future.done()
        cluster.add_worker(capabilities="gpu=1")

        assert future.result(timeout=60) == 1


def test_two_namespaces_in_one_redis_do_not_mix(start_cluster: Starter, namespace: str, database: Database) -> None:
    clusters = [start_cluster(namespace=f"{namespace}-{which}", workers=1, schedulers=1) for which in "ab"]
    with Client(clusters[0]) as first, Client(clusters[1]) as second:
        ours = [first.submit(tasks.parent_pid) for _ in range(50)]
        theirs = [second.submit(tasks.parent_pid) for _ in range(50)]

        assert set(first.gather(ours, timeout=60)) == {clusters[0].workers[0].pid}
        assert set(second.gather(theirs, timeout=60)) == {clusters[1].workers[0].pid}
    prefixes = tuple(cluster.keys.prefix for cluster in clusters)
    everything = database.keys()
    assert [key for key in everything if not key.startswith(prefixes)] == []
