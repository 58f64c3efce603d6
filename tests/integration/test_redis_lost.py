"""Redis that comes and goes, with its data and without."""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis

from gristmill import Client, Future, LocalCluster, QueueFullError
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.server import RedisServer
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def numbered(log: Path, count: int) -> Counter[str]:
    assert tasks.started_lines(log)
    return Counter(str(number) for number in range(count))


def starts(log: Path) -> Counter[str]:
    return Counter(tasks.started_lines(log))


def some_are_done(futures: list[Future], least: int) -> None:
    wait_until(lambda: sum(future.done() for future in futures) >= least, f"{least} tasks are done")


def test_connections_that_are_killed_lose_nothing(start_cluster: Starter, database: Database, tmp_path: Path) -> None:
    cluster = start_cluster(worker_options=LONG_LEASE)
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start, str(log), str(number)) for number in range(3000)]
        for share in (300, 1000, 1700, 2400):
            some_are_done(futures, share)
            database.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

        assert client.gather(futures, timeout=120) == [str(number) for number in range(3000)]
    assert starts(log) == numbered(log, 3000)


def test_a_redis_that_restarts_with_its_data_loses_nothing(
    own_server: RedisServer, start_cluster: Starter, tmp_path: Path
) -> None:
    cluster = start_cluster(redis=own_server.address, worker_options=LONG_LEASE)
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start, str(log), str(number)) for number in range(3000)]
        for share in (500, 1500):
            some_are_done(futures, share)
            own_server.restart()

        assert client.gather(futures, timeout=120) == [str(number) for number in range(3000)]
    assert starts(log) == numbered(log, 3000)


def test_a_task_that_ends_while_redis_is_away_keeps_its_result(
    own_server: RedisServer, start_cluster: Starter, tmp_path: Path
) -> None:
    cluster = start_cluster(redis=own_server.address, workers=1, worker_options=LONG_LEASE)
    log, gate = tmp_path / "log", tmp_path / "gate"
    with Client(cluster) as client:
        future = client.submit(tasks.wait_and_mark_end, str(log), str(gate), str(tmp_path / "ended"))
        wait_until((tmp_path / "log.started").exists, "the task has started")
        own_server.kill()
        gate.touch()
        wait_until((tmp_path / "ended").exists, "the task has ended")
        own_server.start()

        assert future.result(timeout=60) == "the value"
    assert len(tasks.started_lines(log)) == 1


def test_a_redis_that_loses_everything_is_told_everything_again(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster()
    log = tmp_path / "log"
    with Client(cluster) as client:
        source = client.submit(abs, -1)
        futures = [client.submit(tasks.note_start, str(log), str(number)) for number in range(3000)]
        dependents = [client.submit(tasks.add, source, number) for number in range(100)]
        some_are_done(futures, 300)
        database.run("FLUSHALL")

        assert client.gather(futures, timeout=120) == [str(number) for number in range(3000)]
        assert client.gather(dependents, timeout=60) == list(range(1, 101))
    assert set(starts(log)) == set(numbered(log, 3000))


@pytest.fixture
def forgetful_server() -> Iterator[RedisServer]:
    """A Redis that comes back empty."""
    server = RedisServer(persistent=False)
    server.start()
    yield server
    server.discard()


def test_work_goes_on_after_a_redis_without_data_comes_up(
    forgetful_server: RedisServer, start_cluster: Starter
) -> None:
    cluster = start_cluster(redis=forgetful_server.address)
    with Client(cluster) as client:
        for _ in range(3):
            assert client.map(abs, range(100)) == list(range(100))
            forgetful_server.restart()
        assert client.submit(abs, -5).result(timeout=60) == 5
        assert client.map(bytes, [200_000] * 3, timeout=60) == [bytes(200_000)] * 3


def test_a_large_argument_is_sent_again_after_everything_was_lost(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster(workers=1)
    gate = tmp_path / "gate"
    with Client(cluster) as client:
        blocker = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        large = bytes(3_000_000)
        future = client.submit(len, large)
        client.flush()
        database.run("FLUSHALL")
        gate.touch()

        assert future.result(timeout=60) == 3_000_000
        assert blocker.result(timeout=60) > 0


def test_a_redis_that_refuses_writes_for_a_while_loses_nothing(
    own_server: RedisServer, start_cluster: Starter, tmp_path: Path
) -> None:
    cluster = start_cluster(redis=own_server.address, worker_options=LONG_LEASE)
    database = Database(own_server.address)
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start, str(log), str(number)) for number in range(2000)]
        some_are_done(futures, 200)
        database.run("CONFIG", "SET", "min-replicas-to-write", "1")
        with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
            database.run("SET", "x", "x")
        database.run("CONFIG", "SET", "min-replicas-to-write", "0")

        assert client.gather(futures, timeout=120) == [str(number) for number in range(2000)]
    assert starts(log) == numbered(log, 2000)
    assert all(program.poll() is None for program in cluster.processes)
    database.close()


