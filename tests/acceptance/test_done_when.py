"""What must be true before the main job is called done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill import Client, Future, LocalCluster
from support import tasks
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]

TASKS = 5_000
LINES = [f"{number:04}" for number in range(TASKS)]


def wait_for(futures: list[Future], least: int) -> None:
    wait_until(lambda: sum(future.done() for future in futures) >= least, f"{least} tasks are done")


def submit_all(client: Client, log: Path, *halts: int) -> list[Future]:
    """All the tasks; when so many have started, they go on only when they are let."""
    return [client.submit(tasks.note_start_and_halt, str(log), line, 0.001, *halts) for line in LINES]


def test_killing_two_of_three_schedulers_in_the_middle_loses_nothing_and_runs_nothing_twice(
    start_cluster: Starter, tmp_path: Path
) -> None:
    # No worker is lost here: a lease that ended by itself would run what was executing twice.
    cluster = start_cluster(schedulers=3, workers=2, worker_options={"worker_lease_seconds": 60.0})
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = submit_all(client, log, 1000, 2000)
        for scheduler, least, halt in zip(cluster.schedulers[:2], (500, 1500), (1000, 2000), strict=True):
            wait_for(futures, least)
            scheduler.kill()
            scheduler.wait()
            assert not all(future.done() for future in futures), "the kill came too late to prove anything"
            tasks.gate_of(log, halt).touch()

        assert client.gather(futures, timeout=120) == LINES
    assert Counter(tasks.started_lines(log)) == Counter(LINES)


@pytest.mark.parametrize("kind", ["schedulers", "workers"])
def test_killing_them_one_after_the_other_and_starting_others_loses_nothing(
    start_cluster: Starter, tmp_path: Path, kind: str
) -> None:
    # Workers that are killed are missed soon; where none is, none may be missed.
    lease = {"workers": 3.0, "schedulers": 60.0}[kind]
    cluster = start_cluster(schedulers=2, workers=2, worker_options={"worker_lease_seconds": lease})
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = submit_all(client, log, 1000, 2000, 3000)
        for least, halt in ((500, 1000), (1500, 2000), (2500, 3000)):
            wait_for(futures, least)
            victim = getattr(cluster, kind).pop(0)
            victim.kill()
            victim.wait()
            tasks.gate_of(log, halt).touch()
            (cluster.add_scheduler if kind == "schedulers" else cluster.add_worker)()

        assert client.gather(futures, timeout=120) == LINES
    counted = Counter(tasks.started_lines(log))
    assert set(counted) == set(LINES)
    if kind == "schedulers":
        assert counted.total() == TASKS
