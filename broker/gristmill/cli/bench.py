"""`gristmill bench`: what a task costs on this machine."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from gristmill.cli import epilog, exits


@click.command(
    epilog=epilog(
        "gristmill bench                           10,000 tasks, 2 workers",
        "gristmill bench --tasks 100000 --reps 3",
        "gristmill bench --json > before.json      to compare with later",
        "gristmill bench --compare before.json",
        "gristmill bench --api                     map, imap, graphs, nested tasks, one by one",
        "gristmill bench --suite full              every figure that Gristmill holds itself to; ten minutes",
        note="Exit codes: 0 measured, and every value was right; 4 a task gave a wrong value or none; 130 interrupted.",
    )
)
@click.option(
    "--tasks",
    metavar="NUMBER",
    type=click.IntRange(100, 10_000_000),
    default=10_000,
    show_default=True,
    help="No-op tasks in one submit loop; map gets up to ten times as many.",
)
@click.option(
    "--workers",
    metavar="NUMBER",
    type=click.IntRange(1, 1024),
    default=2,
    show_default=True,
    help="Workers, and processes of the pool.",
)
@click.option(
    "--reps",
    metavar="NUMBER",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Repetitions, of which medians are shown.",
)
@click.option(
    "--rounds",
    metavar="NUMBER",
    type=click.IntRange(10, 100_000),
    default=300,
    show_default=True,
    help="Single no-ops in a repetition of the round trip.",
)
@click.option(
    "--suite",
    type=click.Choice(("quick", "full")),
    default="quick",
    show_default=True,
    help="full adds payloads, graphs, a million tasks, a thousand workers, start, memory, idling, viewers.",
)
@click.option("--api", is_flag=True, help="Instead: every way of calling, each with its bar.")
@click.option(
    "--compare",
    metavar="OLD.json",
    type=click.Path(exists=True, dir_okay=False),
    help="Show each figure beside that of an earlier run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON; progress goes to standard error.")
def command(
    tasks: int, workers: int, reps: int, rounds: int, suite: str, api: bool, compare: str | None, as_json: bool
) -> int:
    """Measure what a task costs on this machine, beside a process pool.

    On a fresh cluster with an append-only file: throughput of a submit loop and of map, round trips of single
    no-ops while nothing else runs, CPU time per task of each process, Redis memory of a queued task. A
    ProcessPoolExecutor with as many workers does the same in turn. Every value is checked.
    """
    from rich.console import Console

    from gristmill.bench import report
    from gristmill.bench.api import run_api
    from gristmill.bench.clock import WrongValueError
    from gristmill.bench.compare import changes
    from gristmill.bench.figures import as_json as figures_as_json
    from gristmill.bench.run import run
    from gristmill.bench.suite import as_json as rows_as_json
    from gristmill.bench.suite import run_suite
    from gristmill.errors import TaskError
    from gristmill.interrupts import one_interrupt

    old = _earlier(compare) if compare else None
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    news = Console(stderr=True, highlight=False)
    try:
        with one_interrupt(), news.status("starting") as status:

            def announce(text: str) -> None:
                status.update(text)
                if not news.is_terminal:
                    news.print(text)

            if api:
                found, rows = {}, run_api(workers, announce)
            else:
                figures = run(tasks, workers, reps, rounds, announce)
                found, rows = figures_as_json(figures), []
                if suite == "full":
                    rows = run_suite(figures, workers, announce)
    except (WrongValueError, TaskError) as error:
        click.echo(f"gristmill bench: {error}", err=True)
        return exits.TASKS_FAILED
    except KeyboardInterrupt:
        click.echo("Interrupted: everything was taken down.", err=True)
        return exits.INTERRUPTED
    if rows:
        found["api" if api else "full"] = rows_as_json(rows)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif old is None:
        if not api:
            report.render(figures, console)
        if rows:
            console.print(report.suite(rows))
    if old is not None:
        (news if as_json else console).print(report.comparison(changes(old, found)))
    return exits.OK


def _earlier(path: str) -> dict[str, Any]:
    from gristmill.bench.compare import figures_in

    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if not isinstance(found, dict) or not any(True for _ in figures_in(found)):
            raise ValueError("there is no figure in it")
    except ValueError as error:
        raise click.BadParameter(
            f"expected a file that `gristmill bench --json` wrote; got {path} ({error})", param_hint="--compare"
        ) from None
    return found
