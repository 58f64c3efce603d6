"""H13, H46, H47, H78, H79: tasks that wait for tasks, what they catch, and graphs."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import psutil
import pytest

from gristmill import (
    Client,
    Future,
    LocalCluster,
    ProcessorDiedError,
    ResultSerializationError,
    SerializationError,
)
from support import tasks
from support.leases import LONG_LEASE
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def test_h13_a_processor_that_dies_while_its_task_waits_for_another_is_missed_at_once(
    start_cluster: Starter, tmp_path: Path
) -> None:
    """The processor of a task that waits for a nested one is killed: that task fails by the signal's name, the nested
    one ends with it, and the worker goes on under the same id."""

    def parent(started: str) -> None:
        import os
        from pathlib import Path

        from gristmill import Client
        from support import tasks

        with Client() as client:
            Path(started).write_text(str(os.getpid()))  # first: whoever sees the child's file reads this one
            client.submit(tasks.wait_for_file, f"{started}.child", f"{started}.never").result()

    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    (program,) = cluster.workers
    with Client(cluster) as client:
        future = client.submit(parent, str(tmp_path / "started"))
        wait_until((tmp_path / "started.child").exists, "the parent waits and the child executes", timeout=60)
        pid, child = (int((tmp_path / name).read_text()) for name in ("started", "started.child"))
        assert pid != child
        psutil.Process(pid).send_signal(signal.SIGKILL)

        with pytest.raises(ProcessorDiedError, match="SIGKILL"):
            future.result(timeout=60)
        assert client.map(abs, range(-20, 0), timeout=60) == list(range(20, 0, -1))
        assert program.poll() is None
        assert client.submit(tasks.parent_pid).result(timeout=30) == program.pid
        for process in psutil.Process(program.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # that of the nested task may be ending
                assert process.status() != psutil.STATUS_STOPPED, "nothing is suspended"


def test_h46_tasks_that_wait_for_tasks_do_not_use_up_the_slots(start_cluster: Starter) -> None:
    """One worker with one slot computes a Fibonacci number by two nested tasks a task."""

    def fibonacci(number: int) -> int:
        from gristmill import Client

        if number < 2:
            return number
        with Client() as client:
            first, second = client.submit(fibonacci, number - 1), client.submit(fibonacci, number - 2)
            return int(first.result() + second.result())

    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    with Client(cluster) as client:
        assert client.submit(fibonacci, 8).result(timeout=200) == 21


def test_h47_a_future_or_client_that_a_function_has_caught_works_inside_the_task(client: Client) -> None:
    """Fifty tasks ask a future in their closure for its value, and one uses the client in its closure."""
    caught = client.submit(tasks.echo, "the value")
    assert caught.result(timeout=30) == "the value"

    def ask() -> Any:
        return caught.result()

    def use() -> Any:
        return client.submit(abs, -7).result()

    assert client.gather([client.submit(ask) for _ in range(50)], timeout=60) == ["the value"] * 50
    assert client.submit(use).result(timeout=60) == 7


def chain(client: Client, first: Future, log: Path) -> list[Future]:
    """`first` and 25 tasks behind it, each of which notes its start."""

    def note(_: object, log: str) -> str:
        from support import tasks

        return tasks.note_start(log, "x")

    links = [first]
    for _ in range(25):
        links.append(client.submit(note, links[-1], str(log)))
    return links


def test_h78_what_depends_on_a_failed_cancelled_or_lost_task_fails_with_it(client: Client, tmp_path: Path) -> None:
    """A chain of 26 whose first task raises, is cancelled, loses its processor, or has a result that cannot be pickled:
    the last says so with the cause, and none in between runs or stays waiting."""
    log = tmp_path / "log"
    raised = chain(client, client.submit(tasks.raise_value_error, "the cause"), log)
    with pytest.raises(ValueError, match="the cause"):
        raised[-1].result(timeout=60)

    held = client.submit(tasks.hang_politely, str(tmp_path / "started"))
    cancelled = chain(client, held, log)
    client.flush(timeout=30)
    assert held.cancel(timeout=60)
    with pytest.raises(CancelledError):
        cancelled[-1].result(timeout=60)

    lost = chain(client, client.submit(tasks.kill_own_process), log)
    with pytest.raises(ProcessorDiedError, match="SIGKILL"):
        lost[-1].result(timeout=60)

    unsent = chain(client, client.submit(tasks.return_a_lock), log)
    with pytest.raises(ResultSerializationError, match="lock"):
        unsent[-1].result(timeout=60)

    for links in (raised, cancelled, lost, unsent):
        wait_until(lambda links=links: all(link.done() for link in links), "none stays waiting", timeout=30)  # type: ignore[misc]
    assert tasks.started_lines(log) == []


def test_h78_get_names_the_node_that_failed(client: Client) -> None:
    """A graph whose first node raises: `get` raises that exception, with the name of the node in its story."""
    graph: dict[str, Any] = {"text": "the cause", "a": (tasks.raise_value_error, "text")}
    for before, name in zip("abcdefghijklmnopqrstuvwxy", "bcdefghijklmnopqrstuvwxyz", strict=True):
        graph[name] = (tasks.echo, before)
    with pytest.raises(ValueError, match="the cause") as caught:
        client.get(graph, ["z"])
    notes = getattr(caught.value, "__notes__", [])
    assert any("'a'" in note for note in notes), notes


def test_h79_a_chain_of_thousands_is_no_recursion(client: Client) -> None:
    """Fifteen hundred increments, each of the value before."""
    graph: dict[str, Any] = {"n0": 0, "one": 1}
    for number in range(1, 1501):
        graph[f"n{number}"] = (tasks.add, f"n{number - 1}", "one")
    assert client.get(graph, ["n1500"]) == {"n1500": 1500}


def test_h79_what_is_nested_too_deeply_for_pickle_is_refused_or_fails(client: Client) -> None:
    """A linked list fifty thousand deep: as an argument it is refused at submit, as a result it fails its task."""

    def linked(depth: int) -> Any:
        head: Any = None
        for _ in range(depth):
            head = [head]
        return head

    with pytest.raises(SerializationError, match="deep"):
        client.submit(tasks.echo, linked(50_000))
    with pytest.raises(ResultSerializationError, match="deep"):
        client.submit(linked, 50_000).result(timeout=60)
    assert client.submit(abs, -1).result(timeout=30) == 1
