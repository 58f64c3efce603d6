"""H24, H27, H28, H30, H31, H34 to H41: a Redis that is full, shared, limited, guarded, or meddled with."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gristmill import Client, ConnectionLostError, Future, GristmillError, LocalCluster, QueueFullError, TaskLostError
from gristmill.doctor import examine
from gristmill.errors import AddressError
from gristmill.protocol.keys import GROUP_PROCESSORS, GROUP_SCHEDULERS, REQUEST_STREAMS
from gristmill.scheduler import leases
from gristmill.scheduler.controller import Replica
from gristmill.settings import SchedulerSettings
from gristmill.snapshot import Snapshot
from gristmill.store.connection import Connection
from gristmill.transitions import Scripts
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.server import RedisServer, free_port
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


@pytest.fixture
def own_database(own_server: RedisServer) -> Iterator[Database]:
    database = Database(own_server.address)
    yield database
    database.close()


def memory(database: Database) -> int:
    return int(dict(line.split(":", 1) for line in database.info("memory"))["used_memory"])


def submit_until_refused(client: Client, most: int) -> tuple[list[Future], str]:
    """The futures of what `submit` accepted, and what it said when it did not."""
    accepted: list[Future] = []
    for number in range(most):
        try:
            accepted.append(client.submit(tasks.echo, b"x" * 2000 + str(number).encode()))
        except QueueFullError as error:
            return accepted, str(error)
    return accepted, ""


def until_refused(client: Client) -> tuple[list[Future], str]:
    """The same, however long the client takes to learn that the intake is closed."""
    accepted: list[Future] = []

    def refused() -> str:
        more, words = submit_until_refused(client, 200)
        accepted.extend(more)
        return words

    words = wait_until(refused, "new tasks are refused")
    return accepted, words


def test_h24_a_full_redis_refuses_new_tasks_and_loses_none_of_the_others(
    own_server: RedisServer, own_database: Database, start_cluster: Starter
) -> None:
    """Clients submit until they are refused while workers finish tasks: the refusal says that memory is short, and
    every accepted task ends, at the latest when there is room again."""
    cluster = start_cluster(redis=own_server.address, worker_options=LONG_LEASE)
    with Client(cluster) as client:
        taken = [client.submit(tasks.sleep_long, 0.01) for _ in range(100)]
        client.flush(timeout=30)
        # From here on the schedulers may close the intake before they apply anything.
        wait_until(lambda: own_database.length(cluster.keys.submit()) == 0, "all of them are taken")
        own_database.run("CONFIG", "SET", "maxmemory", memory(own_database) + 1_000_000)
        accepted, words = until_refused(client)
        assert "maxmemory" in words
        own_database.run("CONFIG", "SET", "maxmemory", 0)

        outcomes = [future.exception(timeout=60) for future in accepted]
        assert {type(outcome) for outcome in outcomes} <= {type(None), QueueFullError}
        assert client.gather(taken, timeout=60) == [0.01] * 100
        wait_until(lambda: len(submit_until_refused(client, 1)[0]) == 1, "new tasks are taken", timeout=30)


def test_h27_after_the_work_nothing_is_left_in_redis(start_cluster: Starter, database: Database) -> None:
    """Four thousand tasks later every stream of requests and tasks is empty, the keys are those of before, and the
    memory is that of the history, which is bounded."""
    cluster = start_cluster(worker_options=LONG_LEASE)
    prefix = cluster.keys.prefix
    known = (cluster.keys.events(), cluster.keys.counts())
    with Client(cluster) as client:
        client.map(abs, range(100))
    wait_until(lambda: not database.zset(cluster.keys.clients()), "the client is gone")
    before, used = set(database.keys(prefix)), memory(database) - history(database, known)
    with Client(cluster) as client:
        client.gather([client.submit(tasks.echo, b"x" * (number % 3000)) for number in range(4000)], timeout=60)

    def left() -> set[str]:
        return {key for key in database.keys(prefix) if database.lifetime_ms(key) < 0} - before

    def requests() -> int:
        return sum(database.length(getattr(cluster.keys, name)()) for name in REQUEST_STREAMS if name != "heartbeats")

    def held() -> int:
        return sum(database.length(cluster.keys.worker_tasks(one)) for one in database.zset(cluster.keys.workers()))

    wait_until(lambda: not left(), f"nothing is left of {left()}", timeout=30)
    # A worker may still answer for a task that was to be moved and had ended.
    wait_until(lambda: requests() == 0, "no request is left")
    wait_until(lambda: held() == 0, "no worker has a task")
    # Redis frees large things behind our backs.
    wait_until(lambda: memory(database) - history(database, known) < used + 2_000_000, "the memory is free")


def history(database: Database, known: tuple[str, ...]) -> int:
    return sum(int(database.run("MEMORY", "USAGE", key, "SAMPLES", 0) or 0) for key in known)


def test_h28_a_limit_refuses_what_is_too_much_and_drops_nothing_that_was_taken(
    start_cluster: Starter, database: Database
) -> None:
    """Beyond the configured number of waiting tasks `submit` raises; what it took before runs."""
    cluster = start_cluster(workers=0, schedulers=1, scheduler_options={"max_tasks_waiting": 100})
    with Client(cluster) as client:
        futures = [client.submit(abs, -number) for number in range(100)]  # with fewer of them there the intake is open
        client.flush(timeout=30)
        wait_until(lambda: database.string(cluster.keys.intake()) not in (None, "open"), "the intake is closed")
        surplus, words = until_refused(client)
        assert "max_tasks_waiting" in words
        cluster.add_worker()
        assert client.gather(futures, timeout=60) == list(range(100))
        assert {type(one.exception(timeout=30)) for one in surplus} <= {type(None), QueueFullError}


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_h28_a_task_whose_entry_was_deleted_by_hand_runs_from_its_record(
    start_cluster: Starter, database: Database, tmp_path: Path, read: bool
) -> None:
    """The stream entry of an assigned task is deleted behind everybody's back: the task still comes to its end."""
    cluster = start_cluster(workers=1, worker_options={**LONG_LEASE, "queue_size": 10})
    with Client(cluster) as client:
        gate = tmp_path / "gate"
        blocker = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "a task executes", timeout=30)
        future = blocker if read else client.submit(abs, -1)
        client.flush(timeout=30)
        record = cluster.keys.task(future.task_id)
        wait_until(lambda: database.hash(record).get("state") == "running", "it is assigned", timeout=30)
        _, entry, worker = database.hash(record)["assignment"].split(" ", 2)
        assert database.run("XDEL", cluster.keys.worker_tasks(worker), entry) == 1
        gate.touch()

        assert future.result(timeout=60) is not None
        assert client.submit(abs, -2).result(timeout=30) == 2


