"""H42 to H45: cancels that come early, in quick succession, to tasks that do not react, or in the last moment."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from gristmill import Client, Future, LocalCluster
from gristmill.protocol.states import TERMINAL
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def test_h42_a_task_may_be_cancelled_straight_after_its_submit(start_cluster: Starter, tmp_path: Path) -> None:
    """Without workers and with two: every future ends, a cancelled one never starts, and nothing is not found."""
    cluster = start_cluster(workers=0, worker_options=LONG_LEASE)
    chance = random.Random(42)
    log = tmp_path / "log"
    cancelled: list[int] = []
    with Client(cluster) as client:

        def submit_and_cancel(first: int) -> None:
            for number in range(first, first + 150):
                future = client.submit(tasks.note_start, str(log), str(number))
                time.sleep(chance.choice((0, 0, 0.001, 0.005)))
                if future.cancel(timeout=60):
                    cancelled.append(number)
                else:
                    assert future.result(timeout=0) == str(number)

        submit_and_cancel(0)
        assert len(cancelled) == 150
        for _ in range(2):
            cluster.add_worker()
        submit_and_cancel(150)
        last = client.submit(tasks.note_start, str(log), "last")
        assert last.result(timeout=30) == "last"
    started = Counter(tasks.started_lines(log))
    assert started.total() == len(started) == 301 - len(cancelled) + len(interrupted(started, cancelled))
    assert not {str(number) for number in range(150)} & set(started)


def interrupted(started: Counter[str], cancelled: list[int]) -> set[str]:
    """Tasks that had started when their cancel came, and were interrupted."""
    return set(started) & {str(number) for number in cancelled}


def test_h43_many_cancels_in_quick_succession_leave_a_healthy_worker(start_cluster: Starter, tmp_path: Path) -> None:
    """Two hundred cancels one after the other, the executing ones first: all end so, and four processors are there."""
    cluster = start_cluster(workers=1, worker_options={**LONG_LEASE, "concurrency": 4, "cancel_grace_seconds": 0.5})
    (program,) = cluster.workers
    with Client(cluster) as client:
        futures = [client.submit(tasks.hang_politely, str(tmp_path / f"started-{number}")) for number in range(200)]

        def executing() -> set[int]:
            return {int(path.name.partition("-")[2]) for path in tmp_path.glob("started-*")}

        wait_until(lambda: len(executing()) == 4, "four tasks execute", timeout=30)
        first = executing()
        for future in sorted(futures, key=lambda future: futures.index(future) not in first):
            client.cancel(future, timeout=0)
        wait_until(lambda: all(future.done() for future in futures), "all are done")

        assert all(future.cancelled() for future in futures)
        assert client.gather([client.submit(abs, -1) for _ in range(100)], timeout=30) == [1] * 100
        wait_until(lambda: len(psutil.Process(program.pid).children()) == 4, "it has four processors")


def test_h44_a_task_that_does_not_react_to_its_cancel_is_ended(start_cluster: Starter, tmp_path: Path) -> None:
    """A sleep, one that swallows everything, one in native code, one that ignores SIGTERM: all end in the grace time,
    their processes are gone if they had to be killed, and the worker goes on with fresh ones."""

    def native(started: str) -> None:
        import itertools
        import os
        from pathlib import Path

        Path(f"{started}.new").write_text(str(os.getpid()))
        os.replace(f"{started}.new", started)
        sum(itertools.repeat(1, 10**11))  # looks at no signal

    def deaf(started: str) -> None:
        import signal

        from support import tasks

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tasks.hang_stubbornly(started)

    functions: dict[str, Callable[[str], None]] = {
        "sleep": tasks.hang_politely,
        "swallow": tasks.hang_stubbornly,
        "native": native,
        "deaf": deaf,
    }
    cluster = start_cluster(workers=1, worker_options={**LONG_LEASE, "concurrency": 4, "cancel_grace_seconds": 0.5})
    with Client(cluster) as client:
        futures: dict[str, Future] = {
            name: client.submit(function, str(tmp_path / name)) for name, function in functions.items()
        }
        wait_until(lambda: all((tmp_path / name).exists() for name in functions), "all four execute", timeout=30)
        pids = {name: int((tmp_path / name).read_text()) for name in functions}
        killed = [psutil.Process(pids[name]) for name in ("swallow", "native", "deaf")]
        assert client.cancel(futures.values(), timeout=60) == 4
        assert all(future.cancelled() for future in futures.values())
        wait_until(lambda: not any(process.is_running() for process in killed), "those that did not react are gone")
        assert client.map(abs, range(-50, 0), timeout=30) == list(range(50, 0, -1))
        (program,) = cluster.workers
        wait_until(lambda: len(psutil.Process(program.pid).children()) == 4, "it has four processors")


def test_h45_cancel_and_completion_in_the_same_moment_agree(
    client: Client, shared_cluster: LocalCluster, shared_database: Database
) -> None:
    """Tasks of up to two milliseconds, cancelled within two: what `cancel` answers, the future and Redis agree."""
    counts = shared_cluster.keys.counts()

    def ended() -> dict[bool, int]:
        fields = shared_database.hash(counts)
        number = {state.value: int(fields.get(f"state:{state.value}", 0)) for state in TERMINAL}
        assert number["failed_worker_died"] == 0
        return {True: number["canceled"] + number["canceled_not_found"], False: number["success"]}

    before = ended()
    chance = random.Random(45)

    def run_and_cancel(seconds: tuple[float, float]) -> tuple[bool, bool]:
        future = client.submit(time.sleep, seconds[0])
        if sent := seconds[1] > 0.0005:
            client.flush()
        time.sleep(seconds[1])
        answer = future.cancel(timeout=60)
        assert answer == future.cancelled()
        if not answer:
            assert future.result(timeout=0) is None
        return answer, sent

    moments = [(chance.uniform(0, 0.002), chance.uniform(0, 0.002)) for _ in range(300)]
    with ThreadPoolExecutor(4) as threads:
        answers = Counter(threads.map(run_and_cancel, moments))
    finished = answers[False, True] + answers[False, False]

    def agree() -> bool:
        now = ended()
        # A task that was cancelled before it was sent is one that Redis never saw.
        at_least, at_most = answers[True, True], answers[True, True] + answers[True, False]
        return now[False] == before[False] + finished and at_least <= now[True] - before[True] <= at_most

    wait_until(agree, "the totals per state in Redis agree with the answers")
