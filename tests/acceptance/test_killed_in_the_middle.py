"""200 tasks of 50 ms on two workers, and in the middle one process is killed: all 200 are right, within seconds, and
none of the finished ones runs again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gristmill import Client, Future, LocalCluster
from support import tasks
from support.database import Database
from support.invariants import wait_for_invariants
from support.leaks import Leaks
from support.server import RedisServer
from support.waiting import wait_until

TASKS = 200
SECONDS = 0.05
EXPECTED = [f"{number:03}" for number in range(TASKS)]
HALF = TASKS // 2
"""No more tasks go on until the process is killed."""

Kill = Callable[[LocalCluster, RedisServer], None]


@pytest.fixture
def cluster(no_leaks: Leaks, own_server: RedisServer, kill: Kill) -> Iterator[LocalCluster]:
    """Two workers and a scheduler on a Redis that keeps its data."""
    scheduler = {"takeover_seconds": 0.5, "sweep_seconds": 0.5}
    # Only a worker that was killed may be missed: what another one executes would run twice.
    worker = {"worker_lease_seconds": 10.0 if kill is kill_worker else 60.0}
    with LocalCluster(
        redis=own_server.address, workers=2, scheduler_options=scheduler, worker_options=worker
    ) as cluster:
        yield cluster
        database = Database(own_server.address)
        wait_for_invariants(database, cluster.keys)
        database.close()


def kill_processor(cluster: LocalCluster, server: RedisServer) -> None:
    psutil.Process(cluster.workers[0].pid).children()[0].kill()


def kill_worker(cluster: LocalCluster, server: RedisServer) -> None:
    cluster.workers[0].kill()
    cluster.workers[0].wait()


def kill_scheduler(cluster: LocalCluster, server: RedisServer) -> None:
    """It comes back after a second, as under a supervisor."""
    cluster.schedulers[0].kill()
    cluster.schedulers[0].wait()
    threading.Event().wait(1.0)
    cluster.replace(cluster.schedulers[0])


def kill_redis(cluster: LocalCluster, server: RedisServer) -> None:
    """It comes back after a second, with its data."""
    server.kill()
    threading.Event().wait(1.0)
    server.start()


@pytest.mark.parametrize(
    ("kill", "executing"), [(kill_processor, 1), (kill_worker, 1), (kill_scheduler, 0), (kill_redis, 0)]
)
def test_all_are_right_and_none_of_the_finished_runs_again(
    cluster: LocalCluster,
    own_server: RedisServer,
    tmp_path: Path,
    kill: Kill,
    executing: int,
) -> None:
    log = tmp_path / "log"
    with Client(cluster) as client:
        # A killed process fails the one task that it was executing; who wants that one to run again says so.
        calls = client.options(retries=1) if kill is kill_processor else client
        futures: list[Future] = [
            calls.submit(tasks.note_start_and_halt, str(log), text, SECONDS, HALF) for text in EXPECTED
        ]
        wait_until(lambda: sum(future.done() for future in futures) >= TASKS // 4, "a quarter is done")
        finished = [text for text, future in zip(EXPECTED, futures, strict=True) if future.done()]
        kill(cluster, own_server)
        tasks.gate_of(log, HALF).touch()

        assert len(finished) < TASKS, "the kill came too late to prove anything"
        assert client.gather(futures, timeout=120) == EXPECTED
    started = Counter(tasks.started_lines(log))
    assert {text: started[text] for text in finished} == dict.fromkeys(finished, 1)
    assert started.total() <= TASKS + executing, "only what was executing when it was killed runs again"