def refusal(client: Client) -> str:
    """What `flush` says when its time is over.

    The client may have been refused for long: the next try, which hears the reason, may come after two seconds, and
    later on a machine that stalls.
    """
    with pytest.raises(TimeoutError) as caught:
        client.flush(timeout=8)
    return str(caught.value)


def test_h30_a_redis_that_refuses_writes_is_named_and_afterwards_all_goes_on(
    own_server: RedisServer, own_database: Database, start_cluster: Starter, tmp_path: Path
) -> None:
    """Too few replicas, then no permission: `flush` says within its time-out that Redis refuses writes and why, the
    doctor is not content, what runs goes on, and nothing is lost."""
    cluster = start_cluster(redis=own_server.address)
    gate = tmp_path / "gate"
    with Client(cluster) as client:
        running = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "a task executes", timeout=30)
        own_database.run("CONFIG", "SET", "min-replicas-to-write", "1")
        futures = [client.submit(abs, -number) for number in range(50)]
        wait_until(lambda: "NOREPLICAS" in refusal(client), "the reason is told")
        gate.touch()
        findings = examine(own_server.address, cluster.namespace)
        assert [one.text for one in findings if one.level == "FAIL" and "NOREPLICAS" in one.text]
        own_database.run("CONFIG", "SET", "min-replicas-to-write", "0")
        assert client.gather(futures, timeout=60) == list(range(50))
        assert running.result(timeout=60) > 0

        own_database.run("ACL", "SETUSER", "default", "-xadd", "-evalsha")
        futures = [client.submit(abs, -number) for number in range(50)]
        wait_until(lambda: "NOPERM" in refusal(client), "the reason is told")
        own_database.run("ACL", "SETUSER", "default", "+@all")
        assert client.gather(futures, timeout=60) == list(range(50))
    assert all(program.poll() is None for program in cluster.processes)


