"""What the benchmark found: medians of repetitions, and the JSON whose keys stay as they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ROLES = ("client", "scheduler", "redis", "workers")
PERCENTILES = (50, 95, 99)


@dataclass
class Command:
    """One Redis command during the submit runs, per task. Commands inside a script count here and in `evalsha`."""

    calls: float
    microseconds: float


@dataclass
class Figures:
    """Everything measured. Lists have one item a repetition; figures are the medians of them."""

    machine: dict[str, Any]
    workers: int
    tasks: int
    map_items: int
    submit_seconds: list[float] = field(default_factory=list)
    map_seconds: list[float] = field(default_factory=list)
    round_trips_ms: list[list[float]] = field(default_factory=list)
    cpu_seconds: list[dict[str, float]] = field(default_factory=list)
    """By role, during a submit run."""
    commands: list[dict[str, Command]] = field(default_factory=list)
    other_cpu_percent: list[float] = field(default_factory=list)
    """Of the whole machine's time during a submit run: what programs other than ours used. Noise, if it is much."""
    redis_bytes_per_queued_task: float = 0.0
    pool_submit_seconds: list[float] = field(default_factory=list)
    pool_map_seconds: list[float] = field(default_factory=list)
    pool_round_trips_ms: list[list[float]] = field(default_factory=list)

    @property
    def submit_tasks_per_s(self) -> float:
        return self.tasks / statistics.median(self.submit_seconds)

    @property
    def pool_submit_tasks_per_s(self) -> float:
        return self.tasks / statistics.median(self.pool_submit_seconds)

    @property
    def map_items_per_s(self) -> float:
        return self.map_items / statistics.median(self.map_seconds)

    @property
    def pool_map_items_per_s(self) -> float:
        return self.map_items / statistics.median(self.pool_map_seconds)

    @property
    def latency_ms(self) -> dict[str, float]:
        return percentiles(self.round_trips_ms)

    @property
    def pool_latency_ms(self) -> dict[str, float]:
        return percentiles(self.pool_round_trips_ms)

    @property
    def cpu_us_per_task(self) -> dict[str, float]:
        return {role: statistics.median(run[role] for run in self.cpu_seconds) / self.tasks * 1e6 for role in ROLES}

    @property
    def redis_commands(self) -> dict[str, Command]:
        """Medians, the most expensive command first."""
        names = {name for run in self.commands for name in run}
        nothing = Command(0.0, 0.0)
        medians = {
            name: Command(
                statistics.median(run.get(name, nothing).calls for run in self.commands),
                statistics.median(run.get(name, nothing).microseconds for run in self.commands),
            )
            for name in names
        }
        return dict(sorted(medians.items(), key=lambda item: (-item[1].microseconds, item[0])))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` per cent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def percentiles(runs: Sequence[Sequence[float]]) -> dict[str, float]:
    """p50, p95 and p99: each the median over the runs of that run's percentile."""
    return {f"p{percent}": statistics.median(percentile(run, percent) for run in runs) for percent in PERCENTILES}


def difference(before: Mapping[str, Any], after: Mapping[str, Any], tasks: int) -> dict[str, Command]:
    """What happened between two readings of `INFO commandstats`, per task."""
    commands = {}
    for key, now in after.items():
        then = before.get(key, {"calls": 0, "usec": 0})
        calls, microseconds = now["calls"] - then["calls"], now["usec"] - then["usec"]
        if calls:
            commands[key.removeprefix("cmdstat_")] = Command(calls / tasks, microseconds / tasks)
    return commands


def as_json(figures: Figures) -> dict[str, Any]:
    """What `--json` prints. Keys may be added, never renamed: people keep these files and compare them."""
    return {
        "machine": figures.machine,
        "workers": figures.workers,
        "tasks": figures.tasks,
        "repetitions": len(figures.submit_seconds),
        "other_cpu_percent": round(statistics.median(figures.other_cpu_percent), 1),
        "submit": {"tasks_per_s": round(figures.submit_tasks_per_s, 1)},
        "map": {"items_per_s": round(figures.map_items_per_s, 1), "items": figures.map_items},
        "latency_ms": _rounded(figures.latency_ms, 3),
        "cpu_us_per_task": _rounded(figures.cpu_us_per_task, 2),
        "redis_bytes_per_queued_task": round(figures.redis_bytes_per_queued_task, 1),
        "redis_commands": {
            name: {"calls_per_task": round(command.calls, 4), "us_per_task": round(command.microseconds, 3)}
            for name, command in figures.redis_commands.items()
        },
        "process_pool": {
            "submit_tasks_per_s": round(figures.pool_submit_tasks_per_s, 1),
            "map_items_per_s": round(figures.pool_map_items_per_s, 1),
            "latency_ms": _rounded(figures.pool_latency_ms, 3),
        },
        "ratio": {
            "submit": round(figures.submit_tasks_per_s / figures.pool_submit_tasks_per_s, 3),
            "map": round(figures.map_items_per_s / figures.pool_map_items_per_s, 3),
            "latency_p50": round(figures.latency_ms["p50"] / figures.pool_latency_ms["p50"], 3),
        },
    }


def _rounded(values: Mapping[str, float], digits: int) -> dict[str, float]:
    return {name: round(value, digits) for name, value in values.items()}
