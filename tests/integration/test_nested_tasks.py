"""Tasks that wait for tasks, in real workers: they give their slot up, at the bound they run their children, and
whatever is cancelled, too late or dead, nobody waits for ever.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gristmill import CancelledError, Client, Future, LocalCluster, ProcessorDiedError
from support import nested, tasks
from support.database import Database
from support.leases import LONG_LEASE, end_leases
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]
PATIENCE = 120.0


def processors_of(cluster: LocalCluster) -> list[psutil.Process]:
    """The processors of the cluster's first worker."""
    return psutil.Process(cluster.workers[0].pid).children()


def wait_until_it_waits(database: Database, cluster: LocalCluster, future: Future) -> None:
    """Only what the schedulers know to be waiting is not charged with the death of its worker."""

    def waiting() -> list[str]:
        records = [database.hash(cluster.keys.worker(worker)) for worker in database.zset(cluster.keys.workers())]
        return [task for record in records for task in record.get("waiting", "").split()]

    wait_until(lambda: future.task_id in waiting(), "the schedulers know that the task waits")


def has_run_twice(database: Database, cluster: LocalCluster, log: Path) -> bool:
    """Whether a task of a worker that was killed has started again; its lease is ended."""
    end_leases(database, cluster.keys, [worker.pid for worker in cluster.workers if worker.poll() is not None])
    return len(tasks.started_lines(log)) >= 2


def one_slot(start_cluster: Starter, **worker_options: object) -> LocalCluster:
    """A worker that executes one task at a time, by at most three processors."""
    options = {"max_processors": 3, "cancel_grace_seconds": 0.5, **LONG_LEASE, **worker_options}
    return start_cluster(workers=1, schedulers=1, worker_options=options)


def test_tasks_that_wait_for_tasks_do_not_use_up_the_only_slot(start_cluster: Starter) -> None:
    cluster = one_slot(start_cluster)
    with Client(cluster) as client:
        assert client.submit(nested.fibonacci, 8).result(PATIENCE) == 21
        assert len(processors_of(cluster)) <= 3


def test_recursion_may_be_far_deeper_than_there_are_processors(start_cluster: Starter) -> None:
    cluster = one_slot(start_cluster)
    with Client(cluster) as client:
        assert client.submit(nested.countdown, 60).result(PATIENCE) == 60
        assert len(processors_of(cluster)) <= 3


def test_recursion_works_with_no_processor_to_spare(start_cluster: Starter) -> None:
    cluster = one_slot(start_cluster, max_processors=1)
    with Client(cluster) as client:
        assert client.submit(nested.countdown, 30).result(PATIENCE) == 30
        assert client.submit(nested.squares, 40).result(PATIENCE) == sum(number * number for number in range(40))
        assert len(processors_of(cluster)) == 1


def test_whatever_way_a_task_waits_it_gives_its_slot_up(start_cluster: Starter) -> None:
    with Client(one_slot(start_cluster, max_processors=1)) as client:
        assert client.submit(nested.wait_for_any_and_all, [-1, -2, -3]).result(PATIENCE) == [1, 2, 3]
        # Only a main thread can run its children; what waits in another one gets one processor more.
        assert client.submit(nested.wait_in_a_thread, -4).result(PATIENCE) == 4


def test_a_waiting_task_is_shown_as_suspended(start_cluster: Starter, database: Database, tmp_path: Path) -> None:
    cluster = one_slot(start_cluster)
    log, gate = tmp_path / "log", tmp_path / "gate"
    with Client(cluster) as client:
        future = client.submit(nested.note_pid_and_wait_for, str(log), str(gate))
        (worker,) = database.zset(cluster.keys.workers())

        def record() -> dict[str, str]:
            return database.hash(cluster.keys.worker(worker))

        wait_until(lambda: record().get("suspended") == "1", "the record counts one that waits")
        assert record()["waiting"] == future.task_id
        gate.touch()
        assert future.result(PATIENCE) == "waited"
        wait_until(lambda: record().get("suspended") == "0", "nothing waits any more")


