"""The benchmark's arithmetic, its stable keys, and the process pool that it compares with."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time

import psutil
import pytest
from rich.console import Console

from gristmill.bench.clock import WrongValueError, check, cpu_seconds, round_trips
from gristmill.bench.figures import Command, Figures, as_json, difference, percentile, percentiles
from gristmill.bench.pool import PoolProcess, chunk_size
from gristmill.bench.report import render
from support.waiting import wait_until


def figures() -> Figures:
    """Two repetitions with easy numbers."""
    return Figures(
        machine={"cores": 2},
        workers=2,
        tasks=1000,
        map_items=10_000,
        submit_seconds=[0.1, 0.3],
        map_seconds=[0.1, 0.1],
        round_trips_ms=[[0.5] * 99 + [9.0], [0.7] * 99 + [9.0]],
        cpu_seconds=[{"client": 0.01, "scheduler": 0.02, "redis": 0.03, "workers": 0.04}] * 2,
        commands=[{"evalsha": Command(0.02, 12.0)}, {"evalsha": Command(0.04, 14.0), "xadd": Command(1.0, 1.0)}],
        other_cpu_percent=[3.0, 5.0],
        redis_bytes_per_queued_task=512.0,
        pool_submit_seconds=[0.5, 0.3],
        pool_map_seconds=[0.01, 0.01],
        pool_round_trips_ms=[[0.2] * 100, [0.2] * 100],
    )


def test_the_keys_that_people_compare_are_there() -> None:
    found = as_json(figures())

    assert found["machine"] == {"cores": 2}
    assert found["workers"] == 2
    assert found["other_cpu_percent"] == 4.0
    assert found["submit"]["tasks_per_s"] == 5000.0
    assert found["map"]["items_per_s"] == 100_000.0
    assert found["latency_ms"] == {"p50": 0.6, "p95": 0.6, "p99": 0.6}
    assert found["cpu_us_per_task"] == {"client": 10.0, "scheduler": 20.0, "redis": 30.0, "workers": 40.0}
    assert found["redis_bytes_per_queued_task"] == 512.0
    assert found["process_pool"]["submit_tasks_per_s"] == 2500.0
    assert found["process_pool"]["latency_ms"]["p50"] == 0.2
    assert found["ratio"] == {"submit": 2.0, "map": 0.1, "latency_p50": 3.0}


def test_commands_are_medians_with_the_most_expensive_first() -> None:
    assert figures().redis_commands == {"evalsha": Command(0.03, 13.0), "xadd": Command(0.5, 0.5)}


def test_commandstats_are_compared_per_task() -> None:
    before = {"cmdstat_xadd": {"calls": 10, "usec": 100}, "cmdstat_get": {"calls": 5, "usec": 5}}
    after = {
        "cmdstat_xadd": {"calls": 110, "usec": 300},
        "cmdstat_get": {"calls": 5, "usec": 5},
        "cmdstat_set": {"calls": 50, "usec": 25},
    }

    assert difference(before, after, 100) == {"xadd": Command(1.0, 2.0), "set": Command(0.5, 0.25)}


@pytest.mark.parametrize(("percent", "expected"), [(50, 2), (95, 4), (99, 4), (25, 1)])
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(percent: float, expected: float) -> None:
    assert percentile([4, 2, 3, 1], percent) == expected


def test_percentiles_of_several_runs_are_medians_of_theirs() -> None:
    assert percentiles([[1.0], [5.0], [2.0]])["p50"] == 2.0


def test_right_values_pass_and_wrong_ones_are_named() -> None:
    check([0, 1, 2], 3)

    with pytest.raises(WrongValueError, match=r"got 1 wrong ones: task 1 gave 7"):
        check([0, 7, 2], 3)
    with pytest.raises(WrongValueError, match="2 values"):
        check([0, 1], 3)


def test_a_round_trip_that_brings_another_value_is_an_error() -> None:
    class Answer:
        def result(self) -> int:
            return -1

    with pytest.raises(WrongValueError, match="expected 0 from task 0; got -1"):
        round_trips(lambda function, number: Answer(), 3)


def test_the_page_for_people_shows_every_figure_beside_the_pools() -> None:
    out = io.StringIO()

    render(figures(), Console(file=out, width=120))

    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "submit loop, then gather: tasks/s 5,000 2,500 2.00" in lines
    assert "round trip of one, p50: ms 0.60 0.20 3.00" in lines
    assert "10.0 20.0 30.0 40.0 100.0" in lines
    assert "evalsha 0.030 13.00" in lines


def test_the_cpu_time_of_another_process_is_finer_than_a_tick() -> None:
    burn = "import time\nwhile time.process_time() < 0.05: pass\nprint(time.process_time(), flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        own = float(process.stdout.readline())
        seen = cpu_seconds(process.pid)
        process.communicate(b"\n")

    assert own <= seen < own + 0.01


def test_the_cpu_time_of_this_process_is_its_own() -> None:
    before = time.process_time()
    seen = cpu_seconds(os.getpid())
    after = time.process_time()  # other threads may run in between, and the garbage collector

    assert before - 0.01 <= seen <= after + 0.01


@pytest.mark.parametrize(("items", "workers", "size"), [(100_000, 2, 12_500), (10, 4, 1), (17, 2, 3)])
def test_the_pools_map_gets_the_chunks_that_suit_a_pool(items: int, workers: int, size: int) -> None:
    assert chunk_size(items, workers) == size


def test_the_process_pool_answers_each_workload_and_ends_with_its_owner() -> None:
    with PoolProcess(2) as pool:
        family = [pool.pid, *(child.pid for child in psutil.Process(pool.pid).children(recursive=True))]
        assert pool.submit(50) > 0
        assert pool.map(50) > 0
        assert len(pool.latency(5)) == 5

    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in family) or None, "the pool's processes are gone")


def test_a_process_pool_is_not_waited_for_after_an_error() -> None:
    pool = PoolProcess(2)
    pool.submit(1)
    family = [pool.pid, *(child.pid for child in psutil.Process(pool.pid).children(recursive=True))]

    pool.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)

    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in family) or None, "the pool's processes are gone")
