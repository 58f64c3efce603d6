"""Taking a call back."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

import pytest

from gristmill import CancelledError, Client
from support import tasks
from support.waiting import wait_until


def started(path: Path) -> None:
    wait_until(path.exists, f"the task has made {path.name}")


def test_a_task_that_waits_is_cancelled(client: Client, tmp_path: Path) -> None:
    blockers = [client.submit(tasks.hang_politely, str(tmp_path / f"blocker-{number}")) for number in range(10)]
    # The last one's batch may be applied before those of others, by another scheduler: both workers must be busy.
    wait_until(lambda: len(list(tmp_path.glob("blocker-?"))) == 2, "both workers execute one")
    waiting = client.submit(tasks.note_start, str(tmp_path / "log"), "ran")

    assert waiting.cancel()
    assert waiting.cancelled()
    assert client.cancel(blockers) == 10
    assert tasks.started_lines(tmp_path / "log") == []


def test_a_task_that_runs_is_interrupted(client: Client, tmp_path: Path) -> None:
    future = client.submit(tasks.hang_politely, str(tmp_path / "started"))
    started(tmp_path / "started")

    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()


def test_a_task_that_swallows_everything_is_killed(client: Client, tmp_path: Path) -> None:
    future = client.submit(tasks.hang_stubbornly, str(tmp_path / "started"))
    started(tmp_path / "started")

    assert future.cancel()
    assert client.submit(abs, -1).result(timeout=60) == 1


def test_a_finished_task_cannot_be_cancelled(client: Client) -> None:
    future = client.submit(abs, -1)
    future.result()

    assert not future.cancel()
    assert future.result() == 1


def test_cancelling_twice_answers_the_same(client: Client, tmp_path: Path) -> None:
    future = client.submit(tasks.hang_politely, str(tmp_path / "started"))

    assert future.cancel()
    assert future.cancel()


def test_a_cancelled_future_is_done_and_is_waited_for(client: Client, tmp_path: Path) -> None:
    future = client.submit(tasks.hang_politely, str(tmp_path / "started"))
    future.cancel()

    assert future.done()
    done, pending = concurrent.futures.wait([future], timeout=5)
    assert (done, pending) == ({future}, set())


def test_the_worker_goes_on_after_a_cancel(client: Client, tmp_path: Path) -> None:
    future = client.submit(tasks.hang_politely, str(tmp_path / "started"))
    started(tmp_path / "started")
    future.cancel()

    assert client.map(abs, range(-50, 0)) == list(range(50, 0, -1))


def test_what_cancel_answers_is_what_became_of_the_task(client: Client) -> None:
    futures = [client.submit(abs, -number) for number in range(300)]
    answers = [future.cancel() for future in futures[::3]]

    for future, answer in zip(futures[::3], answers, strict=True):
        assert future.cancelled() == answer
    assert all(future.result() >= 0 for future in futures if not future.cancelled())
