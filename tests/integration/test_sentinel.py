"""Redis behind a Sentinel: every program finds the new master by itself, whatever the old one had kept to itself."""

from __future__ import annotations

import contextlib
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill import Client, LocalCluster
from gristmill.ports import free_port
from support import tasks
from support.database import Database
from support.invariants import wait_for_invariants
from support.leaks import Leaks
from support.server import RedisServer, die_with_parent
from support.waiting import wait_until


class Watched:
    """A master, a replica, and one Sentinel that is enough to decide."""

    def __init__(self, folder: Path) -> None:
        self.servers = [RedisServer(port=free_port()), RedisServer(port=free_port())]
        for server in self.servers:
            server.start()
            server.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        master, replica = self.servers
        replica.command("REPLICAOF", "127.0.0.1", str(master.port))
        with contextlib.closing(Database(replica.address)) as database:
            wait_until(
                lambda: "master_link_status:up" in database.info("replication"), "the replica follows", timeout=30
            )
        self.port = free_port()
        configuration = folder / "sentinel.conf"
        configuration.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor grist 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds grist 500\nsentinel failover-timeout grist 2000\n"
        )
        self.sentinel = subprocess.Popen(
            [str(master.binary), str(configuration), "--sentinel"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent,
        )  # fmt: skip
        with contextlib.closing(Database(f"redis://127.0.0.1:{self.port}")) as database:
            wait_until(lambda: self._knows_replica(database), "the Sentinel knows the replica", timeout=30)

    @staticmethod
    def _knows_replica(database: Database) -> bool:
        try:
            return len(database.run("SENTINEL", "REPLICAS", "grist")) == 1
        except Exception:  # not yet up
            return False

    @property
    def address(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/grist"

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


@pytest.mark.timeout(120)
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
        wait_until(lambda: sum(future.done() for future in futures) > 20, "some are done", timeout=30)
        # From now on the replica may not come in any more.
        database.run("CONFIG", "SET", "requirepass", "secret")
        database.run("CLIENT", "KILL", "TYPE", "replica")
        wait_until(
            lambda: "master_link_status:down" in others.info("replication"), "the replica is cut off", timeout=30
        )
        done = sum(future.done() for future in futures)
        wait_until(lambda: sum(future.done() for future in futures) > done + 10, "more are done", timeout=30)
        master.kill()

        assert client.gather(futures, timeout=90) == [str(number) for number in range(300)]
        assert client.map(abs, range(-50, 0), timeout=30) == list(range(50, 0, -1))
        wait_for_invariants(others, cluster.keys)
    runs = Counter(tasks.started_lines(log))
    assert set(runs) == {str(number) for number in range(300)}
