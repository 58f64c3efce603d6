"""H48 to H51: what runs first, and where."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill import Client, LocalCluster
from gristmill.snapshot import Snapshot
from support import tasks
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def test_h48_an_urgent_task_starts_before_those_that_came_first(client: Client, tmp_path: Path) -> None:
    """A few hundred tasks wait for two workers; one of priority 10 starts after the few that are already delivered."""
    log = tmp_path / "log"
    futures = [client.submit(tasks.note_start_and_work, str(log), str(number), 0.05) for number in range(200)]
    wait_until(lambda: len(tasks.started_lines(log)) >= 20, "they are being worked off", timeout=30)
    urgent = client.options(priority=10).submit(tasks.note_start, str(log), "urgent")
    client.flush(timeout=30)
    before = len(tasks.started_lines(log))
    urgent.result(timeout=30)

    assert tasks.started_lines(log).index("urgent") <= before + 20
    client.cancel(futures, timeout=30)


def test_h49_short_tasks_are_not_stuck_behind_long_ones_while_a_worker_idles(
    start_cluster: Starter,
) -> None:
    """Long and short tasks alternate on two workers: each worker does its share of the long ones."""

    def sleep_and_tell(seconds: float) -> int:
        import os
        import time

        time.sleep(seconds)
        return os.getpid()

    cluster = start_cluster()
    with Client(cluster) as client:
        client.map(abs, range(10))
        seconds = [0.4 if number % 2 == 0 else 0.01 for number in range(16)]
        pids = client.gather([client.submit(sleep_and_tell, much) for much in seconds], timeout=60)
    # Had they been dealt out beforehand, one worker would have had all the long ones.
    long_ones = Counter(pids[::2])
    assert len(long_ones) == 2
    assert max(long_ones.values()) <= 5, long_ones


def test_h50_a_task_that_nobody_can_run_says_what_is_missing(
    start_cluster: Starter, snapshot: Snapshot, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Without a worker that offers gpu: people are shown which capability is missing, the client logs it, other tasks
    overtake, and the task runs when such a worker comes."""
    cluster = start_cluster(workers=1)
    with Client(cluster) as client:
        future = client.options(capabilities=["gpu"]).submit(abs, -1)
        assert client.map(abs, range(-20, 0), timeout=30) == list(range(20, 0, -1))
        alerts = wait_until(
            lambda: [one for one in snapshot.alerts() if one.code == "lane-unserved"], "an alert says so", timeout=10
        )
        assert "gpu" in alerts[0].text
        wait_until(lambda: "gpu" in caplog.text, "the client logs what is missing", timeout=15)
        assert not future.done()
        cluster.add_worker(capabilities="gpu")

        assert future.result(timeout=30) == 1


def test_h51_higher_goes_first_and_what_is_no_priority_is_refused(start_cluster: Starter, tmp_path: Path) -> None:
    """Shuffled priorities behind a blocked slot: 50, 7, then 0 and none in their order, then -5."""
    cluster = start_cluster(workers=1, schedulers=1)
    log, gate = tmp_path / "log", tmp_path / "gate"
    with Client(cluster) as client:
        client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "the slot is taken", timeout=30)
        blocked = client.submit(tasks.note_start, str(log), "assigned")
        wanted: list[tuple[str, int | None]] = [
            (f"{priority}.{at}", priority) for at in range(3) for priority in (-5, 0, None, 7, 50)
        ]
        random.Random(51).shuffle(wanted)
        futures = []
        for name, priority in wanted:
            calls = client if priority is None else client.options(priority=priority)
            futures.append(calls.submit(tasks.note_start, str(log), name))
        for wrong in (1001, -1001, 1.5, "high"):
            with pytest.raises((ValueError, TypeError), match="priority"):
                client.options(priority=wrong)
        client.flush(timeout=30)
        gate.touch()
        client.gather([blocked, *futures], timeout=30)

    def names(*priorities: int | None) -> list[str]:
        return [name for name, priority in wanted if priority in priorities]

    lines = [line for line in tasks.started_lines(log) if line != "assigned"]
    assert lines == [*names(50), *names(7), *names(0, None), *names(-5)]
