"""Clients that are killed, freeze, or flood: nothing of theirs stays, and nobody else is harmed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gristmill import Client, Future, LocalCluster, QueueFullError, TaskError
from gristmill.snapshot import Snapshot
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]

PROGRAM = """
import sys, time
from gristmill import Client
from support import tasks
address, namespace, started = sys.argv[1:]
client = Client(address, namespace=namespace, lease_seconds=3)
running = client.submit(tasks.hang_politely, started)
waiting = [client.submit(tasks.hang_politely, started + str(number)) for number in range(20)]
client.flush()
print("submitted", flush=True)
time.sleep(600)
"""

ENDING = """
import sys
from gristmill import Client
client = Client(sys.argv[1], namespace=sys.argv[2])
client.submit(abs, -1).result()
futures = [client.submit(pow, 2, number) for number in range(500)]
sys.exit(3)
"""


@pytest.fixture
def program(start_cluster: Starter, tmp_path: Path) -> Iterator[tuple[LocalCluster, subprocess.Popen[str]]]:
    """A client of three seconds of lease in a process of its own, one task of which executes."""
    # Of two schedulers, the second might apply the second batch first.
    cluster = start_cluster(workers=1, schedulers=1, worker_options=LONG_LEASE)
    command = [sys.executable, "-c", PROGRAM, cluster.address, cluster.namespace, str(tmp_path / "started")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(Path(tasks.__file__).parents[1])}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "submitted\n"
    process.stdout.close()
    try:
        wait_until((tmp_path / "started").exists, "a task of the program executes")
        yield cluster, process
    finally:
        process.kill()
        process.wait()


def test_the_tasks_of_a_killed_client_are_cancelled(
    program: tuple[LocalCluster, subprocess.Popen[str]], database: Database
) -> None:
    cluster, process = program
    process.kill()
    process.wait()

    wait_until(lambda: not database.keys(cluster.keys.task("")), "no task of the killed client is left")
    assert int(database.hash(cluster.keys.counts())["state:canceled"]) == 21
    with Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=30) == 1


def test_a_client_that_was_frozen_for_longer_than_its_lease_goes_on_under_a_new_id(
    program: tuple[LocalCluster, subprocess.Popen[str]], database: Database
) -> None:
    cluster, process = program
    (before,) = wait_until(lambda: list(database.zset(cluster.keys.clients())), "the client is on the list")
    process.send_signal(signal.SIGSTOP)
    # Not only that it is off the list: until the record has ended, a beat would put it there again.
    record = cluster.keys.client(before)
    wait_until(lambda: "ended" in database.hash(record), "the lease of the frozen client has ended")
    process.send_signal(signal.SIGCONT)

    wait_until(lambda: database.zset(cluster.keys.clients()), "the client has registered again")
    assert before not in database.zset(cluster.keys.clients())


def test_a_client_that_ends_in_good_order_leaves_nothing(start_cluster: Starter, database: Database) -> None:
    cluster = start_cluster(workers=1)
    command = [sys.executable, "-c", ENDING, cluster.address, cluster.namespace]
    assert subprocess.run(command, timeout=120, check=False).returncode == 3

    # Its last requests may still lie in their streams; that it goes is applied behind all of its tasks.
    wait_until(lambda: database.zset(cluster.keys.clients()) == {}, "the client is gone")
    wait_until(lambda: not database.keys(cluster.keys.task("")), "no task is left")


def test_a_client_whose_lease_ended_tells_its_futures(start_cluster: Starter, database: Database) -> None:
    cluster = start_cluster(workers=0, schedulers=1)
    with Client(cluster, lease_seconds=3) as client:
        future = client.submit(abs, -1)
        client.flush()
        identity = client.client_id  # afterwards it goes on under another one
        record = cluster.keys.client(identity)

        def has_ended() -> bool:
            # Again and again: a beat of the client may come between this and the sweep.
            database.run("ZADD", cluster.keys.clients(), "XX", -1, identity)
            return "ended" in database.hash(record)

        wait_until(has_ended, "the lease of the client has ended")
        with pytest.raises(TaskError, match="lease"):
            future.result(timeout=30)


def test_the_beats_of_a_client_say_how_its_program_is_doing(start_cluster: Starter) -> None:
    cluster = start_cluster(workers=0, schedulers=1)
    with Client(cluster, lease_seconds=1.5), Snapshot(cluster.address, cluster.namespace) as snapshot:
        (seen,) = wait_until(lambda: [one for one in snapshot.clients() if one.rss_bytes], "its first beat is there")

    resident = psutil.Process().memory_info().rss
    assert resident / 2 < (seen.rss_bytes or 0) < resident * 2
    assert seen.cpu_percent is not None
    assert seen.latency_ms is not None


def test_while_too_many_tasks_wait_new_ones_are_refused(start_cluster: Starter, database: Database) -> None:
    cluster = start_cluster(workers=0, schedulers=1, scheduler_options={"max_tasks_waiting": 100})
    with Client(cluster) as client:
        accepted: list[Future] = []
        with contextlib.suppress(QueueFullError):  # the client may hear of it before the last one
            for number in range(150):
                accepted.append(client.submit(abs, -number))  # noqa: PERF401 - what was accepted counts
        client.flush()
        wait_until(lambda: database.string(cluster.keys.intake()) != "open", "the intake is closed")

        def is_refused() -> bool:
            try:
                accepted.append(client.submit(abs, -len(accepted)))
            except QueueFullError as error:
                return "max_tasks_waiting" in str(error)
            return False

        wait_until(is_refused, "the client knows that no new tasks are taken")
        cluster.add_worker()
        outcomes = [future.exception(timeout=60) for future in accepted]
        assert outcomes[:100] == [None] * 100
        assert all(outcome is None or isinstance(outcome, QueueFullError) for outcome in outcomes)
        wait_until(lambda: database.string(cluster.keys.intake()) == "open", "the intake is open")
        wait_until(lambda: accepts(client), "new tasks are taken")


def accepts(client: Client) -> bool:
    try:
        return bool(client.submit(abs, -1).result(timeout=60) == 1)
    except QueueFullError:
        return False


def test_a_client_may_wait_instead_until_tasks_are_taken(start_cluster: Starter, database: Database) -> None:
    cluster = start_cluster(workers=0, schedulers=1, scheduler_options={"max_tasks_waiting": 100})
    with Client(cluster, when_full="wait") as client:
        futures = [client.submit(abs, -number) for number in range(1500)]
        wait_until(lambda: database.string(cluster.keys.intake()) not in ("open", None), "the intake is closed")
        cluster.add_worker()

        assert client.gather(futures, timeout=60) == list(range(1500))


def test_the_flood_of_one_client_delays_another_by_one_task_of_its_own_each(start_cluster: Starter) -> None:
    cluster = start_cluster(workers=1)
    with Client(cluster) as flooding, Client(cluster) as other:
        flood = [flooding.submit(tasks.sleep_long, 0.1) for _ in range(1000)]  # 100 s
        flooding.flush()
        wait_until(lambda: flood[5].done(), "the flood is being worked off")
        for _ in range(3):
            assert other.submit(abs, -1).result(timeout=30) == 1
        assert not flood[-1].done()
        flooding.cancel(flood)
