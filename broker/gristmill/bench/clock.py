"""CPU time of other processes, and the loops that are timed. Used alike for the cluster and for the process pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import psutil

from gristmill.bench.tasks import noop
from gristmill.errors import GristmillError

Submit = Callable[..., Any]
"""`submit(function, argument)` that returns a future: a client's, or an executor's."""
Map = Callable[[Callable[[int], int], Iterable[int]], Iterable[int]]


class WrongValueError(GristmillError):
    """A task came back with another task's value, or none."""


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, all its threads together, those that have ended too; not its children.

    Linux has a clock for each process with a resolution of nanoseconds; /proc counts in steps of 10 ms, which is
    too coarse here. Where there is no such clock psutil must do.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)


def processes_below(pid: int) -> list[int]:
    """Pids of all descendants that are alive."""
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


class MachineTime(NamedTuple):
    """CPU seconds of the whole machine since it was started."""

    busy: float
    total: float


def machine_time() -> MachineTime:
    """A reading; two of them say how busy the machine was in between."""
    times = psutil.cpu_times()
    total = sum(times[:8])  # the two that follow on Linux, for guests, are within the first ones
    return MachineTime(total - times.idle - getattr(times, "iowait", 0.0), total)


def submit_loop(submit: Submit, tasks: int) -> float:
    """Submit no-ops one by one, then gather their values; seconds. Raises WrongValueError."""
    started = time.perf_counter()
    futures = [submit(noop, number) for number in range(tasks)]
    values = [future.result() for future in futures]
    seconds = time.perf_counter() - started
    check(values, tasks)
    return seconds


def map_all(mapped: Map, items: int) -> float:
    """Map the no-op over numbers and gather the values; seconds. Raises WrongValueError."""
    started = time.perf_counter()
    values = list(mapped(noop, range(items)))
    seconds = time.perf_counter() - started
    check(values, items)
    return seconds


def round_trips(submit: Submit, rounds: int) -> list[float]:
    """One no-op after the other, each waited for; milliseconds each. Raises WrongValueError."""
    milliseconds = []
    for number in range(rounds):
        started = time.perf_counter()
        value = submit(noop, number).result()
        milliseconds.append((time.perf_counter() - started) * 1000)
        if value != number:
            raise WrongValueError(f"expected {number} from task {number}; got {value!r}")
    return milliseconds


def check(values: list[int], count: int) -> None:
    """Every task's value must be its own number."""
    if values == list(range(count)):
        return
    wrong = [(number, value) for number, value in enumerate(values) if number != value]
    example = f"task {wrong[0][0]} gave {wrong[0][1]!r}" if wrong else f"{len(values):,} values"
    raise WrongValueError(f"expected the values of {count:,} tasks in order; got {len(wrong):,} wrong ones: {example}")