class TestDeath:
    def test_a_waiting_processor_that_is_killed_takes_its_task_with_it_and_nothing_else(
        self, start_cluster: Starter, tmp_path: Path
    ) -> None:
        log, gate = tmp_path / "log", tmp_path / "gate"
        cluster = one_slot(start_cluster)
        with Client(cluster) as client:
            future = client.submit(nested.note_pid_and_wait_for, str(log), str(gate))
            wait_until((tmp_path / "log.child").exists, "the child runs in another processor")
            os.kill(int(tasks.started_lines(log)[0]), signal.SIGKILL)

            with pytest.raises(ProcessorDiedError, match="SIGKILL"):
                future.result(PATIENCE)
            assert client.submit(abs, -1).result(PATIENCE) == 1

    def test_a_waiting_task_whose_worker_is_killed_runs_again(
        self, start_cluster: Starter, database: Database, tmp_path: Path
    ) -> None:
        log, gate = tmp_path / "log", tmp_path / "gate"
        cluster = start_cluster(workers=2, schedulers=1, worker_options=LONG_LEASE)
        with Client(cluster) as client:
            future = client.options(max_deaths=1).submit(nested.note_pid_and_wait_for, str(log), str(gate))
            wait_until((tmp_path / "log.child").exists, "the child runs")
            wait_until_it_waits(database, cluster, future)
            owner = psutil.Process(int(tasks.started_lines(log)[0])).ppid()
            child_of = [w for w in cluster.workers if w.pid == owner]
            # Its task waits, so that this death is not charged to it, whoever runs the child.
            child_of[0].kill()
            wait_until(lambda: has_run_twice(database, cluster, log), "it runs again", PATIENCE)
            gate.touch()

            assert future.result(PATIENCE) == "waited"

    def test_with_no_processor_to_spare_a_waiting_task_whose_worker_is_killed_runs_again(
        self, start_cluster: Starter, database: Database, tmp_path: Path
    ) -> None:
        """Its child ran on the same stack: what has no entry in the worker's stream moves on as well."""
        log, gate = tmp_path / "log", tmp_path / "gate"
        cluster = one_slot(start_cluster, max_processors=1)
        with Client(cluster) as client:
            future = client.options(max_deaths=1).submit(nested.note_pid_and_wait_for, str(log), str(gate))
            wait_until((tmp_path / "log.child").exists, "the child runs on the processor of its parent")
            (worker,) = database.zset(cluster.keys.workers())
            assert len(database.set(cluster.keys.worker_claimed(worker))) == 1
            wait_until_it_waits(database, cluster, future)
            cluster.add_worker()
            cluster.workers[0].kill()
            wait_until(lambda: has_run_twice(database, cluster, log), "the parent runs again", PATIENCE)
            gate.touch()

            assert future.result(PATIENCE) == "waited"
            wait_until(lambda: not database.set(cluster.keys.worker_claimed(worker)), "nothing is claimed any more")

    def test_with_no_processor_to_spare_the_tasks_below_fail_by_name(
        self, start_cluster: Starter, tmp_path: Path
    ) -> None:
        log, gate = tmp_path / "log", tmp_path / "gate"
        cluster = one_slot(start_cluster, max_processors=1)
        with Client(cluster) as client:
            future = client.submit(nested.note_pid_and_wait_for, str(log), str(gate))
            wait_until((tmp_path / "log.child").exists, "the child runs")
            os.kill(int(tasks.started_lines(log)[0]), signal.SIGKILL)

            with pytest.raises(ProcessorDiedError, match=r"SIGKILL.*was waiting.*wait_for_file"):
                future.result(PATIENCE)
            assert client.submit(abs, -1).result(PATIENCE) == 1


