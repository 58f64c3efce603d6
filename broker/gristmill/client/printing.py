"""What tasks print, shown here: line by line, with the id of the task."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gristmill.client.callbacks import Callbacks

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000
"""While so many lines are not shown yet, more are left out."""


class OutputLine(NamedTuple):
    """One line that a task has printed."""

    task_id: str
    stream: str
    """`out`, or `err` (what it logs too)."""
    text: str
    """Without the end of the line."""


class Printing:
    """Shows the lines that come to one session, in the thread of its callbacks: it may be slow, or wait for tasks."""

    def __init__(self, show: Callable[[OutputLine], object], callbacks: Callbacks) -> None:
        self._show = show
        self._callbacks = callbacks
        self._lock = threading.Lock()
        self._waiting = 0
        """Lines that are not shown yet."""
        self._dropped = 0
        """Lines for which there was no room, since that was said last."""

    def take(self, message: dict[str, Any]) -> None:
        """The lines of one notice, and how many were left out behind them (I/O thread)."""
        lines = [OutputLine(message["task"], stream, text) for stream, text in message["lines"]]
        if message["dropped"]:
            lines.append(_left_out(message["task"], message["dropped"]))
        with self._lock:
            if self._waiting >= MOST_WAITING:
                self._dropped += len(lines)
                return
            self._waiting += len(lines)
        self._callbacks.call(lambda: self._show_all(message["task"], lines))

    def _show_all(self, task: str, lines: list[OutputLine]) -> None:
        try:
            for line in lines:
                self._show(line)
        except Exception:  # user code
            logger.exception("a line that task %s has printed could not be shown", task)
        with self._lock:
            self._waiting -= len(lines)
            dropped = 0
            if not self._waiting:
                dropped, self._dropped = self._dropped, 0
        if dropped:
            self._show(_left_out(task, dropped))


def _left_out(task: str, lines: int) -> OutputLine:
    return OutputLine(task, "err", f"({lines:,} lines left out)")


def print_line(line: OutputLine) -> None:
    """Print it where it was printed there."""
    print(f"{line.task_id} | {line.text}", file=sys.stderr if line.stream == "err" else sys.stdout)
