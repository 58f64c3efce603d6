"""H01 to H06: tasks and results that others lose."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

from gristmill import Client, Future, LocalCluster
from gristmill.protocol.keys import GROUP_PROCESSORS, GROUP_SCHEDULERS
from gristmill.settings import WorkerSettings
from gristmill.snapshot import Snapshot
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.proxy import FaultProxy
from support.server import RedisServer
from support.temporary import alive
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]

KILLED = {"worker_lease_seconds": 6.0}
"""Of workers whose death is waited for: long enough that on a machine that stalls it does not end before they die."""


def test_h01_what_a_killed_scheduler_had_read_is_applied_by_its_replacement(
    start_cluster: Starter, database: Database
) -> None:
    """A scheduler is killed between reading requests and applying them: another, of another name, applies them all."""
    cluster = start_cluster(schedulers=1)
    (first,) = cluster.schedulers
    with Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=30) == 1
        futures: list[Future] = []

        def freeze_with_requests() -> bool:
            """Its read was waiting in Redis, which has answered it: the requests are delivered, to one who does not
            move. Had its read just ended, it goes on until the next one."""
            first.send_signal(signal.SIGSTOP)
            wait_until(lambda: psutil.Process(first.pid).status() == psutil.STATUS_STOPPED, "it has stopped")
            futures.extend(client.submit(abs, -number) for number in range(50))
            client.flush(timeout=60)
            if database.pending(cluster.keys.submit(), GROUP_SCHEDULERS):
                return True
            first.send_signal(signal.SIGCONT)
            return False

        wait_until(freeze_with_requests, "requests are pending")
        first.kill()
        first.wait()
        cluster.schedulers.remove(first)
        cluster.add_scheduler(name="replacement")

        assert client.gather(futures, timeout=60) == list(range(50)) * (len(futures) // 50)
        wait_until(lambda: not database.pending(cluster.keys.submit(), GROUP_SCHEDULERS), "nothing is pending")


def test_h01_what_a_killed_worker_had_read_runs_elsewhere(start_cluster: Starter, database: Database) -> None:
    """A worker is killed when its processor has read tasks and not started them: they run on the other one."""
    cluster = start_cluster(workers=1, worker_options=KILLED)
    (victim,) = cluster.workers
    with Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=30) == 1
        (processor,) = psutil.Process(victim.pid).children()
        (worker,) = database.zset(cluster.keys.workers())
        stream = cluster.keys.worker_tasks(worker)
        futures: list[Future] = []

        def freeze_with_tasks() -> bool:
            """Its read was waiting in Redis, which has answered it. Had that just ended, it goes on until the next."""
            processor.suspend()
            wait_until(lambda: processor.status() == psutil.STATUS_STOPPED, "it has stopped")
            begun = len(futures)
            futures.extend(client.submit(abs, -number) for number in range(50))
            wait_until(lambda: database.length(stream), "tasks have been assigned")
            if database.pending(stream, GROUP_PROCESSORS):
                return True
            processor.resume()
            client.gather(futures[begun:], timeout=60)
            return False

        wait_until(freeze_with_tasks, "tasks are pending")
        victim.kill()
        victim.wait()
        cluster.workers.remove(victim)
        cluster.add_worker(**LONG_LEASE)

        assert client.gather(futures, timeout=60) == list(range(50)) * (len(futures) // 50)
        wait_until(lambda: not database.exists(stream), "nothing of the killed worker's stream is left")


def test_h02_outcomes_that_come_while_the_client_is_disconnected_reach_it(
    start_cluster: Starter, server: RedisServer, database: Database, namespace: str, tmp_path: Path
) -> None:
    """The client's connections are cut, the tasks finish, the client comes back: every future resolves by itself."""
    cluster = start_cluster(worker_options=LONG_LEASE)
    gate = tmp_path / "gate"
    with (
        FaultProxy(server.socket) as proxy,
        Client(proxy.address, namespace=namespace) as client,
    ):
        futures = [client.submit(tasks.wait_for_file, str(tmp_path / f"{at}"), str(gate)) for at in range(4)]
        wait_until(lambda: sum((tmp_path / f"{at}").exists() for at in range(4)) == 2, "two tasks execute", timeout=30)
        proxy.held = True
        proxy.cut()
        gate.touch()
        wait_until(
            lambda: database.hash(cluster.keys.counts()).get("state:success") == "4", "all tasks have finished", 30
        )
        assert not any(future.done() for future in futures)
        proxy.held = False

        assert len(client.gather(futures, timeout=60)) == 4


def test_h03_a_result_that_could_not_be_written_is_written_when_redis_is_back(
    own_server: RedisServer, start_cluster: Starter, tmp_path: Path
) -> None:
    """The task ends while Redis is away: its value arrives afterwards, its body ran once, nothing was empty between."""
    cluster = start_cluster(redis=own_server.address, workers=1, worker_options=LONG_LEASE)
    log, gate = tmp_path / "log", tmp_path / "gate"
    seen: list[object] = []
    with Client(cluster) as client:
        future = client.submit(tasks.wait_and_mark_end, str(log), str(gate), str(tmp_path / "ended"))
        future.add_done_callback(lambda done: seen.append(done.result()))
        wait_until((tmp_path / "log.started").exists, "the task has started", timeout=30)
        own_server.kill()
        gate.touch()
        wait_until((tmp_path / "ended").exists, "the task has ended", timeout=30)
        assert not future.done()
        own_server.start()

        assert future.result(timeout=60) == "the value"
        wait_until(lambda: seen == ["the value"], "the callback has seen the value and nothing else")
    assert tasks.started_lines(log) == ["start"]


def test_h05_h16_the_tasks_of_a_killed_worker_run_elsewhere_and_nothing_of_it_is_left(
    start_cluster: Starter, snapshot: Snapshot, tmp_path: Path
) -> None:
    """A worker with four busy processors is killed: they end at once, and when its lease has ended their tasks run on
    the other worker, as long as they may take. People are shown the second attempt and why it was needed."""
    assert WorkerSettings().worker_lease_seconds == 15, "with default settings it takes no longer than this lease"
    cluster = start_cluster(workers=1, worker_options={**KILLED, "concurrency": 4})
    (victim,) = cluster.workers
    logs = [tmp_path / f"log-{number}" for number in range(4)]
    with Client(cluster) as client:
        futures = [client.submit(tasks.wait_first_time_only, str(log), str(tmp_path / "never")) for log in logs]
        wait_until(lambda: all(Path(f"{log}.started").exists() for log in logs), "all four execute", timeout=30)
        processors = psutil.Process(victim.pid).children(recursive=True)
        victim.kill()
        victim.wait()
        cluster.workers.remove(victim)
        wait_until(lambda: not any(one.is_running() and alive(one.pid) for one in processors), "none of them is left")
        cluster.add_worker(**LONG_LEASE)

        client.gather(futures, timeout=60)
        # More when one was given back before it started, because another took long.
        assert all(future.profiling_info().attempt >= 2 for future in futures)
        story = snapshot.task(futures[0].task_id).story
    assert [len(tasks.started_lines(log)) for log in logs] == [2] * 4
    assert Counter(change.state for change in story)["running"] >= 2
    assert any(f"|{victim.pid}|" in change.worker for change in story)
    lost = "its worker was lost or has left while executing it (1 so far)"
    assert [change.why for change in story].count(lost) == 1