def test_h31_who_may_throw_tasks_away_is_named_and_lost_records_hang_nobody(
    own_server: RedisServer,
    own_database: Database,
    start_cluster: Starter,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """An eviction policy is told to people; the records of a queued and a running task are deleted: their futures
    resolve, with a value of another run or as lost, and nobody else is disturbed."""
    own_database.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    cluster = start_cluster(redis=own_server.address, workers=1)
    with Snapshot(own_server.address, cluster.namespace, reply_timeout=60) as snapshot:
        assert "eviction-policy" in [alert.code for alert in snapshot.alerts()]
    said: list[str] = []

    def warned() -> bool:
        said.append(capfd.readouterr().err)
        return "maxmemory-policy" in "".join(said)

    wait_until(warned, "the scheduler says so")
    gate = tmp_path / "gate"
    with Client(cluster) as client:
        running = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "a task executes", timeout=30)
        queued = client.options(capabilities=[]).submit(abs, -1)
        client.flush(timeout=30)
        records = [cluster.keys.task(future.task_id) for future in (running, queued)]
        wait_until(lambda: all(map(own_database.exists, records)), "both are there")
        assert own_database.run("DEL", *records) == 2
        gate.touch()
        for future in (running, queued):
            assert type(future.exception(timeout=60)) in (type(None), TaskLostError)
        assert client.map(abs, range(-20, 0), timeout=30) == list(range(20, 0, -1))


FLOOD = """
import sys
from gristmill import Client

client = Client(sys.argv[1], namespace=sys.argv[2], connect_timeout=60)
waiting = client.options(capabilities=["nowhere"])
for command in sys.stdin:
    if command == "submit\\n":
        futures = [waiting.submit(abs, -1) for _ in range(10_000)]
        client.flush(timeout=60)
    else:
        assert client.cancel(futures, timeout=60) == 10_000
    print(command, end="", flush=True)
client.disconnect()
"""


