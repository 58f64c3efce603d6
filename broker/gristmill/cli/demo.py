"""`gristmill demo`: the whole system at work on real files, from one command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gristmill.cli import epilog, exits

if TYPE_CHECKING:
    from rich.console import Console

    from gristmill.demo.report import Report


@click.command(
    epilog=epilog(
        "gristmill demo                     measure this Python's library and packages",
        "gristmill demo --verify            and compare with a serial run in one process",
        "gristmill demo --path ~/src/shop   measure the .py files of another folder",
        "gristmill demo --keep              and look around afterwards: page, status, redis-cli",
        "gristmill demo --json > found.json",
        note="Exit codes: 0 all is right; 4 a task failed, or the serial run differs; 130 interrupted.",
    )
)
@click.option(
    "--path",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False),
    help="Measure the .py files below this folder instead of Python's own.",
)
@click.option(
    "--workers", metavar="NUMBER", type=click.IntRange(1, 1024), help="How many workers. [default: one a core]"
)
@click.option("--verify", is_flag=True, help="Repeat the work serially in one process, and compare every figure.")
@click.option("--keep", is_flag=True, help="Stay up when the work is done, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; progress goes to standard error.")
def command(path: str | None, workers: int | None, verify: bool, keep: bool, as_json: bool) -> int:
    """Measure every function of a Python installation, in parallel.

    Starts an embedded Redis, a scheduler, workers and the status page on this machine. Every .py file of the running
    Python's standard library and site-packages becomes a task that parses it and measures its functions: lines,
    branches, nesting, cyclomatic complexity. A second stage sums up by package, in tasks that depend on the first.
    Everything is taken down again at the end.
    """
    from rich.console import Console

    from gristmill.interrupts import one_interrupt

    # What a pipe or a file gets is not cut to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    news = Console(stderr=True, highlight=False) if as_json else console
    try:
        with one_interrupt():
            report = _run(path, workers, verify, keep, as_json, console, news)
    except KeyboardInterrupt:
        click.echo("Interrupted: everything was taken down.", err=True)
        return exits.INTERRUPTED
    return exits.OK if report.right else exits.TASKS_FAILED


def _run(
    path: str | None, workers: int | None, verify: bool, keep: bool, as_json: bool, console: Console, news: Console
) -> Report:
    from gristmill import Client, LocalCluster
    from gristmill.cores import cores
    from gristmill.demo.files import folder_sources, interpreter_sources
    from gristmill.demo.job import differences, run_on_cluster, run_serially
    from gristmill.demo.progress import watch
    from gristmill.demo.report import Report, Verification

    sources = folder_sources(path) if path else interpreter_sources()
    if not sources.files:
        raise click.UsageError(f"expected a folder with .py files; got {path}, which has none; give another --path")
    count = workers or cores()
    news.print(
        f"[bold]Gristmill demo[/bold]: {len(sources.files):,} Python files, {count} worker{'s'[: count != 1]}, "
        "an embedded Redis"
    )
    with LocalCluster(workers=count, web=True) as cluster:
        leave = "it stays up" if keep else "--keep leaves it up"
        news.print(f"Watch it at [link={cluster.web_url}]{cluster.web_url}[/link] ({leave})", soft_wrap=True)
        with Client(cluster) as client:
            with watch(news) as watcher:
                work = run_on_cluster(client, sources.files, watcher)
                verification = None
                if verify:
                    serial = run_serially(sources.files, watcher)
                    verification = Verification(serial.seconds, differences(work, serial))
            report = Report(sources, work, verification)
            _show(report, as_json, console)
            if keep:
                news.print(
                    f"\nStill up: page {cluster.web_url}, Redis {cluster.address}\n"
                    f"Look around: gristmill status --redis {cluster.address}\n"
                    "Ctrl-C takes everything down.",
                    soft_wrap=True,
                )
                _wait_for_interrupt()
    return report


def _show(report: Report, as_json: bool, console: Console) -> None:
    from gristmill.demo import report as pages

    if as_json:
        import json

        click.echo(json.dumps(pages.as_json(report), indent=2, ensure_ascii=False))
    else:
        pages.render(report, console)


def _wait_for_interrupt() -> None:
    """Until Ctrl-C, which is the way to end `--keep` and so no failure."""
    import signal

    try:
        signal.pause()
    except KeyboardInterrupt:
        return
