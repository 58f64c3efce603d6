"""`gristmill task ID`: one task: its state, its story and who holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gristmill.cli import epilog, exits
from gristmill.errors import UnknownTaskError
from gristmill.settings import Settings, options

if TYPE_CHECKING:
    from gristmill.cli.tables import Table
    from gristmill.snapshot import TaskDetail

MOMENTS = ("submitted", "assigned")
"""Fields of the record that are times (Redis clock, ms)."""


@click.command(
    epilog=epilog(
        "gristmill task k3JxQm9aTz.0000042",
        "gristmill task k3JxQm9aTz.0000042 --json | jq -r .state",
        note="Exit codes: 0 shown; 2 wrong usage; 3 Redis cannot be reached; 6 nobody knows the task.",
    )
)
@options(Settings)
@click.argument("task", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(settings: Settings, task: str, as_json: bool) -> int:
    """Show one task: its record, why it waits, its story, and the redis-cli lines that show the same.

    The record of a finished task is deleted when its client has the outcome; its story stays among the newest events.
    """
    from gristmill.cli.tables import show
    from gristmill.snapshot import Snapshot, check_task_id

    try:
        check_task_id(task)
    except UnknownTaskError as error:
        raise click.UsageError(str(error)) from None
    with Snapshot(settings.address, settings.namespace) as snapshot:
        detail = snapshot.task(task)
    if as_json:
        import dataclasses

        import orjson

        click.echo(orjson.dumps({"version": 1, **dataclasses.asdict(detail)}, option=orjson.OPT_INDENT_2).decode())
    elif detail.known:
        show(pieces(detail))
    if not detail.known:
        click.echo(
            f"gristmill: nobody knows task {task}: it was never submitted, or it ended longer ago than the events kept",
            err=True,
        )
        return exits.NOT_FOUND
    return exits.OK


def pieces(detail: TaskDetail) -> list[str | Table]:
    """What is shown, from top to bottom."""
    from gristmill.cli.tables import Table
    from gristmill.logs import escape
    from gristmill.snapshot.formats import iso, size, span, state_sentence

    lines: list[str | Table] = [
        escape(f"{detail.state}: {detail.function or 'task'} {detail.task}"),
        state_sentence(detail.state).partition(": ")[2],
    ]
    if detail.waits:
        lines.append(escape(detail.waits))
    if detail.record:
        record = Table("field", "value")
        for name, value in detail.record.items():
            record.add(name, f"{value} ({iso(int(value))})" if name in MOMENTS and value.isdigit() else value)
        if detail.call is not None:
            record.add("call", f"{size(detail.call.size)}, pickled")
        if detail.dependents:
            record.add("dependents", f"{detail.dependents} tasks wait for this one")
        lines += ["", record]
    if detail.story:
        story = Table("at", "state", ">attempt", "worker", ">duration", ">cpu", ">peak memory", "error or reason")
        for change in detail.story:
            story.add(
                iso(change.at), change.state, change.attempt, change.worker or "-",
                span(change.duration_us / 1000) if change.duration_us else "-",
                span(change.cpu_us / 1000) if change.cpu_us else "-",
                size(change.memory_peak_bytes) if change.memory_peak_bytes else "-", change.error or change.why,
            )  # fmt: skip
        lines += ["", story]
        if not detail.story_complete:
            lines.append("(its beginning is older than the events that were read)")
    lines += ["", "The same with redis-cli:", *(f"  {escape(recipe)}" for recipe in detail.recipes)]
    return lines
