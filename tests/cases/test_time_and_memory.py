"""H52 to H56: clocks, time limits, and processes that grow. (H52 is with H07.)"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill import Client, LocalCluster, TaskTimeoutError
from gristmill.snapshot import Snapshot
from support import tasks
from support.leases import LONG_LEASE
from support.programs import Programs
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]

SHIFTED_CLOCK = """
import datetime, os, time
_file = os.environ.get("SHIFTED_CLOCK_FILE")
if _file:
    def _seconds():
        try:
            with open(_file) as file:
                return float(file.read() or 0)
        except OSError:
            return 0.0
    _time, _time_ns = time.time, time.time_ns
    time.time = lambda: _time() + _seconds()
    time.time_ns = lambda: _time_ns() + int(_seconds() * 1e9)
"""


def test_h53_clocks_that_disagree_end_no_lease_and_shorten_no_task(
    programs: Programs, snapshot: Snapshot, tmp_path: Path
) -> None:
    """A worker two hours ahead, set back by an hour meanwhile, a scheduler half an hour behind, and a client in another
    time zone: nobody counts as dead, and durations are those that were."""
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "sitecustomize.py").write_text(SHIFTED_CLOCK)
    path = f"{shims}:{programs.environment['PYTHONPATH']}"
    ahead, behind = tmp_path / "ahead", tmp_path / "behind"
    ahead.write_text("7200")
    behind.write_text("-1800")
    programs.scheduler(PYTHONPATH=path, SHIFTED_CLOCK_FILE=str(behind))
    programs.worker("--worker-lease-seconds", "8", PYTHONPATH=path, SHIFTED_CLOCK_FILE=str(ahead))
    script = (
        "import sys, time\n"
        "from gristmill import Client\n"
        "client = Client(sys.argv[1], namespace=sys.argv[2], connect_timeout=60)\n"
        "futures = [client.submit(time.sleep, 0.02) for _ in range(150)]\n"
        "client.gather(futures, timeout=60)\n"
        "taken = [future.profiling_info() for future in futures]\n"
        "assert all(0.02 <= one.duration_s < 100 and 0 <= one.wait_s < 600 for one in taken), taken\n"
        "client.disconnect()\n"
    )
    command = [sys.executable, "-c", script, programs.address, programs.keys.namespace]
    client = subprocess.Popen(command, env={**programs.environment, "TZ": "Pacific/Kiritimati"})
    wait_until(lambda: snapshot.workers().rows, "the worker has registered", timeout=60)
    (before,) = (row.worker for row in snapshot.workers().rows)
    wait_until(lambda: snapshot.counts().states["success"] > 20, "tasks run", timeout=60)
    ahead.write_text("3600")
    assert client.wait(timeout=150) == 0

    begun = snapshot.overview().now
    wait_until(lambda: snapshot.overview().now > begun + 9000, "a whole lease has gone by")
    (row,) = snapshot.workers().rows
    assert row.worker == before
    assert all((change.duration_us or 0) >= 0 for change in snapshot.newest_tasks(limit=100).rows)


def test_h54_a_time_limit_ends_native_code_threads_and_what_swallows_everything(
    start_cluster: Starter, tmp_path: Path
) -> None:
    """Each task runs beyond its limit in another way; each fails by its limit, and the slots take new work."""

    def native() -> None:
        import itertools

        sum(itertools.repeat(1, 10**11))  # looks at no signal, and keeps the interpreter lock

    def threads() -> None:
        import threading

        def spin() -> None:
            while True:
                pass

        spinning = [threading.Thread(target=spin) for _ in range(2)]
        for thread in spinning:
            thread.start()
        for thread in spinning:
            thread.join()

    cluster = start_cluster(workers=1, worker_options={**LONG_LEASE, "concurrency": 3, "cancel_grace_seconds": 0.3})
    with Client(cluster) as client:
        limited = client.options(timeout=0.5)
        futures = [
            limited.submit(native),
            limited.submit(threads),
            limited.submit(tasks.hang_stubbornly, str(tmp_path / "started")),
        ]
        for future in futures:
            with pytest.raises(TaskTimeoutError, match=r"0\.5"):
                future.result(timeout=60)
        assert client.map(abs, range(-30, 0), timeout=60) == list(range(30, 0, -1))


GROWTH = """
import gc, sys
import psutil
from gristmill import Client

def fail(number):
    raise ValueError(number)

client = Client(sys.argv[1], namespace=sys.argv[2], connect_timeout=60)
sizes = []

def run_batch():
    futures = [client.submit(fail if number % 3 == 0 else abs, -number) for number in range(2000)]
    for future in futures[::3]:
        future.exception()
    for future in futures[1::3]:
        assert future.result() >= 0
    client.gather(futures[2::3][-1:])
    del futures, future
    gc.collect()
    sizes.append(psutil.Process().memory_info().rss)
    return sizes[-1]

def grows():
    first, *_, last = [run_batch() for _ in range(6)]
    return last >= 1.1 * first

run_batch()
# What grows without end does so each time; on a busy machine more may once be under way at the same time.
growing = all(grows() for _ in range(3))
client.disconnect()
print(sizes)
assert not growing, sizes
"""


def test_h55_a_client_that_lives_long_does_not_grow(shared_cluster: LocalCluster, client: Client) -> None:
    """Batch after batch, a third failing, a third never collected, all dropped: the last takes what the second took."""
    command = [sys.executable, "-c", GROWTH, shared_cluster.address, shared_cluster.namespace]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
