"""H12 to H17: processes that die, and what is said of it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from gristmill import Client, Future, LocalCluster, ProcessorDiedError, TaskTimeoutError
from gristmill.snapshot import Snapshot
from support import tasks
from support.leases import LONG_LEASE
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def started_pid(path: Path) -> int:
    """The pid of the processor whose task has made this file."""
    wait_until(path.exists, f"the task has made {path.name}")
    return int(path.read_text())


def test_h12_tasks_that_crash_at_once_fail_by_name_and_the_others_finish(
    client: Client, shared_cluster: LocalCluster
) -> None:
    """Three segmentation faults among a hundred good tasks: each fails after its one attempt, naming the signal."""
    bad: list[Future] = []
    good: list[Future] = []
    for number in range(100):
        if number in (10, 50, 90):
            bad.append(client.submit(tasks.crash))
        good.append(client.submit(abs, -number))

    assert client.gather(good, timeout=60) == list(range(100))
    for future in bad:
        error = future.exception(timeout=60)
        assert isinstance(error, ProcessorDiedError)
        assert "SIGSEGV" in str(error)
        assert "worker-" in str(error)
    assert client.map(abs, range(-20, 0), timeout=60) == list(range(20, 0, -1))
    assert all(program.poll() is None for program in shared_cluster.workers)


def test_h15_a_task_that_exits_ends_neither_the_program_nor_the_processor(start_cluster: Starter) -> None:
    """SystemExit, KeyboardInterrupt and other BaseExceptions arrive as ordinary exceptions that describe them; the one
    processor executes what comes after."""

    def base_exception() -> NoReturn:
        class OwnBaseException(BaseException):
            pass

        raise OwnBaseException("mine")

    expected: list[tuple[Callable[..., object], tuple[object, ...], str]] = [
        (tasks.raise_system_exit, (0,), "SystemExit"),
        (tasks.raise_system_exit, (1,), "SystemExit"),
        (tasks.raise_keyboard_interrupt, (), "KeyboardInterrupt"),
        (base_exception, (), "OwnBaseException"),
    ]
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    (program,) = cluster.workers
    with Client(cluster) as client:
        processor = client.submit(tasks.pid).result(timeout=30)
        for function, arguments, name in expected:
            with pytest.raises(Exception, match=name):
                client.submit(function, *arguments).result(timeout=30)
            assert client.submit(tasks.pid).result(timeout=30) == processor
    assert program.poll() is None


def test_h17_each_way_to_end_says_which_it_was(client: Client, shared_snapshot: Snapshot, tmp_path: Path) -> None:
    """A kill from outside, a crash, an exit, a time limit, a cancel: future and story tell them apart."""
    killed = client.submit(tasks.hang_politely, str(tmp_path / "killed"))
    psutil.Process(started_pid(tmp_path / "killed")).send_signal(signal.SIGKILL)
    crashed = client.submit(tasks.crash)
    exited = client.submit(tasks.exit_at_once, 3)
    limited = client.options(timeout=0.3).submit(tasks.hang_politely, str(tmp_path / "limited"))
    cancelled = client.submit(tasks.hang_politely, str(tmp_path / "cancelled"))
    started_pid(tmp_path / "cancelled")
    assert cancelled.cancel()

    with pytest.raises(CancelledError):
        cancelled.result()
    expected = {killed: "SIGKILL", crashed: "SIGSEGV", exited: "3", limited: "0.3"}
    for future, sign in expected.items():
        error = future.exception(timeout=30)
        assert type(error) is (TaskTimeoutError if future is limited else ProcessorDiedError)
        assert sign in str(error)
        host, _, rest = future.worker.partition("|")
        assert host in str(error)
        assert rest.split("|")[1] in str(error)
        story = shared_snapshot.task(future.task_id).story
        assert story[-1].state == "failed"
        assert type(error).__name__ in story[-1].error
    assert shared_snapshot.task(cancelled.task_id).state == "canceled"


def test_h17_a_segmentation_fault_says_where(client: Client) -> None:
    """The error of a crashed task has the Python stack of the crash; that of one that was killed has none."""
    text = str(client.submit(tasks.crash).exception(timeout=30))
    assert "Segmentation fault" in text
    assert "tasks.py" in text
    assert "in crash" in text
    assert "stack" not in str(client.submit(tasks.kill_own_process).exception(timeout=30))
