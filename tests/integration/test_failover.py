"""A replica that missed the last writes takes over: what only the former master knew is said again."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gristmill import Client, Future, LocalCluster
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.server import RedisServer, free_port
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def on_a_port() -> RedisServer:
    """A server with a port, for its replica. Another program may take one that was free a moment ago."""
    for tries_left in reversed(range(5)):
        server = RedisServer(port=free_port())
        try:
            server.start()
        except RuntimeError:
            server.discard()
            if not tries_left:
                raise
        else:
            return server
    raise AssertionError("unreachable")


def replication(server: RedisServer) -> dict[str, str]:
    """What a server says of its replication."""
    with contextlib.closing(Database(server.address)) as database:
        return dict(line.split(":", 1) for line in database.info("replication"))


class Pair:
    """A master with a replica, and a name that leads to one of them."""

    def __init__(self, folder: Path) -> None:
        self.name = folder / "redis.sock"
        self.master = on_a_port()
        self.replica = RedisServer()
        self.replica.start()
        self.master.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        self.replica.command("REPLICAOF", "127.0.0.1", str(self.master.port))
        wait_until(lambda: replication(self.replica).get("master_link_status") == "up", "the replica follows")
        self.name.symlink_to(self.master.socket)

    @property
    def address(self) -> str:
        return f"unix://{self.name}"

    def part(self) -> None:
        """From now on the replica misses what is written; what was written before it has."""
        written = int(replication(self.master)["master_repl_offset"])
        wait_until(lambda: int(replication(self.replica)["slave_repl_offset"]) >= written, "the replica has it all")
        self.replica.command("REPLICAOF", "NO", "ONE")

    def fail_over(self) -> None:
        """The master is lost with all that the replica has missed; the name leads to the replica."""
        self.master.kill()
        self.name.unlink()
        self.name.symlink_to(self.replica.socket)

    def discard(self) -> None:
        self.master.discard()
        self.replica.discard()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.discard()


def held(client: Client, log: Path, gate: Path, name: str) -> Future:
    return client.submit(tasks.wait_and_mark_end, str(log), str(gate), name)


def test_an_outcome_in_the_lost_part_is_sent_again_and_the_task_does_not_run_again(
    pair: Pair, start_cluster: Starter, tmp_path: Path
) -> None:
    cluster = start_cluster(redis=pair.address, workers=1, schedulers=1, worker_options=LONG_LEASE)
    log, gate = tmp_path / "log", tmp_path / "gate"

    def work(client: Client, first: int, last: int) -> list[Future]:
        numbers = range(first, last)
        return [client.submit(tasks.note_start_and_work, str(log), str(number), 0.02) for number in numbers]

    with Client(cluster) as client:
        client.submit(tasks.nothing).result(timeout=60)
        futures = work(client, 0, 50)
        inside = held(client, log, gate, str(tmp_path / "end"))
        futures += work(client, 50, 150)
        client.flush()
        wait_until((tmp_path / "log.started").exists, "one executes that ends only in the lost part")
        (scheduler,) = cluster.schedulers
        scheduler.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(scheduler.pid).status() == psutil.STATUS_STOPPED, "the scheduler is stopped")
        pair.part()
        # That one, and what else the worker has got, it finishes; nobody applies the outcomes.
        gate.touch()
        with contextlib.closing(Database(pair.master.address)) as database:

            def waits() -> bool:
                entries = database.stream(cluster.keys.results())
                return any(inside.task_id in body for entry in entries for body in entry.fields.values())

            wait_until(waits, "its outcome waits")
        ran = len(tasks.started_lines(log))
        pair.fail_over()
        scheduler.send_signal(signal.SIGCONT)

        assert client.gather(futures, timeout=60) == [str(number) for number in range(150)]
        assert inside.result(timeout=60) == "the value"
    assert ran > 5
    assert Counter(tasks.started_lines(log)) == Counter(["start", *(str(number) for number in range(150))])


def test_what_executes_goes_on_although_its_delivery_was_lost(
    pair: Pair, start_cluster: Starter, tmp_path: Path
) -> None:
    cluster = start_cluster(redis=pair.address, workers=1, schedulers=1, worker_options=LONG_LEASE)
    log = tmp_path / "log"
    gates = [tmp_path / f"gate-{number}" for number in range(3)]
    with Client(cluster) as client:
        futures = [held(client, log, gate, str(tmp_path / gate.name.replace("gate", "end"))) for gate in gates]
        wait_until(lambda: len(tasks.started_lines(log)) == 1, "the first executes")
        client.flush()
        pair.part()
        gates[0].touch()
        wait_until(lambda: len(tasks.started_lines(log)) == 2, "the second executes, which the replica has not seen")
        pair.fail_over()
        with contextlib.closing(Database(pair.replica.address)) as database:
            (worker,) = database.zset(cluster.keys.workers())
            record = cluster.keys.worker(worker)
            wait_until(lambda: "held" in database.hash(record), "the new master is told what is held")
        for gate in gates[1:]:
            gate.touch()

        client.gather(futures, timeout=60)
    assert len(tasks.started_lines(log)) == 3


def test_what_was_submitted_in_the_lost_part_is_sent_again(pair: Pair, start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(redis=pair.address)
    with Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=60) == 1
        pair.part()
        done = client.map(abs, range(-300, 0), timeout=60)
        futures = [client.submit(tasks.sleep_long, 0.02) for _ in range(100)]
        wait_until(lambda: sum(future.done() for future in futures) > 10, "some are done")
        with Client(cluster) as later:
            pair.fail_over()

            assert client.gather(futures, timeout=60) == [0.02] * 100
            assert later.submit(abs, -2).result(timeout=60) == 2
        assert done == [abs(number) for number in range(-300, 0)]
