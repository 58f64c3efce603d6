"""`gristmill status`: what is running and waiting, in the terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from gristmill.cli import epilog, exits
from gristmill.settings import Settings, options

if TYPE_CHECKING:
    from gristmill.cli.tables import Table
    from gristmill.snapshot import Overview, Snapshot

WORKERS_SHOWN = 50


@click.command(
    epilog=epilog(
        "gristmill status --redis redis://localhost:6379/0",
        "gristmill status --watch",
        "gristmill status --json | jq .overview.counts.states.running",
        "gristmill status --json | jq -e '.overview.alerts == []'      0 when all is well",
        note="Exit codes: 0 Redis answered; 2 wrong usage; 3 Redis cannot be reached.",
    )
)
@options(Settings)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, the same as the page's /api/v1/overview.")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --watch looks.",
)
def command(settings: Settings, as_json: bool, watch: bool, every: float) -> int:
    """Show tasks per state, alerts, workers and schedulers."""
    from gristmill.cli.tables import show
    from gristmill.snapshot import Snapshot

    if watch and as_json:
        raise click.UsageError("expected --watch or --json; got both; leave one out")
    with Snapshot(settings.address, settings.namespace) as snapshot:
        if watch:
            _watch(snapshot, every)
        elif as_json:
            _print_json(_read(snapshot))
        else:
            show(pieces(_read(snapshot)))
    return exits.OK


def _read(snapshot: Snapshot) -> Overview:
    return snapshot.overview(per_page=WORKERS_SHOWN)


def _print_json(seen: Overview) -> None:
    import orjson

    body = {"version": 1, "overview": seen.plain()}
    click.echo(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode())


def pieces(seen: Overview) -> list[str | Table]:
    """What is shown, from top to bottom."""
    from gristmill.logs import escape
    from gristmill.snapshot.formats import count, size

    redis = seen.redis
    memory = "" if redis.used_memory_bytes is None else f", {size(redis.used_memory_bytes)}"
    requests, clients = count(sum(seen.backlog.values())), count(seen.clients)
    place = f"namespace {seen.namespace} in {redis.server} {redis.version}{memory}"
    lines: list[str | Table] = [f"{place}; {clients} clients, {requests} requests waiting"]
    lines += [escape(f"{alert.level}: {alert.text} {alert.remedy}".rstrip()) for alert in seen.alerts]
    lines += ["", *_tasks(seen)]
    lines += ["", *_workers(seen), "", *_schedulers(seen)]
    return lines


def _tasks(seen: Overview) -> list[str | Table]:
    from gristmill.cli.tables import Table
    from gristmill.snapshot.formats import count

    table = Table("state", ">tasks")
    for state, tasks in seen.counts.states.items():
        table.add(state, count(tasks))
    return [table]


def _workers(seen: Overview) -> list[str | Table]:
    from gristmill.cli.tables import Table
    from gristmill.snapshot.formats import ago, percent, size, span

    page = seen.workers
    if not page.rows:
        return ["no worker is there; start one: gristmill worker --redis ADDRESS"]
    table = Table(
        "worker",
        "host",
        "state",
        ">cpu",
        ">memory",
        ">processors",
        ">queued",
        ">held",
        ">free",
        "current task",
        ">seen",
    )
    for worker in page.rows:
        executing = worker.executing
        current = (
            f"{executing[0].function or executing[0].task} ({span(executing[0].running_ms)})" if executing else "-"
        )
        if len(executing) > 1:
            current += f" and {len(executing) - 1} more"
        table.add(
            worker.name or worker.worker, f"{worker.host}:{worker.pid}", worker.state, percent(worker.cpu_percent),
            size(worker.rss_bytes), f"{worker.processors_ready}/{worker.concurrency}", worker.queued, worker.held,
            worker.free, current, ago(seen.now - worker.seen),
        )  # fmt: skip
    more = page.total - len(page.rows)
    return [table, f"and {more:,} workers more; the status page has them all"] if more > 0 else [table]


def _schedulers(seen: Overview) -> list[str | Table]:
    from gristmill.cli.tables import Table
    from gristmill.snapshot.formats import ago, percent, rate, size, span

    if not seen.schedulers:
        return ["no scheduler is there; start one: gristmill scheduler --redis ADDRESS"]
    table = Table("scheduler", "host", "state", ">cpu", ">memory", ">loop lag", ">requests", ">scripts", ">seen")
    for row in seen.schedulers:
        table.add(
            row.name or row.scheduler, f"{row.host}:{row.pid}", "live" if row.live else "silent",
            percent(row.cpu_percent), size(row.rss_bytes), span(row.loop_lag_ms), f"{rate(row.requests_per_s)}/s",
            f"{rate(row.scripts_per_s)}/s", ago(seen.now - row.seen),
        )  # fmt: skip
    return [table]


def _watch(snapshot: Snapshot, every: float) -> None:
    """Until Ctrl-C, which is how one ends it: no error."""
    import sys

    from gristmill.cli.tables import plain, renderable
    from gristmill.errors import ConnectionLostError, RedisRefusedError

    def look() -> list[str | Table]:
        try:
            return pieces(_read(snapshot))
        except (ConnectionLostError, RedisRefusedError) as error:
            return [f"error: {error}"]

    shown = pieces(_read(snapshot))  # a Redis that is away from the start is an error as without --watch
    try:
        if sys.stdout.isatty():
            from rich.live import Live

            with Live(renderable(shown), auto_refresh=False, screen=True) as live:
                while True:
                    time.sleep(every)
                    live.update(renderable(look()), refresh=True)
        while True:
            click.echo(plain(shown) + "\n")
            time.sleep(every)
            shown = look()
    except KeyboardInterrupt:
        return
