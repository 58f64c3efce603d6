"""What may be said about a task beside its call."""

from __future__ import annotations

import concurrent.futures
import os
import time
from pathlib import Path

import pytest

from gristmill import Client, SerializationError, TaskTimeoutError
from gristmill.client import options
from support import tasks


def test_a_task_that_fails_may_run_again(client: Client, tmp_path: Path) -> None:
    def succeed_at_third(log: str) -> int:
        from support import tasks

        tasks.note_start(log, "start")
        starts = len(tasks.started_lines(log))
        if starts < 3:
            raise ValueError(starts)
        return starts

    future = client.options(retries=5).submit(succeed_at_third, str(tmp_path / "log"))

    assert future.result(timeout=60) == 3
    assert future.profiling_info().attempt == 3


def test_without_being_asked_nothing_runs_again(client: Client, tmp_path: Path) -> None:
    def fail(log: str) -> None:
        from support import tasks

        tasks.note_start(log, "start")
        raise ValueError

    assert isinstance(client.submit(fail, str(tmp_path / "log")).exception(), ValueError)
    assert tasks.started_lines(tmp_path / "log") == ["start"]


def test_only_the_named_exceptions_are_tried_again(client: Client, tmp_path: Path) -> None:
    def fail(log: str) -> None:
        from support import tasks

        tasks.note_start(log, "start")
        raise KeyError

    view = client.options(retries=5, retry_on=ValueError)

    assert isinstance(view.submit(fail, str(tmp_path / "log")).exception(), KeyError)
    assert tasks.started_lines(tmp_path / "log") == ["start"]


def test_a_retry_may_wait_a_while(client: Client, tmp_path: Path) -> None:
    def fail_once(log: str) -> float:
        import time

        from support import tasks

        tasks.note_start(log, str(time.time()))
        if len(tasks.started_lines(log)) == 1:
            raise ValueError
        return time.time()

    client.options(retries=1, retry_delay=0.5).submit(fail_once, str(tmp_path / "log")).result(timeout=60)
    first, second = (float(line) for line in tasks.started_lines(tmp_path / "log"))

    assert second - first >= 0.5


def test_a_time_limit_ends_the_task(client: Client) -> None:
    began = time.monotonic()
    error = client.options(timeout=0.3).submit(tasks.sleep_long, 60).exception(timeout=60)

    assert isinstance(error, TaskTimeoutError)
    assert time.monotonic() - began < 30


def test_a_time_limit_that_is_not_reached_changes_nothing(client: Client) -> None:
    assert client.options(timeout=60).submit(abs, -1).result() == 1


def test_a_task_that_nobody_can_run_waits_and_blocks_nobody(client: Client) -> None:
    future = client.options(capabilities=["gpu"]).submit(abs, -1)
    assert client.submit(abs, -2).result() == 2

    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(timeout=0.2)
    assert future.cancel()


@pytest.mark.parametrize("priority", [1001, -1001, 0.5, "high"])
def test_a_priority_out_of_range_is_refused_at_once(client: Client, priority: object) -> None:
    with pytest.raises((ValueError, TypeError), match="priority"):
        client.options(priority=priority)


def test_an_option_that_nobody_knows_is_refused_at_once(client: Client) -> None:
    with pytest.raises((ValueError, TypeError), match="priorty"):
        client.options(priorty=1)


def test_names_and_tags_may_be_any_text(client: Client) -> None:
    """Such as names of files, which need not be UTF-8."""
    odd = os.fsdecode(b"caf\xe9")

    assert client.options(name=odd, tags=[odd]).submit(abs, -1).result(timeout=30) == 1


def test_a_task_that_cannot_be_sent_fails_alone(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(options, "escaped", lambda text: text)
        odd = client.options(name="\udce9")

    assert isinstance(odd.submit(abs, -1).exception(timeout=30), SerializationError)
    assert client.submit(abs, -2).result(timeout=30) == 2


def test_options_may_stand_beside_the_arguments(client: Client) -> None:
    future = client.submit_verbose(int, args=("11",), kwargs={"base": 2}, priority=5)

    assert future.result() == 3
