"""H48 to H51: what runs first, and where."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill import Client, Future, LocalCluster
from gristmill.snapshot import Snapshot
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def test_h48_an_urgent_task_starts_before_those_that_came_first(
    client: Client, shared_cluster: LocalCluster, shared_database: Database, shared_snapshot: Snapshot, tmp_path: Path
) -> None:
    """A few hundred tasks wait for two workers; one of priority 10 starts after the few that are already delivered."""
    log = tmp_path / "log"
    keys = shared_cluster.keys

    def delivered() -> int:
        return sum(shared_database.length(keys.worker_tasks(one)) for one in shared_database.zset(keys.workers()))

    futures = [client.submit(tasks.note_start_and_work, str(log), str(number), 0.05) for number in range(400)]
    wait_until(lambda: len(tasks.started_lines(log)) >= 20, "they are being worked off")
    # Had earlier tests run short ones, far more were delivered at first; they go back as soon as somebody sees to it.
    wait_until(lambda: delivered() <= 24, "as few are delivered as tasks of this length should be")
    urgent = client.options(priority=10).submit(tasks.note_start, str(log), "urgent")
    # From when a scheduler knows it; by then others have started.
    wait_until(lambda: shared_snapshot.task(urgent.task_id).known, "it has been submitted")
    before = len(tasks.started_lines(log))
    urgent.result(timeout=60)

    # Delivered are five at each worker, and up to twice as many before those go back.
    assert tasks.started_lines(log).index("urgent") <= before + 30
    client.cancel(futures, timeout=60)


def test_h49_short_tasks_are_not_stuck_behind_long_ones_while_a_worker_idles(
    start_cluster: Starter, tmp_path: Path
) -> None:
    """Long and short tasks alternate on two workers: each worker has a long one at the same time. Behind a single long
    one no short one waits until it has ended."""
    cluster = start_cluster(worker_options=LONG_LEASE)
    with Client(cluster) as client:

        def wait_for(gate: str, at: int) -> Future:
            return client.submit(tasks.wait_for_file, str(tmp_path / f"{gate}.{at}"), str(tmp_path / gate))

        client.map(abs, range(10))
        # Had they been dealt out beforehand, one worker would have all the long ones.
        long_ones, short_ones = [], []
        for at in range(8):
            long_ones.append(wait_for("gate", at))
            short_ones.append(client.submit(tasks.sleep_long, 0.01))
        wait_until(lambda: len(list(tmp_path.glob("gate.*"))) == 2, "each worker executes a long one")
        (tmp_path / "gate").touch()
        client.gather(short_ones, timeout=60)
        assert len(set(client.gather(long_ones, timeout=60))) == 2

        # Short ones have run last, so processors read several at a time; and half of these would lie behind it.
        client.map(abs, range(200))
        long_one = wait_for("other", 0)
        short_ones = [client.submit(tasks.sleep_long, 0.01) for _ in range(16)]
        client.gather(short_ones, timeout=60)
        assert not long_one.done()
        (tmp_path / "other").touch()
        long_one.result(timeout=60)


def test_h50_a_task_that_nobody_can_run_says_what_is_missing(
    start_cluster: Starter, snapshot: Snapshot, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Without a worker that offers gpu: people are shown which capability is missing, the client logs it, other tasks
    overtake, and the task runs when such a worker comes."""
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    with Client(cluster) as client:
        future = client.options(capabilities=["gpu"]).submit(abs, -1)
        assert client.map(abs, range(-20, 0), timeout=30) == list(range(20, 0, -1))
        alerts = wait_until(
            lambda: [one for one in snapshot.alerts() if one.code == "lane-unserved"], "an alert says so"
        )
        assert "gpu" in alerts[0].text
        wait_until(lambda: "gpu" in caplog.text, "the client logs what is missing")
        assert not future.done()
        cluster.add_worker(capabilities="gpu")

        assert future.result(timeout=30) == 1


def test_h51_higher_goes_first_and_what_is_no_priority_is_refused(
    start_cluster: Starter, snapshot: Snapshot, tmp_path: Path
) -> None:
    """Shuffled priorities behind a blocked slot: 50, 7, then 0 and none in their order, then -5."""
    # One task waits at the worker, and its processor reads one at a time, for they are not short: none is given back.
    cluster = start_cluster(workers=1, schedulers=1, worker_options={**LONG_LEASE, "queue_size": 1})
    log, gate = tmp_path / "log", tmp_path / "gate"
    with Client(cluster) as client:
        client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "the slot is taken", timeout=30)
        blocked = client.submit(tasks.note_start_and_work, str(log), "assigned", 0.03)
        wanted: list[tuple[str, int | None]] = [
            (f"{priority}.{at}", priority) for at in range(3) for priority in (-5, 0, None, 7, 50)
        ]
        random.Random(51).shuffle(wanted)
        futures = []
        for name, priority in wanted:
            calls = client if priority is None else client.options(priority=priority)
            futures.append(calls.submit(tasks.note_start_and_work, str(log), name, 0.03))
        for wrong in (1001, -1001, 1.5, "high"):
            with pytest.raises((ValueError, TypeError), match="priority"):
                client.options(priority=wrong)
        wait_until(lambda: snapshot.counts().states["inactive"] == len(futures), "all wait in their lane")
        gate.touch()
        client.gather([blocked, *futures], timeout=60)

    def names(*priorities: int | None) -> list[str]:
        return [name for name, priority in wanted if priority in priorities]

    lines = [line for line in tasks.started_lines(log) if line != "assigned"]
    assert lines == [*names(50), *names(7), *names(0, None), *names(-5)]
