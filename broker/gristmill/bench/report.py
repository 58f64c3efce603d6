"""The benchmark's figures for people: each beside the process pool's."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from rich.text import Text

from gristmill.bench.figures import ROLES, Figures
from gristmill.cli.tables import titled

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gristmill.bench.suite import Row

COMMANDS_SHOWN = 12


def render(figures: Figures, console: Console) -> None:
    """Print all of it."""
    console.print()
    console.print(_comparison(figures))
    console.print()
    console.print(_cpu(figures))
    console.print()
    console.print(_commands(figures))
    console.print()
    console.print(
        Text(
            f"Medians of {len(figures.submit_seconds)} repetitions, cluster and pool in turn. All values were right. "
            f"Other programs took {statistics.median(figures.other_cpu_percent):.0f} % of the machine meanwhile.",
            style="dim",
        ),
        soft_wrap=True,
    )


def suite(rows: list[Row]) -> Table:
    """The full suite, each figure with its bar."""
    table = titled("Every figure, and what Gristmill holds itself to")
    table.add_column("")
    for name in ("gristmill", "process pool", "bar"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in rows:
        table.add_row(
            row.what,
            f"{_number(row.value)} {row.unit}",
            "-" if row.pool is None else _number(row.pool),
            f"{'≥' if row.at_least else '≤'} {_number(row.bar)}",
            "met" if row.met else "missed",
        )
    return table


def comparison(changes: list[tuple[str, float, float, float]]) -> Table:
    """Two runs side by side."""
    table = titled("Before and now")
    table.add_column("figure")
    for name in ("before", "now", "now / before"):
        table.add_column(name, justify="right")
    for place, before, now, ratio in changes:
        table.add_row(place, _number(before), _number(now), f"{ratio:.2f}")
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _comparison(figures: Figures) -> Table:
    table = titled(f"{figures.tasks:,} no-op tasks, {figures.workers} workers, append-only file on")
    table.add_column("")
    for name in ("gristmill", "process pool", "ratio"):
        table.add_column(name, justify="right")

    def row(name: str, ours: float, pool: float, digits: int) -> None:
        table.add_row(name, f"{ours:,.{digits}f}", f"{pool:,.{digits}f}", f"{ours / pool:.2f}")

    row("submit loop, then gather: tasks/s", figures.submit_tasks_per_s, figures.pool_submit_tasks_per_s, 0)
    row(f"map of {figures.map_items:,}: items/s", figures.map_items_per_s, figures.pool_map_items_per_s, 0)
    ours, pool = figures.latency_ms, figures.pool_latency_ms
    for name in ours:
        row(f"round trip of one, {name}: ms", ours[name], pool[name], 2)
    table.add_row("Redis memory of a queued task: bytes", f"{figures.redis_bytes_per_queued_task:,.0f}", "-", "-")
    return table


def _cpu(figures: Figures) -> Table:
    table = titled("CPU per task of the submit loop: µs")
    cpu = figures.cpu_us_per_task
    for role in (*ROLES, "together"):
        table.add_column(role, justify="right")
    table.add_row(*(f"{cpu[role]:.1f}" for role in ROLES), f"{sum(cpu.values()):.1f}")
    return table


def _commands(figures: Figures) -> Table:
    table = titled("Where Redis spent it (commands inside a script count for evalsha too)")
    table.add_column("command")
    table.add_column("calls per task", justify="right")
    table.add_column("µs per task", justify="right")
    for name, command in list(figures.redis_commands.items())[:COMMANDS_SHOWN]:
        table.add_row(name, f"{command.calls:.3f}", f"{command.microseconds:.2f}")
    return table
