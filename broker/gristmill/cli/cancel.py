"""`gristmill cancel ID...`: cancel tasks, and wait until they are."""

from __future__ import annotations

import contextlib
import getpass
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gristmill.cli import epilog, exits
from gristmill.errors import UnknownTaskError
from gristmill.orders import REASON_LENGTH, Orders
from gristmill.protocol.states import TERMINAL
from gristmill.settings import Settings, options

if TYPE_CHECKING:
    from gristmill.snapshot import Snapshot

CANCELED = ("canceled", "canceled_not_found")
ENDED = frozenset(state.value for state in TERMINAL)
LOOK_MS = 500
"""How long one wait for news may take."""
LOOKED_UP = 20
"""Of so many tasks without a record the history is read, to say how they ended."""


@click.command(
    epilog=epilog(
        "gristmill cancel k3JxQm9aTz.0000042",
        "gristmill cancel k3JxQm9aTz.0000042 k3JxQm9aTz.0000043 --reason 'wrong input'",
        "gristmill tasks --state running --json | jq -r '.rows[].task' | xargs gristmill cancel",
        note="Exit codes: 0 canceled, or ended before; 1 some go on; 2 wrong usage; 3 Redis cannot be reached; "
        "6 nobody knows some of them, and the others are canceled.",
    )
)
@options(Settings)
@click.argument("tasks", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", default="", metavar="TEXT", help="Why, for the record.")
@click.option(
    "--wait",
    type=click.FloatRange(0, 3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until they are canceled.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: task to state.")
def command(settings: Settings, tasks: Sequence[str], reason: str, wait: float, as_json: bool) -> int:
    """Cancel tasks, and wait until they are.

    A task that waits is canceled at once. One that executes is interrupted; if it does not end, its processor is
    killed. A task that finishes before the cancel reaches it keeps its outcome.
    """
    from gristmill.snapshot import Snapshot, check_task_id

    tasks = list(dict.fromkeys(tasks))
    for task in tasks:
        try:
            check_task_id(task)
        except UnknownTaskError as error:
            raise click.UsageError(str(error)) from None
    with Snapshot(settings.address, settings.namespace) as snapshot:
        states = cancel(snapshot, tasks, reason[:REASON_LENGTH], wait)
        nobody_schedules = not all(states[task] in ENDED or not states[task] for task in tasks) and not any(
            scheduler.live for scheduler in snapshot.schedulers()
        )
    if as_json:
        import orjson

        click.echo(orjson.dumps({"version": 1, "tasks": states}, option=orjson.OPT_INDENT_2).decode())
    else:
        for task in tasks:
            click.echo(f"{task}  {_sentence(states[task])}")
    if nobody_schedules:
        click.echo("gristmill: no scheduler is running: the cancel is applied when one starts", err=True)
    if any(state and state not in ENDED for state in states.values()):
        return exits.FAILED
    return exits.NOT_FOUND if not all(states.values()) else exits.OK


def cancel(snapshot: Snapshot, tasks: Sequence[str], reason: str, wait: float) -> dict[str, str]:
    """Ask the schedulers to cancel the tasks; return the state of each after at most `wait` seconds, "" for unknown."""
    entry = snapshot.last_change()
    states = snapshot.states(tasks)
    for task in [task for task in tasks if not states[task]][:LOOKED_UP]:
        # It has ended, or nobody ever knew it; a cancel would change nothing.
        ended = snapshot.task(task).state
        states[task] = ended if ended in ENDED else ""
    open_tasks = {task for task in tasks if states[task] and states[task] not in ENDED}
    if not open_tasks:
        return states
    Orders(snapshot.address, snapshot.keys).cancel(sorted(open_tasks), by=_person(), reason=reason)
    deadline = time.monotonic() + wait
    while open_tasks and (left := deadline - time.monotonic()) > 0:
        entry, changed = snapshot.changes_after(entry, int(min(LOOK_MS, left * 1000)))
        for task in open_tasks & changed.keys():
            states[task] = changed[task]
        open_tasks = {task for task in open_tasks if states[task] not in ENDED}
    return states


def _person() -> str:
    """Who types, for the audit."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        return f"{getpass.getuser()} at {socket.gethostname()}"
    return "somebody"


def _sentence(state: str) -> str:
    if state in CANCELED:
        return "canceled"
    if not state:
        return "unknown: it was never submitted, or it ended longer ago than the events kept"
    if state in ENDED:
        return f"{state}: it had ended before the cancel reached it"
    return f"{state}: the cancel is on its way"