def submit_until_refused(client: Client, most: int) -> list[Future]:
    """The futures of what was accepted before `submit` raised, or of all."""
    accepted = []
    try:
        for number in range(most):
            future = client.submit(tasks.echo, b"x" * 2000 + str(number).encode())
            accepted.append(future)
    except QueueFullError:
        pass
    return accepted


def ended_as_accepted_or_refused(futures: list[Future]) -> tuple[int, int]:
    """How many succeeded, and how many were refused; anything else fails."""
    outcomes = [future.exception(timeout=60) for future in futures]
    refused = sum(isinstance(outcome, QueueFullError) for outcome in outcomes)
    assert [outcome for outcome in outcomes if outcome and not isinstance(outcome, QueueFullError)] == []
    return len(outcomes) - refused, refused


def limit_memory(database: Database, more: int) -> None:
    used = int(dict(line.split(":", 1) for line in database.info("memory"))["used_memory"])
    database.run("CONFIG", "SET", "maxmemory", used + more)


def test_the_intake_closes_before_redis_is_full_and_what_is_in_drains(
    own_server: RedisServer, start_cluster: Starter
) -> None:
    cluster = start_cluster(redis=own_server.address, workers=0, schedulers=1)
    database = Database(own_server.address)
    with Client(cluster) as client:
        limit_memory(database, 60_000_000)
        accepted = submit_until_refused(client, 100_000)
        assert len(accepted) < 100_000
        cluster.add_worker()
        succeeded, _ = ended_as_accepted_or_refused(accepted)

        assert succeeded > 1000
        wait_until(lambda: database.string(cluster.keys.intake()) == "open", "the intake is open again")
        wait_until(lambda: len(submit_until_refused(client, 1)) == 1, "new tasks are taken")
    database.close()


def test_a_redis_that_is_full_loses_nothing_that_was_accepted(own_server: RedisServer, start_cluster: Starter) -> None:
    cluster = start_cluster(redis=own_server.address, worker_options=LONG_LEASE)
    database = Database(own_server.address)
    with Client(cluster) as client:
        limit_memory(database, 1_000_000)
        accepted = submit_until_refused(client, 3000)
        wait_until(lambda: refuses_writes(database) or all(future.done() for future in accepted), "Redis is full")
        database.run("CONFIG", "SET", "maxmemory", 0)

        ended_as_accepted_or_refused(accepted)
        wait_until(lambda: len(submit_until_refused(client, 1)) == 1, "new tasks are taken")
    database.close()


def test_whoever_submits_while_redis_takes_nothing_is_told_and_does_not_hang(
    own_server: RedisServer, start_cluster: Starter
) -> None:
    cluster = start_cluster(redis=own_server.address, workers=0, schedulers=1)
    database = Database(own_server.address)
    with Client(cluster) as client:
        database.run("CONFIG", "SET", "maxmemory", 1)

        with pytest.raises(QueueFullError, match="maxmemory"):
            list(map(client.submit, itertools.repeat(abs), itertools.repeat(-1)))

        database.run("CONFIG", "SET", "maxmemory", 0)
    database.close()


def test_an_argument_for_which_redis_has_no_room_is_refused_and_leaves_nothing(
    own_server: RedisServer, start_cluster: Starter
) -> None:
    cluster = start_cluster(redis=own_server.address, schedulers=1)
    database = Database(own_server.address)
    with Client(cluster) as client:
        assert client.submit(len, b"x" * 2_000_000).result(timeout=60) == 2_000_000
        # Nobody closes the intake: the client learns from Redis itself that there is no room.
        scheduler = cluster.schedulers[0]
        scheduler.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(scheduler.pid).status() == psutil.STATUS_STOPPED, "the scheduler is stopped")
        limit_memory(database, 1_000_000)
        with pytest.raises(QueueFullError, match="Redis has no room for an argument of 8,000,0"):
            client.submit(len, b"y" * 8_000_000)
        # In this order: it would close the intake, of which the client may hear later than of its next task.
        database.run("CONFIG", "SET", "maxmemory", 0)
        scheduler.send_signal(signal.SIGCONT)

        wait_until(lambda: len(submit_until_refused(client, 1)) == 1, "new tasks are taken")
        assert client.submit(len, b"z" * 2_000_000).result(timeout=60) == 2_000_000
    database.close()


def refuses_writes(database: Database) -> bool:
    try:
        database.run("SET", "x", "x", "PX", 1)
    except redis.ResponseError:
        return True
    return False


