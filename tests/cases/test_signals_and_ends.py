"""H26, H69 to H72, H76, H77, H89: signals, and programs that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gristmill import Client, LocalCluster
from gristmill.snapshot import Snapshot
from support import tasks
from support.database import Database
from support.enclosure import enclosure
from support.programs import Programs
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]

PATIENT = 30.0
"""A lease for workers that do not die: none is to be taken for dead on a slow machine."""

INTERRUPTED = """
import os, random, signal, sys, threading, time
from gristmill import Client
from support import tasks

client = Client(sys.argv[1], namespace=sys.argv[2], connect_timeout=60)
chance = random.Random(26)
interrupts = 200
received = number = 0
kept = []

def interrupt():
    end = time.monotonic() + 90
    # Two that come at once count as one.
    while (received < interrupts or len(kept) <= 50) and time.monotonic() < end:
        time.sleep(chance.uniform(0.001, 0.006))
        os.kill(os.getpid(), signal.SIGINT)

def interrupt_later():
    begun.wait()
    interrupt()

begun = threading.Event()
thread = threading.Thread(target=interrupt_later)
thread.start()
while True:
    try:
        while thread.is_alive():
            begun.set()
            number += 1
            future = client.submit(tasks.echo, number)
            kept.append((number, future))
            value = future.result(timeout=60)
            assert value == number, (value, number)
        break
    except KeyboardInterrupt:
        received += 1
while True:
    try:
        thread.join()
        for expected, future in kept:
            value = future.result(timeout=60)
            assert value == expected, (value, expected)
        assert client.submit(tasks.echo, "last").result(timeout=60) == "last"
        client.disconnect()
        break
    except KeyboardInterrupt:
        received += 1
print(len(kept), received)
assert len(kept) > 50 and received >= interrupts
"""


def run(script: str, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    paths = {"PYTHONPATH": str(Path(tasks.__file__).parents[1])}
    return subprocess.run(
        command, env={**os.environ, **paths}, capture_output=True, text=True, timeout=timeout, check=False
    )


def test_h26_a_client_that_is_interrupted_at_any_moment_gets_its_own_answers(
    shared_cluster: LocalCluster, client: Client
) -> None:
    """Hundreds of interrupts in the middle of submit and result: every value belongs to the task it was asked of."""
    done = run(INTERRUPTED, shared_cluster.address, shared_cluster.namespace)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_h69_a_signal_to_the_whole_group_lets_the_task_finish(
    programs: Programs, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGTERM or Ctrl-C reaches the worker and, were they in its group, its tasks: what executes finishes, its result
    arrives, and the worker exits with 0."""
    gate = tmp_path / "gate"
    programs.scheduler()
    worker = programs.worker("--worker-lease-seconds", str(PATIENT))
    with programs.client() as client:
        future = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "the task has started", timeout=60)
        os.killpg(worker.pid, number)
        wait_until(lambda: "worker" in worker.log and not future.done(), "the worker waits for the task")
        with pytest.raises(TimeoutError):
            future.result(timeout=0.5)
        assert worker.running()
        gate.touch()

        assert future.result(timeout=60) == int((tmp_path / "started").read_text())
        assert worker.exit_code(timeout=60) == 0


def test_h70_a_worker_with_little_time_to_stop_gives_its_work_to_others(
    start_cluster: Starter, snapshot: Snapshot, database: Database, tmp_path: Path
) -> None:
    """With a second to drain: what has not started begins elsewhere at once, what executes begins again elsewhere and
    is not charged with a death, and the worker is shown as left, not as lost."""
    options = {"drain_seconds": 1.0, "worker_lease_seconds": PATIENT}
    cluster = start_cluster(workers=1, worker_options=options)
    (leaving,) = cluster.workers
    logs = [tmp_path / "log-0", tmp_path / "log-1"]
    with Client(cluster) as client:
        (before,) = (row.worker for row in snapshot.workers().rows)
        running = client.options(max_deaths=1).submit(tasks.wait_first_time_only, str(logs[0]), str(tmp_path / "never"))
        wait_until(Path(f"{logs[0]}.started").exists, "it executes", timeout=30)
        waiting = client.submit(tasks.parent_pid)
        client.flush(timeout=30)
        cluster.add_worker()
        leaving.terminate()

        elsewhere = cluster.workers[1].pid
        assert waiting.result(timeout=60) == elsewhere
        assert running.result(timeout=60) > 0
        assert running.profiling_info().attempt == 2
        assert leaving.wait(timeout=60) == 0
        cluster.workers.remove(leaving)
        record = cluster.keys.worker(before)
        assert wait_until(lambda: database.hash(record).get("gone"), "the worker is gone") == "left"
    assert len(tasks.started_lines(logs[0])) == 2


CTRL_C = """
import os, signal, sys, threading, time
from concurrent.futures import FIRST_COMPLETED
from gristmill import Client, as_completed, wait

client = Client(sys.argv[1], namespace=sys.argv[2], connect_timeout=60)

def interrupted(name, call):
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        call()
    except KeyboardInterrupt:
        print(name, flush=True)
    else:
        raise SystemExit(f"{name} was not interrupted")
    timer.join()
    assert client.submit(abs, -1).result(timeout=60) == 1, name

def new():
    return client.submit(time.sleep, 600)

for name, call in {
    "result": lambda: new().result(),
    "wait": lambda: wait([new()]),
    "as_completed": lambda: list(as_completed([new()])),
    "map": lambda: client.map(time.sleep, [600, 600]),
    "gather": lambda: client.gather([new()]),
    "get": lambda: client.get({"s": 600, "a": (time.sleep, "s")}, ["a"]),
}.items():
    if name not in sys.argv[3].split(","):
        continue
    waiting = len(client._session.unfinished)
    interrupted(name, call)
    if name in ("map", "get"):
        end = time.monotonic() + 60
        while len(client._session.unfinished) > waiting and time.monotonic() < end:
            time.sleep(0.01)
        assert len(client._session.unfinished) == waiting, "what was interrupted is cancelled"
client.disconnect()
"""


