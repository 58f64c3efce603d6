"""H21 to H23, H25, H29, H32, H33: a Redis that restarts, forgets, changes places, or does not answer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gristmill import Client, LocalCluster
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.proxy import FaultProxy
from support.server import RedisServer, free_port
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def figure(database: Database, section: str, name: str) -> int:
    """A whole number of INFO."""
    return int(dict(line.split(":", 1) for line in database.info(section))[name])


def test_h21_after_each_restart_of_redis_everybody_goes_on(own_server: RedisServer, start_cluster: Starter) -> None:
    """Restarts while idle and while busy, and a reset of all connections: each time the next tasks run, with the
    same processes."""
    cluster = start_cluster(redis=own_server.address, workers=3)
    with Client(cluster) as client:
        for busy in (False, True, False, True):
            futures = [client.submit(tasks.sleep_long, 0.005) for _ in range(100)] if busy else []
            own_server.restart()
            futures += [client.submit(abs, -1) for _ in range(100)]
            client.gather(futures, timeout=60)
        own_server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert client.map(abs, range(-100, 0), timeout=60) == list(range(100, 0, -1))
    assert all(program.poll() is None for program in cluster.processes)


def test_h22_scripts_that_vanish_all_the_time_are_nobodys_trouble(
    own_server: RedisServer, start_cluster: Starter, tmp_path: Path
) -> None:
    """SCRIPT FLUSH again and again under load, and one restart: no call fails, and every task runs once."""
    cluster = start_cluster(redis=own_server.address, worker_options=LONG_LEASE)
    log = tmp_path / "log"
    over = threading.Event()

    def flush_scripts() -> None:
        while not over.wait(0.2):  # five times a second
            with contextlib.suppress(Exception):  # the server is away for a moment
                own_server.command("SCRIPT", "FLUSH")

    flushing = threading.Thread(target=flush_scripts)
    try:
        with Client(cluster) as client:
            flushing.start()
            futures = [client.submit(tasks.note_start_and_work, str(log), str(at), 0.002) for at in range(300)]
            wait_until(lambda: futures[50].done(), "some are done", timeout=60)
            own_server.restart()
            assert client.gather(futures, timeout=90) == [str(number) for number in range(300)]
            over.set()
    finally:
        over.set()
        flushing.join()
    assert Counter(tasks.started_lines(log)) == Counter(map(str, range(300)))


def test_h23_after_flushall_everybody_recovers_without_a_busy_loop(
    start_cluster: Starter, database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    """Everything is deleted under a busy cluster: clients send again what vanished, all goes on, and quietly."""
    cluster = start_cluster()
    with Client(cluster) as client:
        futures = [client.submit(tasks.sleep_long, 0.005) for _ in range(200)]
        wait_until(lambda: futures[20].done(), "some are done", timeout=30)
        database.run("FLUSHALL")
        futures += [client.submit(tasks.sleep_long, 0.005) for _ in range(100)]
        client.flush(timeout=60)
        assert client.gather(futures, timeout=60) == [0.005] * 300
        assert client.submit(abs, -1).result(timeout=30) == 1

        def commands_in_a_second() -> float:
            before, begun = figure(database, "stats", "total_commands_processed"), time.monotonic()
            time.sleep(1)
            after = figure(database, "stats", "total_commands_processed")
            return (after - before) / (time.monotonic() - begun)

        wait_until(lambda: commands_in_a_second() < 500, "idle programs ask for little")
    assert all(program.poll() is None for program in cluster.processes)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) < 60, lines
    assert not [line for line in lines if "Traceback" in line]


def test_h25_a_socket_time_out_in_the_address_does_not_cut_blocking_reads(
    start_cluster: Starter, server: RedisServer, database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    """With socket_timeout=1 an idle cluster makes no new connections and logs no time-out; then a task just runs."""
    cluster = start_cluster(redis=f"{server.address}?socket_timeout=1", worker_options=LONG_LEASE)
    with Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=30) == 1

        def quiet() -> bool:
            """A Redis that stalls for longer than the time-out may cost a connection, once and not each time."""
            capfd.readouterr()  # who starts may have to wait for Redis
            before = figure(database, "stats", "total_connections_received")
            time.sleep(3)  # longer than the time-out and than any blocking read
            after = figure(database, "stats", "total_connections_received")
            assert client.submit(abs, -2).result(timeout=30) == 2
            said = [line for line in capfd.readouterr().err.splitlines() if "time" in line.lower()]
            return after == before and not said

        wait_until(quiet, "for three seconds nobody connects anew or speaks of a time-out")


def start_with_port() -> RedisServer:
    """A server that listens on a port too."""
    for _ in range(5):
        server = RedisServer(port=free_port())
        try:
            server.start()
        except RuntimeError:  # somebody else has taken the port meanwhile
            server.discard()
        else:
            return server
    raise RuntimeError("five free ports were all taken before a server could listen")


class Pair:
    """A master with a replica, and a name that leads to one of them."""

    def __init__(self, folder: Path) -> None:
        self.name = folder / "redis.sock"
        self.servers = [start_with_port(), start_with_port()]
        for server in self.servers:
            server.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        self.follow(1, 0)
        self.name.symlink_to(self.servers[0].socket)

    def follow(self, replica: int, master: int) -> None:
        self.servers[replica].command("REPLICAOF", "127.0.0.1", str(self.servers[master].port))
        with contextlib.closing(Database(self.servers[replica].address)) as database:
            wait_until(lambda: "master_link_status:up" in database.info("replication"), "the replica follows")

    def offset(self, number: int, name: str) -> int:
        """How far the replication of a server has come."""
        with contextlib.closing(Database(self.servers[number].address)) as database:
            return figure(database, "replication", name)

    def swap(self) -> None:
        """The replica becomes the master, without a loss; the former master follows it and refuses writes."""
        self.servers[0].command("CLIENT", "PAUSE", "60000", "WRITE")
        written = self.offset(0, "master_repl_offset")
        wait_until(lambda: self.offset(1, "slave_repl_offset") >= written, "the replica has everything")
        self.servers[1].command("REPLICAOF", "NO", "ONE")
        self.name.unlink()
        self.name.symlink_to(self.servers[1].socket)
        self.servers[0].command("REPLICAOF", "127.0.0.1", str(self.servers[1].port))
        self.servers[0].command("CLIENT", "UNPAUSE")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    for server in pair.servers:
        server.discard()


def test_h29_everybody_leaves_a_master_that_has_become_a_replica(
    pair: Pair, start_cluster: Starter, tmp_path: Path
) -> None:
    """The roles are swapped under load and the name is repointed, while old connections stay open: all go over to the
    new master, and outcomes of the meantime arrive."""
    cluster = start_cluster(redis=f"unix://{pair.name}")
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start_and_work, str(log), str(at), 0.005) for at in range(300)]
        wait_until(lambda: futures[30].done(), "some are done", timeout=30)
        pair.swap()
        futures += [client.submit(tasks.note_start_and_work, str(log), str(at), 0.005) for at in range(300, 400)]

        assert client.gather(futures, timeout=60) == [str(number) for number in range(400)]
        assert client.submit(abs, -1).result(timeout=30) == 1
    assert all(program.poll() is None for program in cluster.processes)
    assert set(tasks.started_lines(log)) == set(map(str, range(400)))


def test_h32_everybody_waits_for_a_redis_that_is_still_loading(
    own_server: RedisServer, start_cluster: Starter, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Redis comes back and loads its data for seconds, under load: nobody ends, nobody floods the log, and the task
    that ended meanwhile keeps its result."""
    cluster = start_cluster(redis=own_server.address, worker_options=LONG_LEASE)
    database = Database(own_server.address)
    fill = "for number = 1, 20000 do redis.call('SET', 'ballast:' .. number, 'x') end"
    database.run("EVAL", fill, 0)
    database.run("BGREWRITEAOF")
    wait_until(lambda: "aof_last_rewrite_time_sec:-1" not in database.info("persistence"), "the file is rewritten")
    log, gate = tmp_path / "log", tmp_path / "gate"
    with Client(cluster) as client:
        future = client.submit(tasks.wait_and_mark_end, str(log), str(gate), str(tmp_path / "ended"))
        others = [client.submit(tasks.sleep_long, 0.01) for _ in range(100)]
        wait_until((tmp_path / "log.started").exists, "the task has started", timeout=30)
        capfd.readouterr()
        own_server.kill()
        gate.touch()
        wait_until((tmp_path / "ended").exists, "the task has ended", timeout=30)
        own_server.start("--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024", wait=False)
        wait_until(lambda: is_loading(database), "Redis says that it is loading")
        late = client.submit(abs, -1)
        time.sleep(2)  # it would go on for a hundred seconds, so that nobody misses it
        assert is_loading(database)
        database.run("CONFIG", "SET", "key-load-delay", "0")

        assert future.result(timeout=60) == "the value"
        assert client.gather([*others, late], timeout=60) == [0.01] * 100 + [1]
    assert len(tasks.started_lines(log)) == 1
    assert all(program.poll() is None for program in cluster.processes)
    assert len(capfd.readouterr().err.splitlines()) < 40
    database.close()


def is_loading(database: Database) -> bool:
    try:
        database.run("GET", "ballast:1")
    except Exception as error:
        return "loading" in str(error).lower()
    return False


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.socket) as proxy:
        yield proxy


def test_h33_who_waits_on_a_connection_that_is_dead_makes_a_new_one(
    proxy: FaultProxy, start_cluster: Starter, namespace: str
) -> None:
    """The connections of a client, a scheduler and a worker fall silent without being closed: each notices, connects
    anew and goes on; a wait with a time-out returns on time."""
    start_cluster(redis=proxy.address, workers=1, schedulers=1)
    with Client(proxy.address, namespace=namespace) as client:
        assert client.submit(abs, -1).result(timeout=30) == 1
        proxy.held = True  # new connections too, so that nobody is back before the time-out
        proxy.go_silent()
        futures = [client.submit(abs, -number) for number in range(20)]
        with pytest.raises(TimeoutError):
            futures[0].result(timeout=0.2)
        proxy.held = False
        assert client.gather(futures, timeout=120) == list(range(20))