# --- keys that vanish ---------------------------------------------------------------------------------------


def submit_five(client: Client, database: Database, cluster: LocalCluster) -> list[Future]:
    """Five tasks that have their records, or had them."""
    futures = [client.submit(abs, -number) for number in range(5)]

    def is_there(future: Future) -> bool:
        # A worker whose lease has ended on a machine that stalls lets go of what kept it from them.
        return database.exists(cluster.keys.task(future.task_id)) or future.done()

    wait_until(lambda: all(map(is_there, futures)), "their records are there")
    return futures


def repairs(database: Database, cluster: LocalCluster) -> dict[str, int]:
    counts = database.hash(cluster.keys.counts())
    return {name.partition(":")[2]: int(n) for name, n in counts.items() if name.startswith("repaired:")}


def test_records_that_were_deleted_are_sent_again_and_take_no_place(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    started, gate = tmp_path / "started", tmp_path / "gate"
    with Client(cluster) as client:
        running = client.submit(tasks.wait_for_file, str(started), str(gate))
        wait_until(started.exists, "the first executes")
        waiting = submit_five(client, database, cluster)
        database.run("DEL", *(cluster.keys.task(future.task_id) for future in (running, waiting[3])))
        wait_until(lambda: repairs(database, cluster).get("record_gone", 0) >= 2, "the losses are noticed")
        gate.touch()

        assert running.result(timeout=60) > 0
        assert client.gather(waiting, timeout=60) == list(range(5))
        wait_until(
            lambda: database.length(cluster.keys.worker_tasks(cluster_worker(database, cluster))) == 0,
            "no entry is left",
        )


def cluster_worker(database: Database, cluster: LocalCluster) -> str:
    # There is none while a worker registers anew.
    (worker,) = wait_until(lambda: list(database.zset(cluster.keys.workers())), "the worker is on the list")
    return worker


@pytest.mark.parametrize(
    "kind", ["ready", "counts", "lanes", "load", "clients", "workers", "client_tasks", "intake", "clock"]
)
def test_a_key_that_was_deleted_stops_nothing(
    start_cluster: Starter, database: Database, tmp_path: Path, kind: str
) -> None:
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    started, gate = tmp_path / "started", tmp_path / "gate"
    with Client(cluster) as client:
        running = client.submit(tasks.wait_for_file, str(started), str(gate))
        wait_until(started.exists, "the first executes")
        waiting = submit_five(client, database, cluster)
        own = {"client_tasks": (client._session.client_id,), "ready": tuple(database.hash(cluster.keys.lanes()))[:1]}
        database.run("DEL", getattr(cluster.keys, kind)(*own.get(kind, own["ready"] if kind == "load" else ())))
        gate.touch()

        assert running.result(timeout=60) > 0
        assert client.gather(waiting, timeout=60) == list(range(5))


@pytest.mark.parametrize("kind", ["worker", "worker_tasks", "worker_control"])
def test_a_worker_whose_key_was_deleted_goes_on_or_registers_anew(
    start_cluster: Starter, database: Database, tmp_path: Path, kind: str
) -> None:
    cluster = start_cluster(workers=1)
    started = tmp_path / "log.started"
    with Client(cluster) as client:
        running = client.submit(tasks.wait_first_time_only, str(tmp_path / "log"), str(tmp_path / "gate"))
        wait_until(started.exists, "the first executes")
        waiting = submit_five(client, database, cluster)
        database.run("DEL", getattr(cluster.keys, kind)(cluster_worker(database, cluster)))
        if kind == "worker_control":
            (tmp_path / "gate").touch()

        assert running.result(timeout=60) > 0
        assert client.gather(waiting, timeout=60) == list(range(5))


@pytest.mark.parametrize("kind", ["client", "client_inbox"])
def test_a_client_whose_key_was_deleted_goes_on(
    start_cluster: Starter, database: Database, tmp_path: Path, kind: str
) -> None:
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    log, gate = tmp_path / "log", tmp_path / "gate"
    with Client(cluster) as client:
        running = client.submit(tasks.wait_and_mark_end, str(log), str(gate), str(tmp_path / "end"))
        wait_until(lambda: tasks.started_lines(log), "the first executes")
        waiting = submit_five(client, database, cluster)
        database.run("DEL", getattr(cluster.keys, kind)(client._session.client_id))
        if kind == "client":
            wait_until(lambda: database.exists(cluster.keys.client(client._session.client_id)), "it registers anew")
        gate.touch()

        assert running.result(timeout=60) == "the value"
        assert client.gather(waiting, timeout=60) == list(range(5))
    if kind == "client":  # an outcome that had been written into the inbox went with it: the task runs again
        assert len(tasks.started_lines(log)) == 1
