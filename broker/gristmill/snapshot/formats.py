"""How figures are written for people, on the page and in the terminal alike."""

from __future__ import annotations

import datetime as dt

from gristmill.protocol.states import State

STATE_WORDS = {
    "inactive": "Inactive",
    "running": "Running",
    "balance_canceling": "Balancing",
    "canceling": "Canceling",
    "success": "Success",
    "failed": "Failed",
    "failed_worker_died": "Worker died",
    "canceled": "Canceled",
    "canceled_not_found": "Not found",
    "unseen": "Ended unseen",
}
"""What stands under a count and beside a task; the state's own name and sentence are in its title."""


def count(value: float) -> str:
    """12,345"""
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """A number per second: 0.4, 12.5, 1,240."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def percent(value: float) -> str:
    """12 %"""
    return f"{value:,.0f} %"


def size(value: float) -> str:
    """Bytes by 1024: 512 B, 41 MiB, 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.1f} {unit}" if value < 10 and unit in ("MiB", "GiB") else f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def span(milliseconds: float) -> str:
    """A length of time in at most two units: 12 ms, 1.25 s, 45 s, 3 min 20 s, 2 h 5 min, 4 d."""
    if milliseconds < 1:
        return f"{milliseconds * 1000:.0f} µs"
    if milliseconds < 1000:
        return f"{milliseconds:.1f} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"
    if milliseconds < 10_000:
        return f"{milliseconds / 1000:.2f} s"
    seconds = round(milliseconds / 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d"


def ago(milliseconds: float) -> str:
    """How long ago, in whole seconds: now, 3 s ago."""
    if 1000 <= milliseconds < 60_000:
        return f"{int(milliseconds // 1000)} s ago"
    return f"{span(max(0, milliseconds) // 1000 * 1000)} ago" if milliseconds >= 1000 else "now"


def _moment(milliseconds: int) -> dt.datetime:
    try:
        return dt.datetime.fromtimestamp(milliseconds / 1000, dt.timezone.utc)
    except (OverflowError, OSError, ValueError):
        return dt.datetime.fromtimestamp(0, dt.timezone.utc)


def clock(milliseconds: int) -> str:
    """12:03:11, UTC."""
    return f"{_moment(milliseconds):%H:%M:%S}"


def iso(milliseconds: int) -> str:
    """2026-11-30T12:03:11Z"""
    return f"{_moment(milliseconds):%Y-%m-%dT%H:%M:%SZ}"


def iso_ms(milliseconds: int) -> str:
    """2026-11-30T12:03:11.250Z"""
    return f"{_moment(milliseconds):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def state_word(state: str) -> str:
    """The word for a state."""
    return STATE_WORDS.get(state, state)


def state_sentence(state: str) -> str:
    """The state's name and what it means."""
    if state == "unseen":
        return "unseen: It ended while nobody read the events: how, only its client knows."
    try:
        return f"{state}: {State(state).sentence}"
    except ValueError:
        return state


def worker_name(worker: str) -> str:
    """The short name of a worker id: its name, or host and pid."""
    parts = worker.split("|")
    if len(parts) != 4:
        return worker
    return parts[2] or f"{parts[0]}:{parts[1]}"
