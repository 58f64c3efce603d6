"""Workers and processors that are killed, frozen or sent away: their tasks run elsewhere, and say what happened."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gristmill import Client, GristmillError, LocalCluster, ProcessorDiedError, WorkerDiedError
from support import tasks
from support.database import Database
from support.leases import end_leases
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]
LONG_LEASE = {"worker_lease_seconds": 60.0}
"""For a worker whose lease must not end by itself, however long the machine stands still."""


def processors_of(program_pid: int) -> list[psutil.Process]:
    return psutil.Process(program_pid).children(recursive=True)


def end_lease(database: Database, cluster: LocalCluster, worker: str) -> None:
    """As if the time of a killed worker were over: a lease that is short could end before it is killed."""

    def is_over() -> bool:
        end_leases(database, cluster.keys, [int(worker.split("|")[1])])
        return "gone" in database.hash(cluster.keys.worker(worker))

    wait_until(is_over, "the lease of the killed worker has ended")


def started_pid(path: Path) -> int:
    """The pid of the processor that executes a task which has made this file."""
    wait_until(path.exists, f"the task has made {path.name}")
    return int(path.read_text())


# --- killed -------------------------------------------------------------------------------------------------


def test_the_task_of_a_killed_worker_runs_elsewhere(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(workers=1)
    log = tmp_path / "log"
    with Client(cluster) as client:
        future = client.submit(tasks.wait_first_time_only, str(log), str(tmp_path / "never"))
        first = started_pid(tmp_path / "log.started")
        (victim,) = cluster.workers
        victim.kill()
        cluster.add_worker(**LONG_LEASE)

        assert future.result(timeout=60) != first
        assert future.profiling_info().attempt == 2
        assert len(tasks.started_lines(log)) == 2
        victim.wait()


def test_the_processors_of_a_killed_worker_die_with_it(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(workers=1, worker_options={"concurrency": 2})
    with Client(cluster) as client:
        futures = [client.submit(tasks.hang_stubbornly, str(tmp_path / f"started-{number}")) for number in range(2)]
        for number in range(2):
            started_pid(tmp_path / f"started-{number}")
        (program,) = cluster.workers
        processors = processors_of(program.pid)
        assert len(processors) >= 2
        program.kill()
        program.wait()

        wait_until(
            lambda: not [process for process in processors if process.is_running()],
            "no processor of the killed worker is left",
        )
        client.cancel(futures, timeout=60)
    cluster.add_worker()


def test_what_only_waited_at_a_killed_worker_is_not_charged_with_it(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    (worker,) = database.zset(cluster.keys.workers())
    with Client(cluster) as client:
        first = client.submit(tasks.wait_first_time_only, str(tmp_path / "log"), str(tmp_path / "never"))
        started_pid(tmp_path / "log.started")
        others = [client.submit(abs, -number) for number in range(5)]
        client.flush()
        cluster.workers[0].kill()
        cluster.workers[0].wait()
        end_lease(database, cluster, worker)
        wait_until(
            lambda: database.hash(cluster.keys.task(first.task_id)).get("deaths") == "1",
            "the executing task is charged with the death",
        )
        deaths = [database.hash(cluster.keys.task(future.task_id)).get("deaths") for future in others]
        assert deaths == [None] * 5
        cluster.add_worker()

        assert first.result(timeout=60) > 0
        assert client.gather(others, timeout=60) == list(range(5))


def test_a_task_that_kills_every_worker_is_given_up_by_name(start_cluster: Starter) -> None:
    def kill_worker() -> None:
        import os
        import signal
        import time

        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    cluster = start_cluster(workers=4, worker_options={"worker_lease_seconds": 2.0})
    with Client(cluster) as client:
        error = client.submit(kill_worker).exception(timeout=60)

        assert isinstance(error, WorkerDiedError)
        assert "3 workers" in str(error)
        assert client.submit(abs, -1).result(timeout=60) == 1
    dead = [program for program in cluster.workers if program.poll() is not None]
    assert len(dead) == 3


def test_a_task_beside_one_that_kills_every_worker_is_not_given_up_with_it(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    def kill_worker_when(path: str) -> None:
        import os
        import signal
        import time

        while not os.path.exists(path):
            time.sleep(0.005)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    def work(started: str, gate: str) -> str:
        import time

        tasks.wait_for_file(started, gate)
        time.sleep(1)
        return "the value"

    def add_doomed_worker() -> None:
        with contextlib.suppress(GristmillError):  # it may be killed before anybody has seen that it is ready
            cluster.add_worker(**options)

    started, gate = tmp_path / "started", tmp_path / "gate"
    options = {"worker_lease_seconds": 2.0, "concurrency": 2}
    cluster = start_cluster(workers=1, worker_options=options)
    with Client(cluster) as client:
        innocent = client.submit(work, str(started), str(gate))
        killer = client.submit(kill_worker_when, str(started))
        record = cluster.keys.task(innocent.task_id)
        for deaths in (1, 2):
            wait_until(lambda: int(database.hash(record).get("deaths", 0)) >= deaths, f"{deaths} workers died")  # noqa: B023
            started.unlink(missing_ok=True)
            if deaths == 1:
                add_doomed_worker()
        gate.touch()
        for _ in range(2):
            add_doomed_worker()

        assert innocent.result(timeout=60) == "the value"
        error = killer.exception(timeout=60)
        assert isinstance(error, WorkerDiedError)
        assert "3 workers" in str(error)


@pytest.mark.parametrize(
    ("function", "argument", "name"),
    [(tasks.kill_own_process, "", "SIGKILL"), (tasks.crash, None, "SIGSEGV"), (tasks.exit_at_once, 3, "3")],
    ids=["killed", "segmentation fault", "exit"],
)
def test_a_processor_that_dies_fails_its_task_and_says_how(
    start_cluster: Starter, function: Callable[..., object], argument: object, name: str
) -> None:
    cluster = start_cluster(workers=1, schedulers=1, worker_options=LONG_LEASE)
    with Client(cluster) as client:
        future = client.submit(function, *([] if argument is None else [argument]))
        others = [client.submit(abs, -number) for number in range(50)]
        error = future.exception(timeout=60)

        assert isinstance(error, ProcessorDiedError)
        assert name in str(error)
        assert client.gather(others, timeout=60) == list(range(50))
        assert cluster.workers[0].poll() is None


def test_a_processor_killed_from_outside_fails_its_task_and_is_replaced(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(workers=1, schedulers=1, worker_options=LONG_LEASE)
    with Client(cluster) as client:
        future = client.submit(tasks.hang_politely, str(tmp_path / "started"))
        psutil.Process(started_pid(tmp_path / "started")).send_signal(signal.SIGKILL)

        with pytest.raises(ProcessorDiedError, match="SIGKILL"):
            future.result(timeout=60)
        assert client.submit(tasks.pid).result(timeout=60) != started_pid(tmp_path / "started")


def test_what_a_processor_had_finished_before_it_died_counts(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(workers=1, schedulers=1, worker_options=LONG_LEASE)
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start, str(log), str(number)) for number in range(200)]
        deadly = client.submit(tasks.kill_own_process, str(tmp_path / "deadly"))
        futures += [client.submit(tasks.note_start, str(log), str(number)) for number in range(200, 400)]

        assert client.gather(futures, timeout=60) == [str(number) for number in range(400)]
        assert isinstance(deadly.exception(timeout=60), ProcessorDiedError)
    assert sorted(tasks.started_lines(log), key=int) == [str(number) for number in range(400)]


# --- sent away ----------------------------------------------------------------------------------------------


def test_a_worker_that_is_asked_to_stop_finishes_what_executes_and_gives_back_the_rest(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    (program,) = cluster.workers
    with Client(cluster) as client:
        executing = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(tmp_path / "gate"))
        started_pid(tmp_path / "started")
        others = [client.submit(tasks.pid) for _ in range(5)]
        client.flush()
        program.terminate()
        cluster.add_worker()
        elsewhere = client.gather(others, timeout=60)
        assert not executing.done()
        assert program.poll() is None
        (tmp_path / "gate").touch()

        assert executing.result(timeout=60) not in elsewhere
        assert program.wait(timeout=60) == 0
        # Twice if nothing takes long meanwhile: what waits behind that is given back once more.
        assert all(future.profiling_info().attempt <= 5 for future in others)

    def gone() -> list[str | None]:
        return [
            database.hash(key).get("gone")
            for key in database.keys(cluster.keys.worker(""))
            if database.type(key) == "hash" and f"|{program.pid}|" in key
        ]

    wait_until(lambda: gone() == ["left"], "the worker has left")


def test_a_second_signal_makes_a_worker_stop_at_once(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    (program,) = cluster.workers
    log = tmp_path / "log"
    with Client(cluster) as client:
        future = client.submit(tasks.wait_first_time_only, str(log), str(tmp_path / "never"))
        started_pid(tmp_path / "log.started")
        (worker,) = database.zset(cluster.keys.workers())
        program.terminate()
        # Two signals at the same moment would be one.
        wait_until(lambda: "draining" in database.hash(cluster.keys.worker(worker)), "the worker drains")
        program.terminate()

        assert program.wait(timeout=60) == 0
        cluster.add_worker()
        assert future.result(timeout=60) > 0
        assert future.profiling_info().attempt == 2
    assert len(tasks.started_lines(log)) == 2


def test_workers_that_come_and_go_charge_nobody(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(workers=2, worker_options=LONG_LEASE)
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start_and_work, str(log), str(number), 0.02) for number in range(300)]
        for _ in range(3):
            leaving = cluster.workers[0]
            leaving.terminate()
            assert leaving.wait(timeout=60) == 0
            cluster.workers.remove(leaving)
            cluster.add_worker()

        assert client.gather(futures, timeout=60) == [str(number) for number in range(300)]
    assert sorted(tasks.started_lines(log), key=int) == [str(number) for number in range(300)]


# --- frozen and busy ----------------------------------------------------------------------------------------


def test_a_frozen_worker_is_replaced_and_has_no_say_when_it_comes_back(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster(workers=1)
    (frozen,) = cluster.workers
    log, gate = tmp_path / "log", tmp_path / "gate"
    with Client(cluster) as client:
        future = client.submit(tasks.wait_first_time_only, str(log), str(gate))
        first = started_pid(tmp_path / "log.started")
        cluster.add_worker(**LONG_LEASE)
        everything = [psutil.Process(frozen.pid), *processors_of(frozen.pid)]
        before = set(database.zset(cluster.keys.workers()))
        for process in everything:
            process.send_signal(signal.SIGSTOP)
        assert future.result(timeout=60) != first
        wait_until(lambda: len(database.zset(cluster.keys.workers())) == 1, "the frozen worker is lost")
        gate.touch()
        for process in everything:
            with contextlib.suppress(psutil.NoSuchProcess):  # the agent, awake again, has ended its processors already
                process.send_signal(signal.SIGCONT)

        wait_until(
            lambda: set(database.zset(cluster.keys.workers())) - before, "the worker has come back under a new id"
        )
        assert future.result() != first
        assert len(client.map(tasks.sleep_long, [0.01] * 20)) == 20
    assert len(tasks.started_lines(log)) == 2


def test_a_task_that_holds_the_interpreter_does_not_look_dead(start_cluster: Starter, tmp_path: Path) -> None:
    def hold_the_interpreter(log: str, seconds: float) -> int:
        import re
        import time

        from support import tasks

        tasks.note_start(log, "start")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            re.match(r"(a+)+$", "a" * 22 + "b")  # a tenth of a second or so in C each time
        return 1

    cluster = start_cluster(workers=1, worker_options={"worker_lease_seconds": 5.0})
    log = tmp_path / "log"
    with Client(cluster) as client:
        assert client.submit(hold_the_interpreter, str(log), 10.0).result(timeout=60) == 1
    assert tasks.started_lines(log) == ["start"]