class TestStopping:
    def test_the_time_limit_of_a_child_ends_it_and_its_parent_goes_on(
        self, start_cluster: Starter, tmp_path: Path
    ) -> None:
        # Were the child killed on a machine that stalls, its parent would go with it.
        cluster = one_slot(start_cluster, max_processors=1, cancel_grace_seconds=tasks.GIVE_UP_SECONDS)
        with Client(cluster) as client:
            future = client.submit(nested.wait_for_a_slow_child, str(tmp_path / "log"), 600.0, 0.5)

            assert future.result(PATIENCE) == "TaskTimeoutError"

    def test_a_child_that_only_a_kill_stops_takes_those_below_it_along(
        self, start_cluster: Starter, tmp_path: Path
    ) -> None:
        cluster = one_slot(start_cluster, max_processors=1)
        with Client(cluster) as client:
            future = client.submit(nested.wait_for_a_stubborn_child, str(tmp_path / "started"))

            with pytest.raises(ProcessorDiedError, match="hang_stubbornly"):
                future.result(PATIENCE)
            assert client.submit(abs, -1).result(PATIENCE) == 1

    @pytest.mark.parametrize("most", [1, 3])
    def test_a_cancelled_parent_ends_and_so_does_its_child(
        self, start_cluster: Starter, tmp_path: Path, most: int
    ) -> None:
        log = tmp_path / "log"
        cluster = one_slot(start_cluster, max_processors=most)
        with Client(cluster) as client:
            future = client.submit(nested.wait_for_ever_in_a_child, str(log))
            wait_until(lambda: "child" in tasks.started_lines(log), "the child runs")

            assert future.cancel(timeout=PATIENCE)
            with pytest.raises(CancelledError):
                future.result()
            begun = time.monotonic()
            assert client.submit(abs, -1).result(PATIENCE) == 1
            assert time.monotonic() - begun < tasks.GIVE_UP_SECONDS / 2

    def test_all_tasks_on_top_of_a_cancelled_one_end_without_a_kill(
        self, start_cluster: Starter, tmp_path: Path
    ) -> None:
        """Those in between neither go on nor claim what lay on them once more."""
        log = tmp_path / "log"
        cluster = one_slot(start_cluster, max_processors=1, cancel_grace_seconds=tasks.GIVE_UP_SECONDS)
        with Client(cluster) as client:
            future = client.submit(nested.wait_for_ever_deep_in_children, str(log), 3)
            wait_until(lambda: "child" in tasks.started_lines(log), "the last one runs")
            (processor,) = processors_of(cluster)

            assert future.cancel(timeout=PATIENCE)
            assert client.submit(os.getpid).result(PATIENCE) == processor.pid
            started = tasks.started_lines(log)
            assert started[:4] == ["waits-3", "waits-2", "waits-1", "child"]
            assert len(started) < 10, "one may be claimed once more at that moment, but not again and again"

    def test_the_time_limit_of_a_waiting_parent_counts_while_its_child_runs_on_it(
        self, start_cluster: Starter, tmp_path: Path
    ) -> None:
        cluster = one_slot(start_cluster, max_processors=1)
        with Client(cluster) as client:
            view = client.options(timeout=1.0)
            future = view.submit(nested.wait_for_a_slow_child, str(tmp_path / "log"), 600.0, None)

            assert type(future.exception(PATIENCE)).__name__ == "TaskTimeoutError"
            assert client.submit(abs, -1).result(PATIENCE) == 1


def test_a_draining_worker_finishes_tasks_that_wait_for_their_own(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = one_slot(start_cluster)
    log = tmp_path / "log"
    with Client(cluster) as client:
        future = client.submit(nested.note_and_recurse, str(log), 5)
        wait_until(lambda: bool(tasks.started_lines(log)), "it runs")
        cluster.workers[0].send_signal(signal.SIGTERM)

        assert future.result(PATIENCE) == 5


def test_a_suspect_may_wait_for_a_child_on_the_only_worker_that_is_left(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster(workers=3, schedulers=1, worker_options={"max_processors": 3, **LONG_LEASE})
    with Client(cluster) as client:
        future = client.submit(nested.kill_two_workers_and_wait_for_a_child, str(tmp_path / "log"))

        def is_done() -> bool:
            end_leases(database, cluster.keys, [worker.pid for worker in cluster.workers if worker.poll() is not None])
            return future.done()

        wait_until(is_done, "it is done")
        assert future.result() == 1
    assert len(tasks.started_lines(tmp_path / "log")) == 3