def test_h34_a_client_that_cancels_everything_does_not_hold_up_another(
    start_cluster: Starter, database: Database
) -> None:
    """Ten thousand waiting tasks are cancelled in slices, between which another client's tasks run; a foreign script
    that blocks Redis for longer than it likes ends nobody."""
    cluster = start_cluster(workers=1)
    counts = cluster.keys.counts()
    command = [sys.executable, "-c", FLOOD, cluster.address, cluster.namespace]
    with (
        Client(cluster) as other,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as flood,
        ThreadPoolExecutor(1) as reading,
    ):
        assert flood.stdin is not None
        assert flood.stdout is not None
        mine = [other.submit(time.sleep, 0.005) for _ in range(50)]
        wait_until(mine[5].done, "the other client's tasks run")
        floods = 0
        between: list[str] = []
        while not between:  # the machine may give the processor nothing for as long as one flood of cancels takes
            floods += 1
            assert floods <= 10, "the other client's tasks went on between the slices"
            before = {entry for entry, _ in database.stream(cluster.keys.events())}
            for said in ("submit\n", "cancel\n"):
                flood.stdin.write(said)
                heard = reading.submit(flood.stdout.readline)
                while not heard.done():  # there is always something of it to do, however long the cancels take
                    mine.append(other.submit(time.sleep, 0.005))
                    mine[-50].result(timeout=60)
                assert heard.result() == said
            events = database.stream(cluster.keys.events())
            happened = [fields["changes"] for entry, fields in events if entry not in before]
            cancels = [at for at, changes in enumerate(happened) if '"canceled"' in changes]
            between = [changes for changes in happened[cancels[0] : cancels[-1]] if '"success"' in changes]
        flood.stdin.close()
        assert flood.wait(60) == 0
        other.gather(mine, timeout=60)
        assert int(database.hash(counts)["requests:cancel"]) >= 10_000 / 500

        database.run("CONFIG", "SET", "busy-reply-threshold", "50")
        try:
            database.run(
                "EVAL", "local t = redis.call('TIME') repeat local n = redis.call('TIME') "
                "until (n[1] - t[1]) + (n[2] - t[2]) / 1e6 > 2", 0,
            )  # fmt: skip
        finally:
            database.run("CONFIG", "SET", "busy-reply-threshold", "5000")
        assert other.map(abs, range(-20, 0), timeout=60) == list(range(20, 0, -1))
    assert all(program.poll() is None for program in cluster.processes)


def test_h35_what_waits_is_not_pending(start_cluster: Starter, database: Database) -> None:
    """Of a hundred tasks of some length only as many are delivered as there is room for; the others wait at the
    schedulers, where sweeping does not meet them."""
    cluster = start_cluster()
    with Client(cluster) as client:
        client.gather([client.submit(tasks.sleep_long, 0.05) for _ in range(10)], timeout=60)
        futures = [client.submit(tasks.sleep_long, 0.05) for _ in range(100)]
        client.flush(timeout=30)
        streams = [cluster.keys.worker_tasks(worker) for worker in database.zset(cluster.keys.workers())]
        read = []
        while not futures[60].done():
            delivered = sum(database.length(stream) for stream in streams)
            assert delivered <= 24
            if delivered > 8:
                read.append(sum(len(database.pending(stream, GROUP_PROCESSORS)) for stream in streams))
            time.sleep(0.05)
        # What has ended is still pending while no scheduler applies its outcome: at times that may be all of them.
        assert min(read, default=0) <= 8
        client.gather(futures, timeout=60)


