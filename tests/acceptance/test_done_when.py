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


def wait_for(futures: list[Future], least: int) -> None:
    wait_until(lambda: sum(future.done() for future in futures) >= least, f"{least} tasks are done")


def test_killing_two_of_three_schedulers_in_the_middle_loses_nothing_and_runs_nothing_twice(
    start_cluster: Starter, tmp_path: Path
) -> None:
    # No worker is lost here: a lease that ended by itself would run what was executing twice.
    cluster = start_cluster(schedulers=3, workers=2, worker_options={"worker_lease_seconds": 60.0})
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start_and_work, str(log), str(number), 0.001) for number in range(TASKS)]
        for scheduler, share in zip(cluster.schedulers[:2], (0.1, 0.3), strict=True):
            wait_for(futures, int(TASKS * share))
            scheduler.kill()
            scheduler.wait()
            assert not all(future.done() for future in futures), "the kill came too late to prove anything"

        assert client.gather(futures, timeout=120) == [str(number) for number in range(TASKS)]
    assert Counter(tasks.started_lines(log)) == Counter(str(number) for number in range(TASKS))


@pytest.mark.parametrize("kind", ["schedulers", "workers"])
def test_killing_them_one_after_the_other_and_starting_others_loses_nothing(
    start_cluster: Starter, tmp_path: Path, kind: str
) -> None:
    # Workers that are killed are missed soon; where none is, none may be missed.
    lease = {"workers": 3.0, "schedulers": 60.0}[kind]
    cluster = start_cluster(schedulers=2, workers=2, worker_options={"worker_lease_seconds": lease})
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start_and_work, str(log), str(number), 0.001) for number in range(TASKS)]
        for share in (0.1, 0.3, 0.5):
            wait_for(futures, int(TASKS * share))
            victim = getattr(cluster, kind).pop(0)
            victim.kill()
            victim.wait()
            (cluster.add_scheduler if kind == "schedulers" else cluster.add_worker)()

        assert client.gather(futures, timeout=120) == [str(number) for number in range(TASKS)]
    counted = Counter(tasks.started_lines(log))
    assert set(counted) == {str(number) for number in range(TASKS)}
    if kind == "schedulers":
        assert counted.total() == TASKS
