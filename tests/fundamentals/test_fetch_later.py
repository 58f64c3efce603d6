"""Detached tasks outlive their client, and whoever knows the id gets the outcome."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill import (
    CancelledError,
    Client,
    ClientClosedError,
    ConnectionLostError,
    Future,
    LocalCluster,
    TaskExpiredError,
    UnknownTaskError,
)
from support import tasks
from support.database import Database
from support.waiting import wait_until

KEEP_SECONDS = 600
"""Far longer than a test takes to ask for an outcome."""


@pytest.fixture
def other(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client


def slow(value: str, seconds: float = 0.5) -> str:
    time.sleep(seconds)
    return value


def await_watched(cluster: LocalCluster, ids: list[str]) -> None:
    """How a task ended that is not kept, only those are told who have asked before."""
    database = Database(cluster.address)
    try:
        wait_until(
            lambda: all("watchers" in database.hash(cluster.keys.task(task)) for task in ids),
            "the schedulers know that somebody wants to be told",
        )
    finally:
        database.close()


def known_by_id(cluster: LocalCluster, client: Client, future: Future, other: Client) -> Future:
    """The same task, as another client knows it by its id. The schedulers know both: requests of two clients may be
    applied in any order, and what is asked about a task that has not come means nothing.
    """
    client.flush(timeout=60)
    again = Future.from_id(future.task_id, other)
    await_watched(cluster, [future.task_id])
    return again


def test_the_outcome_is_had_by_id_after_the_client_has_left(cluster: LocalCluster, client: Client) -> None:
    with Client(cluster) as first:
        detached = first.options(keep=KEEP_SECONDS)
        ids = [
            detached.submit(slow, "value").task_id,
            detached.submit(lambda: 1 // 0).task_id,
            detached.submit(bytes, 500_000).task_id,
            detached.submit(lambda given: len(given), b"x" * 3_000_000).task_id,
        ]
    value, error, large, length = [Future.from_id(task, client) for task in ids]

    assert value.result() == "value"
    assert isinstance(error.exception(), ZeroDivisionError)
    assert len(large.result()) == 500_000
    assert length.result() == 3_000_000
    assert Future.from_id(ids[0], client).result() == "value"
    assert value.profiling_info().duration_s > 0.4
    assert value.profiling_info().attempt >= 1  # more, when it was moved to an idle worker before it began
    assert value.worker


def test_the_client_itself_gets_it_as_ever_and_by_id(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    future = client.options(keep=KEEP_SECONDS).submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))

    assert Future.from_id(future.task_id, client) is future
    gate.touch()
    value = future.result()
    assert isinstance(value, int)
    assert Future.from_id(future.task_id, client).result() == value


def test_waiting_unknown_and_expired_are_three_answers(
    cluster: LocalCluster, client: Client, other: Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    waiting = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
    kept = client.options(keep=0.2).submit(pow, 2, 3)
    assert kept.result() == 8
    client.flush(timeout=60)
    future = Future.from_id(waiting.task_id, other)
    wait_until(
        lambda: isinstance(Future.from_id(kept.task_id, other).exception(60), TaskExpiredError), "the outcome expires"
    )

    with pytest.raises(UnknownTaskError, match="nobody knows it"):
        Future.from_id("AbCdEfGhIj.0000001", other).result(60)
    await_watched(cluster, [waiting.task_id])
    assert not future.done()
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0)
    gate.touch()
    assert future.result() == waiting.result() > 0


@pytest.mark.parametrize("bad", ["", "no id", "abc", "abc.12", 5, None])
def test_what_is_no_id_is_refused(client: Client, bad: object) -> None:
    with pytest.raises(ValueError, match="expected the id of a task, such as"):
        Future.from_id(bad, client)  # type: ignore[arg-type]


def test_it_can_be_cancelled_by_id(cluster: LocalCluster, client: Client, other: Client) -> None:
    future = client.options(keep=KEEP_SECONDS).submit(time.sleep, 600)
    again = known_by_id(cluster, client, future, other)

    assert again.cancel()
    with pytest.raises(CancelledError):
        again.result()
    with pytest.raises(CancelledError):
        future.result()


def test_a_cancel_that_is_lost_with_the_connection_is_sent_again(
    cluster: LocalCluster, client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = client.options(capabilities=["nobody-has-this"]).submit(slow, "value")
    again = known_by_id(cluster, client, future, other)
    commands = other._session.commands
    send = commands.send
    lost: list[bytes] = []

    def lose_once(data: bytes) -> None:
        if b"cancelled by client" not in data or lost:
            return send(data)
        lost.append(data)
        raise ConnectionLostError

    monkeypatch.setattr(commands, "send", lose_once)
    again.cancel(timeout=0)
    wait_until(future.cancelled, "the task is cancelled")

    assert lost


def test_nothing_is_asked_of_a_client_that_has_ended_meanwhile(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(cluster)
    task = client.submit(abs, -1).task_id
    check_open = client._session.check_open

    def check_and_end() -> None:
        check_open()
        client.disconnect()

    monkeypatch.setattr(client._session, "check_open", check_and_end)
    with pytest.raises(ClientClosedError):
        Future.from_id(f"{'x' * 10}{task[10:]}", client)


def test_it_can_be_an_argument(client: Client, other: Client) -> None:
    future = client.options(keep=KEEP_SECONDS).submit(slow, "value")
    client.flush(timeout=60)  # it comes before the question about it

    assert other.submit(len, Future.from_id(future.task_id, other)).result() == 5


def test_a_future_of_a_closed_client_says_that_its_task_goes_on(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with Client(cluster) as first:
        detached = first.options(keep=KEEP_SECONDS).submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        plain = first.submit(time.sleep, 60)
    wait_until(plain.cancelled, "the other task is cancelled")
    with pytest.raises(ClientClosedError, match=r"goes on.*Future\.from_id"):
        detached.result()

    gate.touch()
    assert isinstance(Future.from_id(detached.task_id, client).result(), int)


def test_the_tasks_of_a_client_that_was_killed_end_but_for_the_detached_ones(
    cluster: LocalCluster, client: Client
) -> None:
    program = f"""
import time
from gristmill import Client
client = Client({cluster.address!r}, lease_seconds=15)
plain = [client.submit(time.sleep, 600) for _ in range(5)]
detached = [client.options(keep={KEEP_SECONDS}, priority=1).submit(pow, 2, number) for number in range(5)]
client.flush()
print(*[future.task_id for future in plain + detached], flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    ids = process.stdout.readline().split()
    futures = [Future.from_id(task, client) for task in ids]
    try:
        await_watched(cluster, ids[:5])
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()

    assert [future.result() for future in futures[5:]] == [1, 2, 4, 8, 16]
    wait_until(lambda: all(future.done() for future in futures), "the others are cancelled")
    assert all(future.cancelled() for future in futures[:5])
