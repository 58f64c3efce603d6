"""H07 to H11: work that others do twice."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

from gristmill import Client, LocalCluster
from gristmill.snapshot import Snapshot
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.proxy import PASS, Command, Fault, FaultProxy, Verdict
from support.server import RedisServer
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def test_h07_h52_a_task_that_runs_longer_than_all_time_outs_and_holds_the_interpreter_runs_once(
    start_cluster: Starter, snapshot: Snapshot, tmp_path: Path
) -> None:
    """Three schedulers, three workers, a lease of ten seconds, tasks that hold the interpreter lock for longer: each
    starts once, no worker is ever shown as gone, and cancel and status work meanwhile."""

    def hold_the_interpreter(log: str, name: str, gate: str) -> str:
        import os
        import re
        import time

        from support import tasks

        tasks.note_start(log, name)
        give_up = time.monotonic() + tasks.GIVE_UP_SECONDS
        while not os.path.exists(gate) and time.monotonic() < give_up:
            re.match(r"(a+)+$", "a" * 21 + "b")  # in C, without letting go of the lock
        return name

    cluster = start_cluster(workers=3, schedulers=3, worker_options={"worker_lease_seconds": 10.0})
    before = {row.worker for row in snapshot.workers().rows}
    assert len(before) == 3
    log, gate = tmp_path / "log", tmp_path / "gate"
    with Client(cluster) as client:
        futures = [client.submit(hold_the_interpreter, str(log), str(number), str(gate)) for number in range(3)]
        wait_until(lambda: len(tasks.started_lines(log)) == 3, "all three execute", timeout=30)
        waiting = client.submit(abs, -1)
        begun = snapshot.overview().now
        while snapshot.overview().now < begun + 14_000:  # more than a lease, by the clock of Redis
            assert {row.worker for row in snapshot.workers().rows} == before
            assert snapshot.task(futures[0].task_id).state == "running"
            time.sleep(0.1)
        assert waiting.cancel(timeout=30)
        gate.touch()
        assert client.gather(futures, timeout=60) == ["0", "1", "2"]
    assert sorted(tasks.started_lines(log)) == ["0", "1", "2"]


def test_h08_a_write_that_the_client_library_repeats_counts_once(
    start_cluster: Starter, server: RedisServer, snapshot: Snapshot, namespace: str, tmp_path: Path
) -> None:
    """Replies to a client's writes are lost again and again: exactly as many tasks exist as were submitted, each ran
    once, and the totals agree."""
    start_cluster(worker_options=LONG_LEASE)
    log = tmp_path / "log"
    seen, lost = Counter[bytes](), Counter[bytes]()

    def judge(command: Command) -> Verdict:
        if command.name in (b"XADD", b"SET"):
            seen[command.name] += 1
            if seen[command.name] % 2 and lost[command.name] < 4:  # there are ten batches at least
                lost[command.name] += 1
                return Verdict(Fault.LOSE_REPLY)
        return PASS

    with FaultProxy(server.socket) as proxy, Client(proxy.address, namespace=namespace) as client:
        proxy.on_command = judge
        futures = []
        for number in range(500):
            futures.append(client.submit(tasks.note_start, str(log), str(number)))
            if number % 50 == 0:
                client.flush(timeout=60)
        assert client.gather(futures, timeout=60) == [str(number) for number in range(500)]
        assert lost == {b"XADD": 4, b"SET": lost[b"SET"]}
        assert Counter(tasks.started_lines(log)) == Counter(map(str, range(500)))
        assert snapshot.counts().states["success"] == 500


def test_h09_schedulers_that_freeze_and_come_back_make_nothing_start_twice(
    start_cluster: Starter, tmp_path: Path
) -> None:
    """Five schedulers, any of which freezes for longer than its requests are left to it: every task starts once."""
    cluster = start_cluster(schedulers=5, worker_options=LONG_LEASE)
    log = tmp_path / "log"
    chance = random.Random(9)
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start, str(log), str(number)) for number in range(2000)]
        for _ in range(4):
            frozen = chance.sample(cluster.schedulers, chance.randint(1, 4))
            for program in frozen:
                program.send_signal(signal.SIGSTOP)
            futures += [client.submit(tasks.note_start, str(log), str(len(futures) + at)) for at in range(100)]
            time.sleep(chance.uniform(0.1, 1.0))  # others take over after half a second
            for program in frozen:
                program.send_signal(signal.SIGCONT)

        assert client.gather(futures, timeout=120) == [str(number) for number in range(2400)]
    assert Counter(tasks.started_lines(log)) == Counter(map(str, range(2400)))


def test_h10_the_late_report_of_a_worker_that_was_only_asleep_changes_nothing(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    """A worker freezes until its task has started elsewhere, and reports its own result before that one finishes: the
    client sees the result of the second attempt, and the revived worker takes new work under a new id."""

    def wait_for_own_gate(log: str) -> int:
        from support import tasks

        tasks.note_start(log, "start")
        attempt = len(tasks.started_lines(log))
        tasks.wait_for_file(f"{log}.{attempt}", f"{log}.gate.{attempt}")
        return attempt

    def sleep_and_tell() -> int:
        import os
        import time

        time.sleep(0.05)
        return os.getppid()

    cluster = start_cluster(workers=1, worker_options={"worker_lease_seconds": 6.0})
    (frozen,) = cluster.workers
    log = tmp_path / "log"
    with Client(cluster) as client:
        future = client.submit(wait_for_own_gate, str(log))
        wait_until(Path(f"{log}.1").exists, "the first attempt executes", timeout=30)
        everything = [psutil.Process(frozen.pid), *psutil.Process(frozen.pid).children(recursive=True)]
        for process in everything:
            process.suspend()
        cluster.add_worker(**LONG_LEASE)  # only the lease of the other one may end
        wait_until(Path(f"{log}.2").exists, "the second attempt executes")
        before = set(database.zset(cluster.keys.workers()))
        Path(f"{log}.gate.1").touch()
        for process in everything:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        wait_until(
            lambda: set(database.zset(cluster.keys.workers())) - before, "the worker is back under a new id", timeout=30
        )
        assert not future.done()
        Path(f"{log}.gate.2").touch()

        assert future.result(timeout=30) == 2
        assert future.profiling_info().attempt == 2
        wait_until(lambda: len(set(client.starmap(sleep_and_tell, [()] * 10))) == 2, "both work", timeout=30)
    assert tasks.started_lines(log) == ["start", "start"]


def test_h11_equal_calls_are_separate_tasks(client: Client, tmp_path: Path) -> None:
    """Twenty equal calls are twenty runs, and two lambdas with equal arguments are two functions."""
    log = tmp_path / "log"
    futures = [client.submit(tasks.note_start, str(log), "x") for _ in range(20)]
    plus, minus = client.submit(lambda number: number + 1, 5), client.submit(lambda number: number - 1, 5)

    assert client.gather(futures, timeout=30) == ["x"] * 20
    assert len({future.task_id for future in futures}) == 20
    assert tasks.started_lines(log) == ["x"] * 20
    assert (plus.result(timeout=30), minus.result(timeout=30)) == (6, 4)
