"""H18 to H20: schedulers that are killed, odd messages, and a worker that comes back as itself."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gristmill import Client, LocalCluster
from gristmill.protocol.kinds import VERSION
from gristmill.snapshot import Snapshot
from support import tasks
from support.database import Database
from support.programs import Programs
from support.waiting import wait_until

if TYPE_CHECKING:
    import pytest

Starter = Callable[..., LocalCluster]

PATIENT = {"worker_lease_seconds": 30.0}
"""For tests that count executions: no worker of theirs dies, and none is to be taken for dead on a slow machine."""


def test_h18_with_all_schedulers_killed_nothing_is_lost_or_done_twice(start_cluster: Starter, tmp_path: Path) -> None:
    """Single tasks, a map and a graph are under way when both schedulers are killed; a while later one comes: all
    results arrive, what ran was not disturbed, and no call had to be repeated."""
    cluster = start_cluster(workers=3, worker_options=PATIENT)
    log, gate = tmp_path / "log", tmp_path / "gate"
    with Client(cluster) as client:
        held = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "a task executes", timeout=30)
        single = [client.submit(tasks.note_start_and_work, str(log), f"s{at}", 0.01) for at in range(200)]
        chain = [client.submit(tasks.echo, 1)]
        for _ in range(20):
            chain.append(client.submit(tasks.add, chain[-1], 1))
        wait_until(lambda: single[20].done(), "some are done", timeout=30)
        for program in cluster.schedulers:
            program.kill()
            program.wait()
        cluster.schedulers.clear()
        single += [client.submit(tasks.note_start_and_work, str(log), f"s{at}", 0.01) for at in range(200, 250)]
        gate.touch()
        cluster.add_scheduler()

        assert client.gather(single, timeout=60) == [f"s{at}" for at in range(250)]
        assert chain[-1].result(timeout=60) == 21
        assert held.result(timeout=60) == int((tmp_path / "started").read_text())
    assert Counter(tasks.started_lines(log)) == Counter(f"s{at}" for at in range(250))


TROUBLE = """
import os, sys, time
from gristmill import Client

# An interrupt in the middle of a write leaves no time for a goodbye: then the lease has to end.
client = Client(sys.argv[1], namespace=sys.argv[2], connect_timeout=60, lease_seconds=20)
print(client.client_id, flush=True)
done = [client.submit(abs, -number) for number in range(20)]
client.gather(done)
print(done[0].task_id, done[0].worker, flush=True)
while True:
    client.cancel(done)
    waiting = [client.submit(time.sleep, 0.01) for number in range(20)]
    client.cancel(waiting)
    client.cancel(waiting)
"""


def test_h19_odd_messages_stop_nobody(
    start_cluster: Starter, database: Database, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A second client cancels finished, unknown and cancelled tasks in a loop, outcomes are said twice, and it is
    interrupted at random moments: the first client's work is not disturbed, and nobody logs an error of its own."""
    cluster = start_cluster(worker_options=PATIENT)
    chance = random.Random(19)
    log = tmp_path / "log"
    with Client(cluster) as client:
        futures = [client.submit(tasks.note_start_and_work, str(log), str(at), 0.01) for at in range(400)]
        for _ in range(2):
            trouble = subprocess.Popen(
                [sys.executable, "-c", TROUBLE, cluster.address, cluster.namespace],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            assert trouble.stdout is not None
            identity, (task, worker) = trouble.stdout.readline().strip(), trouble.stdout.readline().split()
            unknown = {"version": VERSION, "tasks": [f"{identity}.9999999", "nobody.0000001"], "client": identity}
            again = {"version": VERSION, "worker": worker, "outcomes": [[task, 1, "success", "gASVAg", 1, 1, 1, None]]}
            for _ in range(20):
                database.run("XADD", cluster.keys.cancels(), "*", "cancel", json.dumps({**unknown, "after": 0}))
                database.run("XADD", cluster.keys.results(), "*", "outcomes", json.dumps(again))
            at = chance.randint(50, 150)
            wait_until(futures[at].done, "work goes on", timeout=60)
            for _ in range(6):  # one that comes while Python frees something is printed and forgotten
                trouble.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    trouble.wait(timeout=20)
                    break
            assert trouble.poll() is not None, "it ends"
            trouble.stdout.close()
        assert client.gather(futures, timeout=60) == [str(number) for number in range(400)]
        assert all(program.poll() is None for program in cluster.processes)
    assert Counter(tasks.started_lines(log)) == Counter(map(str, range(400)))
    wait_until(lambda: not database.keys(cluster.keys.task("")), "nothing of either client is left")
    assert "Traceback" not in capfd.readouterr().err


def test_h20_a_worker_that_comes_back_with_its_name_host_and_pid_is_another_one(
    programs: Programs, snapshot: Snapshot, tmp_path: Path
) -> None:
    """A worker is killed while it executes and started again at once as a container would be: with the same name, host
    and, where the system lets us choose it, pid. The task of the first is recovered, and two workers are shown."""
    programs.scheduler()
    if os.geteuid() == 0 and shutil.which("unshare"):
        programs.prefix = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
        if subprocess.run([*programs.prefix, "true"], check=False, capture_output=True).returncode:
            programs.prefix = ()
    log = tmp_path / "log"
    first = programs.worker("--name", "same", "--worker-lease-seconds", "6")
    with programs.client() as client:
        future = client.submit(tasks.wait_first_time_only, str(log), str(tmp_path / "never"))
        wait_until(Path(f"{log}.started").exists, "the task executes", timeout=60)
        (before,) = snapshot.workers().rows
        first.kill()
        second = programs.worker("--name", "same", "--worker-lease-seconds", "30")
        assert future.result(timeout=60) > 0
        assert future.profiling_info().attempt == 2
        found = snapshot.workers(also=[before.worker])
        assert [(row.name, row.host) for row in (*found.rows, *found.gone)] == [("same", before.host)] * 2
        assert [row.worker for row in found.gone] == [before.worker]
        if programs.prefix:
            assert found.rows[0].pid == before.pid
        second.kill()  # what stands before the command passes no other signal on
    assert len(tasks.started_lines(log)) == 2