@pytest.mark.parametrize("calls", ["result,wait,as_completed,map,gather", "get"])
def test_h71_ctrl_c_ends_the_call_and_leaves_the_client_usable(start_cluster: Starter, calls: str) -> None:
    """SIGINT while a program waits in result, wait, as_completed, map, gather or get: each ends with
    KeyboardInterrupt, the next submit works; the tasks of map and get are cancelled, those of submit go on."""
    cluster = start_cluster(workers=1, worker_options={"worker_lease_seconds": PATIENT, "concurrency": 8})
    done = run(CTRL_C, cluster.address, cluster.namespace, calls)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == calls.split(",")


UNGUARDED = """
from gristmill import Client, LocalCluster
import multiprocessing
multiprocessing.set_start_method("spawn")
with LocalCluster(workers=1) as cluster, Client(cluster) as client:
    print("the answer is", client.submit(lambda: 42).result(timeout=60))
"""


@pytest.mark.parametrize("how", ["file", "standard input", "-c"])
def test_h76_a_script_without_a_main_guard_starts_one_cluster(how: str, tmp_path: Path) -> None:
    """With the spawn method forced, as a file, from standard input and by -c: it prints its result once and ends."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    arguments = {"file": [str(script)], "standard input": ["-"], "-c": ["-c", UNGUARDED]}[how]
    with enclosure() as place:
        done = subprocess.run(
            [sys.executable, *arguments], input=UNGUARDED if how == "standard input" else None, env=place.environment,
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "the answer is 42\n"), done.stderr


def test_h77_without_signals_and_fork_of_other_systems_everything_works(programs: Programs, tmp_path: Path) -> None:
    """On a system without SIGALRM, SIGUSR1, SIGUSR2 and os.fork: submit, time limit and cancel do what they should."""
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "sitecustomize.py").write_text(
        "import os, signal\n"
        "for name in ('SIGALRM', 'SIGUSR1', 'SIGUSR2', 'setitimer', 'alarm'):\n"
        "    delattr(signal, name)\n"
        "del os.fork, os.forkpty\n"
    )
    path = f"{shims}:{programs.environment['PYTHONPATH']}"
    programs.scheduler(PYTHONPATH=path)
    worker = programs.worker("--cancel-grace-seconds", "0.3", PYTHONPATH=path)
    script = (
        "import sys\n"
        "from gristmill import Client, TaskTimeoutError\n"
        "from support import tasks\n"
        "client = Client(sys.argv[1], namespace=sys.argv[2], connect_timeout=60)\n"
        "assert client.submit(abs, -1).result(timeout=60) == 1\n"
        "limited = client.options(timeout=0.3).submit(tasks.hang_stubbornly, sys.argv[3])\n"
        "assert isinstance(limited.exception(timeout=60), TaskTimeoutError)\n"
        "cancelled = client.submit(tasks.hang_politely, sys.argv[3] + '2')\n"
        "assert cancelled.cancel(timeout=60)\n"
        "assert client.submit(abs, -2).result(timeout=60) == 2\n"
        "client.disconnect()\n"
    )
    command = [sys.executable, "-c", script, programs.address, programs.keys.namespace, str(tmp_path / "started")]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "AttributeError" not in worker.log


def test_h14_h89_workers_that_leave_finish_what_they_execute_and_charge_nobody(
    start_cluster: Starter, tmp_path: Path
) -> None:
    """Four workers are told to leave, two of them in the middle of a task: the idle ones go at once, the busy ones when
    their task has finished; meanwhile others come and go. No task starts twice, and none is charged with a death."""
    cluster = start_cluster(workers=4, worker_options={"worker_lease_seconds": PATIENT})
    log, gate = tmp_path / "log", tmp_path / "gate"

    def note_and_wait(log: str, name: str, gate: str) -> int:
        from support import tasks

        tasks.note_start(log, name)
        return tasks.wait_for_file(f"{log}.{name}", gate)

    with Client(cluster) as client:
        fragile = client.options(max_deaths=1)
        futures = [fragile.submit(note_and_wait, str(log), name, str(gate)) for name in ("a", "b")]
        marks = [Path(f"{log}.{name}") for name in ("a", "b")]
        wait_until(lambda: all(mark.exists() for mark in marks), "two execute", timeout=30)
        busy_pids = {int(mark.read_text()) for mark in marks}
        busy = [one for one in cluster.workers if busy_pids & {p.pid for p in psutil.Process(one.pid).children()}]
        assert len(busy) == 2
        queued = [fragile.submit(tasks.note_start_and_work, str(log), f"q{at}", 0.02) for at in range(60)]
        for program in cluster.workers:
            program.terminate()
        for program in cluster.workers:
            if program not in busy:
                assert program.wait(timeout=60) == 0
        for _ in range(2):
            passing = cluster.add_worker()
            wait_until(lambda: len(tasks.started_lines(log)) > 10, "queued ones run", timeout=30)
            passing.terminate()
            assert passing.wait(timeout=60) == 0
        cluster.add_worker()
        assert client.gather(queued, timeout=60) == [f"q{at}" for at in range(60)]
        assert [program.poll() for program in busy] == [None, None]
        gate.touch()
        assert set(client.gather(futures, timeout=60)) == busy_pids
        assert [program.wait(timeout=60) for program in busy] == [0, 0]
        cluster.workers[:] = cluster.workers[-1:]
    assert sorted(tasks.started_lines(log)) == sorted(["a", "b", *(f"q{at}" for at in range(60))])
