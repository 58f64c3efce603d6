"""H72 to H77: the client's calls and its life."""

from __future__ import annotations

import gc
import itertools
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gristmill import (
    FIRST_COMPLETED,
    Client,
    Future,
    LocalCluster,
    TaskExpiredError,
    UnknownTaskError,
    as_completed,
    wait,
)
from gristmill.snapshot import Snapshot
from support import tasks
from support.leases import LONG_LEASE
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


class Counted(Iterator[int]):
    """A million items, and how many were read."""

    def __init__(self) -> None:
        self.read = 0

    def __next__(self) -> int:
        if self.read == 1_000_000:
            raise StopIteration
        self.read += 1
        return self.read - 1


def test_h73_nothing_generators_and_endless_inputs_can_be_mapped(client: Client) -> None:
    """Nothing gives nothing at once; of a million items, and of endless ones, no more are read than the window is
    ahead of the values that were taken, which come in order."""
    assert client.map(abs, []) == []
    assert list(client.imap(abs, iter(()))) == []
    items = Counted()
    values = client.imap(tasks.double, items, window=200)
    for at in range(1000):
        assert next(values) == 2 * at
        assert items.read <= at + 1 + 200
    values.close()
    endless = client.imap(tasks.double, itertools.count(), window=200)
    assert list(itertools.islice(endless, 1000)) == list(range(0, 2000, 2))
    endless.close()


KEEPER = """
import sys, time
from gristmill import Client
from support import tasks

address, namespace, folder = sys.argv[1:]
client = Client(address, namespace=namespace, lease_seconds=8, connect_timeout=60)
kept = client.options(keep=60)
detached = [kept.submit(tasks.wait_for_file, f"{folder}/d{at}", f"{folder}/gate") for at in range(3)]
futures = [client.submit(tasks.hang_politely, f"{folder}/h{at}") for at in range(20)]
client.flush(timeout=60)
print(*(future.task_id for future in detached), flush=True)
time.sleep(600)
"""


def test_h72_the_tasks_of_a_dead_client_are_cancelled_and_detached_ones_finish(
    start_cluster: Starter, snapshot: Snapshot, tmp_path: Path
) -> None:
    """A client is killed: when its lease has ended its tasks are cancelled; those that it detached finish, and another
    client gets their outcomes by id."""
    cluster = start_cluster(workers=1, worker_options={**LONG_LEASE, "concurrency": 2})
    command = [sys.executable, "-c", KEEPER, cluster.address, cluster.namespace, str(tmp_path)]
    paths = {"PYTHONPATH": str(Path(tasks.__file__).parents[1])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **paths})
    assert process.stdout is not None
    ids = process.stdout.readline().split()
    process.kill()
    process.wait()
    process.stdout.close()
    assert len(ids) == 3

    def cancelled() -> int:
        states = snapshot.counts().states  # not found: it was on its way to a processor
        return states["canceled"] + states["canceled_not_found"]

    wait_until(lambda: cancelled() == 20, "its tasks are cancelled")
    (tmp_path / "gate").touch()
    with Client(cluster) as client:
        found = [Future.from_id(task, client) for task in ids]  # type: ignore[attr-defined,unused-ignore]
        assert all(future.result(timeout=60) > 0 for future in found)


def test_h06_waiting_unknown_and_expired_are_three_answers(start_cluster: Starter, tmp_path: Path) -> None:
    """An outcome is kept for a second: asked for in time it is there, later it is expired, a task that never was is
    unknown, and one that executes is waited for; nobody waits for what will not come."""
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    gate = tmp_path / "gate"
    with Client(cluster) as client, Client(cluster) as other:
        kept = client.options(keep=1)
        done = kept.submit(abs, -1)
        assert done.result(timeout=30) == 1
        waiting = kept.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        client.flush(timeout=30)
        pending = Future.from_id(waiting.task_id, other)  # type: ignore[attr-defined,unused-ignore]
        with pytest.raises(TimeoutError):
            pending.result(timeout=0.2)
        with pytest.raises(UnknownTaskError):
            Future.from_id("Nobody0001.0000001", other).result(timeout=30)  # type: ignore[attr-defined,unused-ignore]

        def expired() -> bool:
            error = Future.from_id(done.task_id, other).exception(timeout=30)  # type: ignore[attr-defined,unused-ignore]
            return isinstance(error, TaskExpiredError)

        wait_until(expired, "the outcome has expired")
        gate.touch()
        assert pending.result(timeout=30) > 0


def test_h74_each_future_is_reported_exactly_once(client: Client) -> None:
    """as_completed and wait over futures that finish, fail, are cancelled meanwhile, and are listed twice."""
    chance = random.Random(74)
    for _ in range(150):
        futures: list[Future] = [
            client.submit(abs, -1),
            client.submit(tasks.raise_value_error, "x"),
            client.submit(tasks.echo, None),
            client.submit(tasks.echo, None),
        ]
        canceller = threading.Thread(target=futures[chance.choice((2, 3))].cancel)
        canceller.start()
        listed = [*futures, futures[0]]
        chance.shuffle(listed)
        if chance.random() < 0.5:
            assert Counter(as_completed(listed, timeout=30)) == Counter(futures)
        else:
            done, not_done = wait(listed, timeout=30)
            assert (done, not_done) == (set(futures), set())
        canceller.join()


def test_h74_time_outs_of_wait_and_as_completed_are_kept(client: Client, tmp_path: Path) -> None:
    """What is not done when the time is over is told, not waited for; nothing at all is done at once."""
    gate = tmp_path / "gate"
    slow = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
    quick = client.submit(abs, -1)
    assert quick.result(timeout=30) == 1

    assert wait([slow, quick], timeout=0.01) == ({quick}, {slow})
    assert wait([slow, quick], return_when=FIRST_COMPLETED, timeout=30) == ({quick}, {slow})
    with pytest.raises(TimeoutError):
        list(as_completed([slow], timeout=0.01))
    assert wait([], timeout=30) == (set(), set())
    assert list(as_completed([], timeout=30)) == []
    gate.touch()
    assert list(as_completed([slow], timeout=30)) == [slow]


def test_h75_a_task_whose_future_was_dropped_runs_all_the_same(client: Client, tmp_path: Path) -> None:
    """A hundred tasks that make files, and nobody keeps a future of them: all hundred files appear."""
    for number in range(100):
        client.submit(Path.touch, tmp_path / str(number))
    gc.collect()

    wait_until(lambda: len(list(tmp_path.iterdir())) == 100, "all files are there")
