"""What tasks print, shown here: line by line, with the id of the task."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gristmill.client.callbacks import Callbacks

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000
"""While so many lines are not shown yet, more are left out."""
PATIENCE_SECONDS = 2.0
"""What comes early is held so long for what is missing before it: that may never come."""
MOST_KNOWN = 10_000
"""For so many attempts it is known which notice comes next, and so many given up are still shown when they come."""
MOST_MISSING = 1000
"""Of one gap."""
UNNUMBERED = -1

Attempt = tuple[str, int]
"""A task's id, and which of its attempts."""


class OutputLine(NamedTuple):
    """One line that a task has printed."""

    task_id: str
    stream: str
    """`out`, or `err` (what it logs too)."""
    text: str
    """Without the end of the line."""


class Held(NamedTuple):
    """Notices of one attempt that came before others were there."""

    since: float
    """Monotonic seconds."""
    notices: dict[int, list[OutputLine]]


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
        self._next: OrderedDict[Attempt, int] = OrderedDict()
        self._held: dict[Attempt, Held] = {}
        """Those that are held for longest first."""
        self._given_up: OrderedDict[tuple[Attempt, int], bool] = OrderedDict()
        """Notices that the ones behind them did not wait for any longer."""
        self.due = math.inf
        """When `show_overdue` is to be called (monotonic seconds)."""

    def take(self, message: dict[str, Any]) -> None:
        """The lines of one notice, and how many were left out behind them; in order of number (I/O thread)."""
        attempt, number = (message["task"], message.get("attempt", 0)), int(message.get("number", UNNUMBERED))
        expected, held = self._next.get(attempt, 0), self._held.get(attempt)
        if held is not None and number in held.notices:
            return  # whoever sent it did so again, not knowing that Redis had it
        if UNNUMBERED < number < expected and not self._given_up.pop((attempt, number), False):
            return
        lines = self._make_room(message)
        if number > expected:
            if held is None:
                held = self._held[attempt] = Held(time.monotonic(), {})
            held.notices[number] = lines
            self._set_due()
            return
        self._call(lines)
        if number == expected:
            self._go_on(attempt, number + 1)

    def show_overdue(self, now: float = math.inf) -> None:
        """What was held for long enough is not held any longer; at the end of the session nothing is (I/O thread)."""
        while self.due < now:
            attempt = next(iter(self._held))
            while held := self._held.get(attempt):
                first = min(held.notices)
                for missing in range(max(self._next.get(attempt, 0), first - MOST_MISSING), first):
                    _remember(self._given_up, (attempt, missing), True)
                self._go_on(attempt, first)

    def _go_on(self, attempt: Attempt, expected: int) -> None:
        """All before this number is on its way: so is now what was held for that."""
        held = self._held.pop(attempt, None)
        if held is not None:
            while expected in held.notices:
                self._call(held.notices.pop(expected))
                expected += 1
            if held.notices:
                self._held[attempt] = Held(time.monotonic(), held.notices)
            self._set_due()
        _remember(self._next, attempt, expected)

    def _set_due(self) -> None:
        self.due = next(iter(self._held.values())).since + PATIENCE_SECONDS if self._held else math.inf

    def _make_room(self, message: dict[str, Any]) -> list[OutputLine]:
        """The lines of a notice; none when too many are not shown yet."""
        lines = [OutputLine(message["task"], stream, text) for stream, text in message["lines"]]
        if message["dropped"]:
            lines.append(_left_out(message["task"], message["dropped"]))
        with self._lock:
            if self._waiting >= MOST_WAITING:
                self._dropped += len(lines)
                return []
            self._waiting += len(lines)
        return lines

    def _call(self, lines: list[OutputLine]) -> None:
        if lines:
            self._callbacks.call(lambda: self._show_all(lines[0].task_id, lines))

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


def _remember(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """Note it as the newest; the oldest may be forgotten."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > MOST_KNOWN:
        known.popitem(last=False)


def _left_out(task: str, lines: int) -> OutputLine:
    return OutputLine(task, "err", f"({lines:,} lines left out)")


def print_line(line: OutputLine) -> None:
    """Print it where it was printed there."""
    print(f"{line.task_id} | {line.text}", file=sys.stderr if line.stream == "err" else sys.stdout)
