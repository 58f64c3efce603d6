"""What `gristmill top` shows: pure, from what was read, the view and the size of the terminal."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gristmill import logs
from gristmill.protocol.keys import Keys
from gristmill.snapshot import Client, Fleet, Overview, Pulse, Scheduler, Worker, overview_of
from gristmill.snapshot.formats import count, percent, rate, size, span

SMALLEST = (60, 16)
CLIENTS_WIDTH = 30
NAME_LENGTH = 20
SCHEDULERS_SHOWN = 3
KINDS_SHOWN = 8

SORT_KEYS = {
    "g": "host", "n": "worker", "t": "task", "C": "agent_cpu", "M": "agent_memory", "c": "cpu", "m": "memory",
    "F": "memory_free", "f": "free", "w": "sent", "d": "queued", "s": "suspended", "l": "lag", "i": "itl",
}  # fmt: skip
"""Key to column."""


@dataclass(frozen=True)
class Picture:
    """What was read together."""

    keys: Keys
    pulse: Pulse
    fleet: Fleet
    clients: tuple[Client, ...]


@dataclass(frozen=True)
class View:
    """How one looks at it."""

    sort: str = "cpu"
    descending: bool = True
    top: int = 0
    """The first worker shown."""


class Column(NamedTuple):
    """One column of the workers."""

    key: str
    """The key that sorts by it; empty when none does."""
    head: str
    width: int
    """The least width of the terminal in which it is shown."""
    numeric: bool
    cell: Any


COLUMNS = (
    Column("n", "worker", 0, False, lambda w, now: cut(w.name or w.worker)),
    Column("g", "host", 110, False, lambda w, now: cut(f"{w.host}:{w.pid}")),
    Column("t", "task", 90, False, lambda w, now: cut(w.executing[0].function) if w.executing else "-"),
    Column("", "for", 90, True, lambda w, now: span(w.executing[0].running_ms) if w.executing else "-"),
    Column("C", "agt_cpu", 80, True, lambda w, now: percent(w.agent_cpu_percent)),
    Column("M", "agt_rss", 100, True, lambda w, now: size(w.agent_rss_bytes)),
    Column("c", "cpu", 0, True, lambda w, now: percent(w.processors_cpu_percent)),
    Column("m", "rss", 0, True, lambda w, now: size(w.processors_rss_bytes)),
    Column("F", "os_free", 120, True, lambda w, now: size(w.host_memory_free_bytes)),
    Column("f", "free", 0, True, lambda w, now: count(w.free)),
    Column("w", "sent", 0, True, lambda w, now: count(w.outstanding)),
    Column("d", "queued", 0, True, lambda w, now: count(w.queued)),
    Column("s", "suspended", 100, True, lambda w, now: count(w.suspended)),
    Column("l", "lag", 70, True, lambda w, now: lag(w, now)),
    Column("i", "ITL", 70, True, lambda w, now: w.itl),
)


def cut(text: str) -> str:
    """A name as long as its column, with nothing in it that the terminal would obey."""
    text = logs.escape(text)
    return text if len(text) <= NAME_LENGTH else text[: NAME_LENGTH - 1] + "…"


def lag(worker: Worker, now: int) -> str:
    """Round trip to Redis, after how long ago the worker was heard when that is long."""
    silent = now - worker.seen
    return f"({span(silent // 1000 * 1000)}) {span(worker.latency_ms)}" if silent > 5000 else span(worker.latency_ms)


def pressed(view: View, key: str, *, rows: int) -> View:
    """The view after a key. Pure."""
    if key in SORT_KEYS:
        column = SORT_KEYS[key]
        falling = column not in ("worker", "host", "task")
        return View(column, not view.descending if view.sort == column else falling)
    steps = {"up": -1, "down": 1, "k": -1, "j": 1, "page up": -20, "page down": 20, "home": -rows}
    return replace(view, top=min(max(0, view.top + steps.get(key, 0)), max(0, rows - 1)))


def screen(picture: Picture, view: View, terminal: ConsoleDimensions, problem: str = "") -> RenderableType:
    """Everything, as large as the terminal."""
    width, height = terminal
    if width < SMALLEST[0] or height < SMALLEST[1]:
        wanted = f"{SMALLEST[0]} by {SMALLEST[1]}"
        return Text(f"expected a terminal of at least {wanted}; got {width} by {height}; enlarge it")
    seen = overview_of(
        picture.keys, picture.pulse, picture.fleet, per_page=10**6, sort=view.sort, descending=view.descending
    )
    console = Console(width=width, height=height, file=io.StringIO())
    lines: list[RenderableType] = []
    head = _head(seen, console, height)
    taken = len(console.render_lines(head)) if head else 0
    if head:
        lines.append(head)
    if problem:
        lines.append(Text(f"Redis is away; the figures are old: {problem}"[:width], style="bold red", no_wrap=True))
    lines += [_alert(seen, width), _shortcuts(width), _total(seen)]
    room = max(1, height - taken - len(lines) - 2)
    table = _workers(seen, view, width, room)
    if width >= 130 and picture.clients:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(table, _clients(picture.clients, room))
        lines.append(grid)
    else:
        lines.append(table)
    return Group(*lines)


def _head(seen: Overview, console: Console, height: int) -> RenderableType | None:
    """The panels that have room side by side, those that matter most first; none where workers had none left."""
    if height < 24:
        return None
    shown: list[Panel] = []
    left = console.width
    for panel in (_schedulers(seen), _tasks(seen), _redis(seen), _requests(seen)):
        needed = console.measure(panel).maximum + 1
        if needed <= left:
            shown.append(panel)
            left -= needed
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(*shown)
    return grid


def _panel(title: str, table: Table) -> Panel:
    return Panel(table, title=title, title_align="left", padding=(0, 1), expand=False)


def _grid() -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    return table


def _schedulers(seen: Overview) -> Panel:
    table = Table.grid(padding=(0, 1))
    table.add_row(*(Text(head, style="dim") for head in ("", "cpu", "rss", "free", "lag", "req/s")))
    for one in seen.schedulers[:SCHEDULERS_SHOWN]:
        table.add_row(*_scheduler(one), style="" if one.live else "dim")
    if not seen.schedulers:
        table.add_row("none is heard")
    elif len(seen.schedulers) > SCHEDULERS_SHOWN:
        table.add_row(f"and {len(seen.schedulers) - SCHEDULERS_SHOWN} more")
    return _panel("schedulers", table)


def _scheduler(one: Scheduler) -> tuple[str, ...]:
    return (
        escape(cut(one.name or one.scheduler)), percent(one.cpu_percent), size(one.rss_bytes),
        size(one.host_memory_free_bytes), span(one.loop_lag_ms), rate(one.requests_per_s),
    )  # fmt: skip


def _tasks(seen: Overview) -> Panel:
    table = _grid()
    for state, tasks in seen.counts.states.items():
        table.add_row(state, count(tasks), style="bold" if tasks else "dim")
    return _panel("tasks", table)


def _requests(seen: Overview) -> Panel:
    table = _grid()
    kinds = sorted(seen.counts.requests.items(), key=lambda item: -item[1])[:KINDS_SHOWN]
    for kind, times in kinds:
        table.add_row(kind, count(times), style="" if times else "dim")
    return _panel("requests applied", table)


def _redis(seen: Overview) -> Panel:
    table = _grid()
    redis = seen.redis
    table.add_row("server", f"{redis.server} {redis.version}")
    if redis.used_memory_bytes is not None:
        table.add_row("memory", size(redis.used_memory_bytes))
    table.add_row("requests waiting", count(sum(seen.backlog.values())))
    table.add_row("retries due later", count(seen.delayed))
    table.add_row("quarantined", count(seen.quarantined))
    table.add_row("clients", count(seen.clients))
    oldest = span(max(0, seen.now - seen.oldest_waiting)) if seen.oldest_waiting else "none"
    table.add_row("oldest waiting", oldest)
    table.add_row("intake", "open" if seen.intake.open else "closed")
    table.add_row("dispatch", "paused" if seen.paused else "running")
    return _panel("redis", table)


def _alert(seen: Overview, width: int) -> Text:
    if not seen.alerts:
        return Text("all is well", style="green")
    first = seen.alerts[0]
    more = f" (and {len(seen.alerts) - 1} more)" if len(seen.alerts) > 1 else ""
    text = logs.escape(f"{first.level}: {first.text} {first.remedy}{more}")
    return Text(text[:width], style="bold red" if first.level == "error" else "yellow", no_wrap=True)


def _shortcuts(width: int) -> Text:
    names = {column.key: column.head for column in COLUMNS if column.key}
    text = "sort: " + "  ".join(f"{key} {names[key]}" for key in SORT_KEYS if key in names)
    return Text(f"{text}   q quit"[:width], style="dim", no_wrap=True)


def _total(seen: Overview) -> Text:
    hosts = len({worker.host for worker in seen.workers.rows})
    stale = f", {count(seen.workers.stale)} stale" if seen.workers.stale else ""
    return Text(f"{count(seen.workers.total)} workers on {count(hosts)} machines{stale}", style="bold")


def _workers(seen: Overview, view: View, width: int, room: int) -> RenderableType:
    if not seen.workers.rows:
        return Text("no worker is there; start one: gristmill worker --redis ADDRESS")
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="reverse", pad_edge=False)
    shown = [column for column in COLUMNS if width >= column.width]
    for column in shown:
        name = SORT_KEYS.get(column.key)
        arrow = ("↓" if view.descending else "↑") if name == view.sort else ""
        table.add_column(f"{column.head}{arrow}", justify="right" if column.numeric else "left", no_wrap=True)
    for worker in seen.workers.rows[view.top : view.top + room]:
        style = {"stale": "yellow", "draining": "dim", "paused": "dim"}.get(worker.state, "")
        table.add_row(*(escape(column.cell(worker, seen.now)) for column in shown), style=style)
    return table


def _clients(clients: tuple[Client, ...], room: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="reverse", pad_edge=False)
    table.add_column("client", no_wrap=True)
    table.add_column("tasks", justify="right", no_wrap=True)
    for client in sorted(clients, key=lambda one: -one.unfinished)[:room]:
        table.add_row(escape(cut(client.name or client.client)), count(client.unfinished))
    return table