def test_h36_schedulers_that_come_and_are_killed_leave_no_consumers(
    start_cluster: Starter, database: Database, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six schedulers are killed under load, each of a name of its own: no task is lost, and when they have been silent
    for long enough (a minute, here less) the duty leaves only the living as consumers."""
    cluster = start_cluster(schedulers=7)
    monkeypatch.setattr(leases, "CONSUMER_IDLE_MS", 1000)
    streams = [getattr(cluster.keys, name)() for name in REQUEST_STREAMS]
    with Client(cluster) as client:

        def several_have_read() -> bool:
            client.gather([client.submit(abs, -1) for _ in range(20)], timeout=60)
            return any(consumers(database, stream) > 1 for stream in streams)

        wait_until(several_have_read, "several schedulers have become consumers")
        futures = [client.submit(tasks.sleep_long, 0.01) for _ in range(300)]
        for program in list(cluster.schedulers[1:]):
            program.kill()
            program.wait()
            cluster.schedulers.remove(program)
        assert client.gather(futures, timeout=60) == [0.01] * 300

        settings = SchedulerSettings(redis=server.address, namespace=cluster.namespace)
        with contextlib.closing(Connection(server.address)) as connection:
            connection.connect()
            scripts = Scripts(cluster.keys)
            scripts.load(connection)
            replica = Replica("test", settings, cluster.keys, scripts, connection)

            def only_the_living() -> bool:
                leases.remove_dead_consumers(replica)
                return all(consumers(database, stream) <= 1 for stream in streams)

            wait_until(only_the_living, "only the living are consumers", timeout=30)
        assert client.submit(abs, -1).result(timeout=30) == 1


def consumers(database: Database, stream: str) -> int:
    if GROUP_SCHEDULERS not in database.groups(stream):
        return 0
    return len(database.run("XINFO", "CONSUMERS", stream, GROUP_SCHEDULERS))


def test_h37_a_node_of_a_redis_cluster_is_refused_in_one_sentence() -> None:
    """Cluster mode is not supported, and whoever is given a node of one says so at once."""
    node = RedisServer(port=free_port())
    node.start("--cluster-enabled", "yes")
    try:
        with pytest.raises(AddressError, match="cluster") as caught:
            Client(node.address, connect_timeout=30)
        assert "\n" not in str(caught.value)
        with pytest.raises(GristmillError, match="cluster"):
            LocalCluster(redis=node.address, workers=1)
    finally:
        node.discard()


def test_h38_connections_are_few_and_too_low_a_limit_is_waited_out(
    own_server: RedisServer, own_database: Database, start_cluster: Starter
) -> None:
    """The number of connections does not depend on the number of futures; with a limit below the need a newcomer is
    told so, those who lost theirs wait, and all recover when it is raised."""
    cluster = start_cluster(redis=own_server.address, workers=1, worker_options={"concurrency": 4})
    with Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=30) == 1
        # A third is one that looks for a moment why a task takes so long.
        wait_until(lambda: sum(client.client_id in name for name in names(own_database)) == 2, "the client has two")
        before = names(own_database)
        futures = [client.submit(abs, -1) for _ in range(5000)]
        client.gather(futures, timeout=60)
        assert len(names(own_database)) <= len(before) + 1

        own_database.run("CONFIG", "SET", "maxclients", len(before) - 2)
        # What Redis says is lost when it closes the connection while the client still writes.
        with pytest.raises(ConnectionLostError, match=r"max number of clients|Broken pipe|reset by peer"):
            Client(cluster, connect_timeout=1)
        own_database.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        future = client.submit(abs, -2)
        time.sleep(1)  # they try, and some are refused
        own_database.run("CONFIG", "SET", "maxclients", 10_000)
        assert future.result(timeout=60) == 2
        assert client.map(abs, range(-20, 0), timeout=60) == list(range(20, 0, -1))
    assert all(program.poll() is None for program in cluster.processes)


def names(database: Database) -> list[str]:
    """The connections of the product, by their names."""
    lines = database.run("CLIENT", "LIST").decode().splitlines()
    found = (dict(word.partition("=")[::2] for word in line.split()).get("name", "") for line in lines)
    return [name for name in found if name.startswith("gristmill")]


def test_h39_two_namespaces_share_nothing(start_cluster: Starter, server: RedisServer, database: Database) -> None:
    """Two installations in one Redis: each task runs on a worker of its own namespace, and every key is of one."""
    first = start_cluster(namespace="first", workers=1, schedulers=1)
    second = start_cluster(namespace="second", workers=1, schedulers=1)
    with Client(first) as one, Client(second) as other:
        mine = [one.submit(tasks.parent_pid) for _ in range(100)]
        theirs = [other.submit(tasks.parent_pid) for _ in range(100)]
        assert set(one.gather(mine, timeout=30)) == {first.workers[0].pid}
        assert set(other.gather(theirs, timeout=30)) == {second.workers[0].pid}
        assert {key[: key.index("}")] for key in database.keys("")} == {"gm:{first", "gm:{second"}


def test_h41_an_address_that_asks_for_text_changes_nothing(start_cluster: Starter, server: RedisServer) -> None:
    """With decode_responses in the address all 256 bytes come back as they are."""
    cluster = start_cluster(workers=1, schedulers=1)
    with Client(f"{server.address}?decode_responses=true", namespace=cluster.namespace) as client:
        assert client.submit(tasks.echo, bytes(range(256))).result(timeout=30) == bytes(range(256))
