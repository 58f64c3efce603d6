"""Redis behind a Sentinel: every program finds the new master by itself, whatever the old one had kept to itself."""

from __future__ import annotations

import contextlib
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from gristmill import Client, LocalCluster
from support import tasks
from support.database import Database
from support.invariants import wait_for_invariants
from support.leaks import Leaks
from support.server import RedisServer, die_with_parent, free_port
from support.waiting import wait_until

TRIES = 5
"""A port that was free may be taken before it is used."""


def started_server() -> RedisServer:
    """A server that listens on a port."""
    for left in reversed(range(TRIES)):
        server = RedisServer(port=free_port())
        try:
            server.start()
            break
        except RuntimeError:
            server.discard()
            if not left:
                raise
    server.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    return server


class Watched:
    """A master, a replica, and one Sentinel that is enough to decide."""

    def __init__(self, folder: Path) -> None:
        self.servers = [started_server(), started_server()]
        master, replica = self.servers
        replica.command("REPLICAOF", "127.0.0.1", str(master.port))
        with contextlib.closing(Database(replica.address)) as database:
            wait_until(lambda: "master_link_status:up" in database.info("replication"), "the replica follows")
        self.log = folder / "sentinel.log"
        for _ in range(TRIES):
            self.port = free_port()
            configuration = folder / "sentinel.conf"
            # It must take nobody for dead who is only slow: the test says when the master is lost.
            configuration.write_text(
                f"port {self.port}\nbind 127.0.0.1\ndir {folder}\nlogfile {self.log}\n"
                f"sentinel monitor grist 127.0.0.1 {master.port} 1\n"
                "sentinel down-after-milliseconds grist 120000\nsentinel failover-timeout grist 20000\n"
            )
            self.sentinel = subprocess.Popen(
                [str(master.binary), str(configuration), "--sentinel"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent,
            )  # fmt: skip
            with contextlib.closing(Database(f"redis://127.0.0.1:{self.port}")) as database:
                wait_until(
                    lambda: self.sentinel.poll() is not None or self._knows_replica(database),
                    "the Sentinel knows the replica",
                )
            if self.sentinel.poll() is None:
                break
        assert self.sentinel.poll() is None, "the Sentinel has ended"

    @staticmethod
    def _knows_replica(database: Database) -> bool:
        try:
            return len(database.run("SENTINEL", "REPLICAS", "grist")) == 1
        except Exception:  # not yet up
            return False

    @property
    def address(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/grist"

    def fail_over(self) -> None:
        """The master is lost, and the Sentinel makes the replica the new one."""
        master, replica = self.servers
        master.kill()
        with contextlib.closing(Database(f"redis://127.0.0.1:{self.port}")) as database:
            try:
                wait_until(lambda: self._leads_to(replica, database), "the Sentinel leads to the replica", timeout=120)
            except pytest.fail.Exception as failed:
                pytest.fail(f"{failed}\n{database.run('SENTINEL', 'REPLICAS', 'grist')}\n{self.log.read_text()}")

    @staticmethod
    def _leads_to(server: RedisServer, database: Database) -> bool:
        _, port = database.run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "grist")
        if int(port) == server.port:
            return True
        with contextlib.suppress(redis.ResponseError):  # it is at it, or does not know enough of the replica yet
            database.run("SENTINEL", "FAILOVER", "grist")
        return False

    def discard(self) -> None:
        self.sentinel.kill()
        self.sentinel.wait()
        for server in self.servers:
            server.discard()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.discard()


def test_a_failover_to_a_replica_that_misses_the_last_writes_loses_no_task(
    no_leaks: Leaks, watched: Watched, namespace: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    master, replica = watched.servers
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(contextlib.closing(Database(master.address)))
        others = stack.enter_context(contextlib.closing(Database(replica.address)))
        cluster = stack.enter_context(LocalCluster(redis=watched.address, namespace=namespace, workers=2, schedulers=2))
        client = stack.enter_context(Client(cluster))
        futures = [client.submit(tasks.note_start_and_work, str(log), str(number), 0.01) for number in range(300)]
        wait_until(lambda: sum(future.done() for future in futures) > 20, "some are done")
        # From now on the replica may not come in any more.
        database.run("CONFIG", "SET", "requirepass", "secret")
        database.run("CLIENT", "KILL", "TYPE", "replica")
        wait_until(lambda: "master_link_status:down" in others.info("replication"), "the replica is cut off")
        done = sum(future.done() for future in futures)
        # Those may all be done by now. Of these the replica will know nothing.
        futures += [client.submit(tasks.note_start_and_work, str(log), str(number), 0.01) for number in range(300, 400)]
        wait_until(lambda: sum(future.done() for future in futures) > done + 10, "more are done")
        watched.fail_over()

        assert client.gather(futures, timeout=120) == [str(number) for number in range(400)]
        assert client.map(abs, range(-50, 0), timeout=60) == list(range(50, 0, -1))
        wait_for_invariants(others, cluster.keys)
    runs = Counter(tasks.started_lines(log))
    assert set(runs) == {str(number) for number in range(400)}
