"""Schedulers without state: any number, killed, frozen or late, and nothing is lost or done twice."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

from gristmill import Client, Future, LocalCluster
from gristmill.protocol.keys import GROUP_SCHEDULERS
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def starts(log: Path) -> Counter[str]:
    """How often each line was noted."""
    return Counter(tasks.started_lines(log))


def wait_for_more(futures: list[Future], more: int, description: str) -> None:
    """Wait until so many more are done, or all."""

    def done() -> int:
        return sum(future.done() for future in futures)

    enough = min(done() + more, len(futures))
    wait_until(lambda: done() >= enough, description)


def test_replicas_share_the_work(start_cluster: Starter, database: Database) -> None:
    cluster = start_cluster(schedulers=3)
    with Client(cluster) as client:
        for _ in range(10):
            client.map(abs, range(300))

        def applied_by() -> dict[str, int]:
            return {
                replica: sum(json.loads(database.hash(cluster.keys.scheduler(replica)).get("requests", "{}")).values())
                for replica in database.zset(cluster.keys.schedulers())
            }

        wait_until(lambda: len(applied_by()) == 3 and min(applied_by().values()) > 0, "each replica applied something")


def test_a_frozen_replica_is_replaced_and_does_nothing_twice_when_it_comes_back(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster(schedulers=3, worker_options=LONG_LEASE)
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start, str(log), str(number)) for number in range(1000)]
        for _ in range(5):
            for scheduler in cluster.schedulers[:2]:
                scheduler.send_signal(signal.SIGSTOP)
            wait_for_more(futures, 20, "tasks end while two of three replicas are frozen")
            for scheduler in cluster.schedulers[:2]:
                scheduler.send_signal(signal.SIGCONT)
        client.gather(futures, timeout=60)

    assert starts(log) == Counter(str(number) for number in range(1000))


def test_with_all_replicas_killed_work_goes_on_when_another_starts(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(schedulers=2, worker_options=LONG_LEASE)
    log, gate = tmp_path / "log", tmp_path / "gate"
    with Client(cluster) as client:
        running = client.submit(tasks.wait_first_time_only, str(log), str(gate))
        wait_until(lambda: starts(log).total() == 1, "the task has started")
        source = client.submit(abs, -1)
        dependent = client.submit(tasks.add, source, 1)
        for scheduler in cluster.schedulers:
            scheduler.kill()
            scheduler.wait()
        late = [client.submit(abs, -number) for number in range(300)]
        gate.touch()
        cluster.add_scheduler()

        assert running.result(timeout=60) > 0
        assert dependent.result(timeout=60) == 2
        assert client.gather(late, timeout=60) == list(range(300))
    assert starts(log).total() == 1


def test_a_client_waits_for_the_first_scheduler(start_cluster: Starter) -> None:
    cluster = start_cluster(schedulers=1)
    cluster.schedulers[0].kill()
    cluster.schedulers[0].wait()
    wait_until(lambda: cluster.schedulers[0].poll() is not None, "no scheduler runs")
    cluster.replace(cluster.schedulers[0])

    with Client(cluster, connect_timeout=60) as client:
        assert client.submit(abs, -1).result(timeout=60) == 1


def test_a_scheduler_that_is_asked_to_stop_leaves_nothing_of_itself(start_cluster: Starter, database: Database) -> None:
    cluster = start_cluster(schedulers=2)
    leaving = cluster.schedulers[0]
    leaving.terminate()

    assert leaving.wait(timeout=60) == 0
    assert not [replica for replica in database.zset(cluster.keys.schedulers()) if f"|{leaving.pid}|" in replica]
    consumers = [
        facts[1].decode() for facts in database.run("XINFO", "CONSUMERS", cluster.keys.submit(), GROUP_SCHEDULERS)
    ]
    assert not [consumer for consumer in consumers if f"|{leaving.pid}|" in consumer]


def test_scripts_that_vanish_under_load_are_loaded_again(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster(worker_options=LONG_LEASE)
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures: list[Future] = []
        for first in range(0, 2000, 400):
            futures += [client.submit(tasks.note_start, str(log), str(first + number)) for number in range(400)]
            database.run("SCRIPT", "FLUSH")
            wait_for_more(futures, 1, "tasks end although the scripts vanish")
        while not all(future.done() for future in futures):
            database.run("SCRIPT", "FLUSH")
            wait_for_more(futures, 1, "tasks end although the scripts vanish")
    assert starts(log) == Counter(str(number) for number in range(2000))


def test_rubbish_in_every_request_stream_stops_nobody(start_cluster: Starter, database: Database) -> None:
    cluster = start_cluster()
    streams = [getattr(cluster.keys, name)() for name in ("submit", "results", "cancels", "heartbeats", "continued")]
    with Client(cluster) as client:
        for stream in streams:
            for kind, body in (("tasks", b"{"), ("nonsense", b"{}"), (b"\xff\x00", b"\xff"), ("outcomes", b"[]")):
                database.run("XADD", stream, "*", kind, body)
            database.run("XADD", stream, "*", "tasks", b"{}", "more", "fields")

        assert client.map(abs, range(100)) == list(range(100))
        wait_until(
            lambda: all(database.length(stream) == 0 for stream in streams[:3]), "what nobody understands is taken off"
        )
        # From the other two streams it may be taken later; beats go on coming there.
        wait_until(lambda: database.length(cluster.keys.quarantine()) >= 5 * 4, "it is all in the quarantine")
    assert all(scheduler.poll() is None for scheduler in cluster.schedulers)


def test_a_key_of_the_wrong_type_that_one_duty_reads_holds_up_no_request(
    start_cluster: Starter, database: Database
) -> None:
    cluster = start_cluster(schedulers=1)
    cluster.schedulers[0].kill()
    cluster.schedulers[0].wait()
    database.run("SET", cluster.keys.delayed(), "not a sorted set")
    cluster.replace(cluster.schedulers[0])
    with Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=60) == 1
        database.run("DEL", cluster.keys.delayed())


def test_a_request_of_a_newer_version_waits_without_keeping_anybody_busy(
    start_cluster: Starter, database: Database
) -> None:
    cluster = start_cluster(schedulers=1)
    newer = database.run("XADD", cluster.keys.submit(), "*", "tasks", b'{"version":99,"client":"a"}')
    with Client(cluster) as client:
        assert client.map(abs, range(100)) == list(range(100))
        process = psutil.Process(cluster.schedulers[0].pid)
        began, before = time.monotonic(), process.cpu_times()
        for _ in range(20):
            client.submit(tasks.sleep_long, 0.05).result(timeout=60)
        elapsed, after = time.monotonic() - began, process.cpu_times()

        wait_until(
            lambda: [entry.id for entry in database.stream(cluster.keys.submit())] == [newer.decode()],
            "only the newer request waits",
        )
        # A busy loop takes all the time that there is.
        assert (after.user + after.system) - (before.user + before.system) < max(0.7, 0.4 * elapsed)
    database.run("XACK", cluster.keys.submit(), GROUP_SCHEDULERS, newer)
    database.run("XDEL", cluster.keys.submit(), newer)


def test_an_entry_that_was_deleted_by_hand_troubles_nobody(start_cluster: Starter, database: Database) -> None:
    cluster = start_cluster(schedulers=1)
    stream = cluster.keys.submit()
    cluster.schedulers[0].send_signal(signal.SIGSTOP)
    deleted = database.run("XADD", stream, "*", "tasks", b"{}")
    database.run("XREADGROUP", "GROUP", GROUP_SCHEDULERS, "nobody", "STREAMS", stream, ">")
    database.run("XDEL", stream, deleted)
    cluster.schedulers[0].send_signal(signal.SIGCONT)

    with Client(cluster) as client:
        assert client.map(abs, range(50)) == list(range(50))
    wait_until(
        lambda: not database.pending(stream, GROUP_SCHEDULERS), "what was deleted is pending for nobody any more"
    )


def test_under_even_load_capabilities_do_not_count(start_cluster: Starter, database: Database) -> None:
    cluster = start_cluster(schedulers=1, workers=1, scheduler_options={"allocation": "even_load"})
    facts = cluster.keys.namespace_facts()
    wait_until(lambda: database.hash(facts).get("allocation") == "even_load", "the policy is known to all schedulers")
    with Client(cluster) as client:
        assert client.options(capabilities=["gpu"]).submit(abs, -1).result(timeout=60) == 1


def test_what_a_newer_release_has_written_is_left_to_newer_schedulers(
    start_cluster: Starter, database: Database
) -> None:
    cluster = start_cluster(workers=1, schedulers=1)
    facts = cluster.keys.namespace_facts()
    name = f" name=gristmill-scheduler-{cluster.schedulers[0].pid} "

    def connections() -> list[str]:
        return [line.split()[0] for line in database.run("CLIENT", "LIST").decode().splitlines() if name in line]

    with Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=60) == 1
        before = connections()
        assert before
        database.run("HSET", facts, "version", 99)
        # Then it ends its connection, and looks again on others.
        wait_until(lambda: connections() != before, "the scheduler has looked at the version")

        def stands_still() -> bool:
            swept = database.hash(cluster.keys.clock())["swept"]
            time.sleep(2)  # four sweeps
            return database.hash(cluster.keys.clock())["swept"] == swept

        wait_until(stands_still, "the scheduler does nothing")
        future = client.submit(abs, -2)
        client.flush()
        assert stands_still()
        assert database.length(cluster.keys.submit()) > 0
        assert database.hash(facts)["version"] == "99"
        database.run("HSET", facts, "version", 1)

        assert future.result(timeout=60) == 2
