"""`gristmill top`: workers, schedulers and tasks, full screen."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from gristmill.cli import epilog, exits
from gristmill.settings import Settings, options

if TYPE_CHECKING:
    from gristmill.cli.screen import Picture, View
    from gristmill.snapshot import Snapshot

CLIENTS_READ = 50


@click.command(
    epilog=epilog(
        "gristmill top",
        "gristmill top --every 0.5 --sort queued",
        note="Keys: a letter sorts by the column that shows it, once more turns the order; arrows and page keys move; "
        "q ends. Exit codes: 0 ended by q or Ctrl-C; 2 wrong usage; 3 Redis cannot be reached, or not for --timeout.",
    )
)
@options(Settings)
@click.option(
    "--every",
    type=click.FloatRange(0.2, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often it looks.",
)
@click.option(
    "--timeout", type=click.FloatRange(1, 3600), default=30.0, show_default=True, metavar="SECONDS",
    help="How long Redis may be away before it gives up.",
)  # fmt: skip
@click.option("--sort", default="cpu", show_default=True, metavar="COLUMN", help="The column to begin with.")
def command(settings: Settings, every: float, timeout: float, sort: str) -> int:
    """Watch workers, schedulers, tasks and clients, full screen, until q."""
    from gristmill.cli.screen import View
    from gristmill.snapshot import WORKER_SORTS, Snapshot

    if sort not in WORKER_SORTS:
        raise click.UsageError(f"--sort: expected one of {', '.join(WORKER_SORTS)}; got {sort!r}; choose one of them")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("expected a terminal; got a pipe or a file; use gristmill status --watch")
    view = View(sort=sort, descending=sort not in ("worker", "host"))
    with Snapshot(settings.address, settings.namespace) as snapshot, contextlib.suppress(KeyboardInterrupt):
        _watch(snapshot, view, every, timeout)
    return exits.OK


def _look(snapshot: Snapshot) -> Picture:
    from gristmill.cli.screen import Picture

    return Picture(snapshot.keys, snapshot.pulse(), snapshot.fleet(), snapshot.clients(per_page=CLIENTS_READ))


def _watch(snapshot: Snapshot, view: View, every: float, timeout: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from gristmill.cli.screen import pressed, screen
    from gristmill.errors import ConnectionLostError, RedisRefusedError

    console = Console()
    picture = _look(snapshot)  # a Redis that is away from the start is an error at once
    seen_at = time.monotonic()
    problem = ""
    with _keys() as read_key, Live(console=console, screen=True, auto_refresh=False) as live:
        next_look = time.monotonic() + every
        while True:
            live.update(screen(picture, view, console.size, problem), refresh=True)
            key = read_key(max(0.0, next_look - time.monotonic()))
            if key == "q":
                return
            if key:
                view = pressed(view, key, rows=len(picture.fleet.workers))
                continue
            try:
                picture, problem, seen_at = _look(snapshot), "", time.monotonic()
            except (ConnectionLostError, RedisRefusedError) as error:
                problem = str(error)
                if time.monotonic() - seen_at > timeout:
                    raise
            next_look = time.monotonic() + every


SEQUENCES = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[5~": "page up", b"\x1b[6~": "page down", b"\x1b[H": "home"}
"""What a terminal sends for keys that are no letters."""


class _Keyboard:
    """Keys as they are pressed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, timeout: float) -> str:
        """The key that is pressed within so many seconds; empty when none is."""
        if not select.select([self._descriptor], [], [], timeout)[0]:
            return ""
        data = os.read(self._descriptor, 16)
        if not data:
            return "q"  # the terminal has gone
        return SEQUENCES.get(data) or data[:1].decode("ascii", "ignore") or " "


@contextlib.contextmanager
def _keys() -> Iterator[_Keyboard]:
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield _Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
