"""`gristmill tasks`: the newest tasks."""

from __future__ import annotations

import click

from gristmill.cli import epilog, exits
from gristmill.protocol.states import ACTIVE, TERMINAL, State
from gristmill.settings import Settings, options

MOST = 1000
STATES = [state.value for state in State if state in ACTIVE or state in TERMINAL]


@click.command(
    epilog=epilog(
        "gristmill tasks                                   what changed last",
        "gristmill tasks --state failed --limit 100        the newest failures",
        "gristmill tasks --function prices --json          tasks whose function's name has `prices` in it",
        note="Exit codes: 0 Redis answered; 2 wrong usage; 3 Redis cannot be reached.",
    )
)
@options(Settings)
@click.option("--state", type=click.Choice(STATES), default=None, help="Only tasks that are in this state now.")
@click.option("--function", default="", metavar="TEXT", help="Only tasks with this text in the function's name.")
@click.option(
    "--limit", type=click.IntRange(1, MOST), default=25, show_default=True, metavar="NUMBER", help="How many to show."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(settings: Settings, state: str | None, function: str, limit: int, as_json: bool) -> int:
    """List the tasks that changed last, newest first.

    They come from the newest entries of the stream `events`; older tasks are found by id with `gristmill task ID`.
    """
    from gristmill.cli.tables import Table, show
    from gristmill.snapshot import Snapshot
    from gristmill.snapshot.formats import count, iso, span, worker_name

    with Snapshot(settings.address, settings.namespace) as snapshot:
        found = snapshot.newest_tasks(limit=limit, state=state or "", function=function)
    if as_json:
        import dataclasses

        import orjson

        click.echo(orjson.dumps({"version": 1, **dataclasses.asdict(found)}, option=orjson.OPT_INDENT_2).decode())
        return exits.OK
    if not found.rows:
        older = "" if found.complete else "; older ones were not looked at"
        click.echo(f"none among the newest {count(found.changes_read)} changes{older}", err=True)
        return exits.OK
    table = Table("task", "function", "state", "worker", ">attempt", ">duration", "changed", "error")
    for row in found.rows:
        duration = span(row.duration_us / 1000) if row.duration_us else "-"
        table.add(
            row.task, row.function or "-", row.state, worker_name(row.worker) or "-", row.attempt, duration,
            iso(row.changed), row.error,
        )  # fmt: skip
    show([table])
    return exits.OK
