"""What tasks print, shown here: line by line, with the id of the task."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)


class OutputLine(NamedTuple):
    """One line that a task has printed."""

    task_id: str
    stream: str
    """`out`, or `err` (what it logs too)."""
    text: str
    """Without the end of the line."""


class Printing:
    """Shows the lines that come to one session."""

    def __init__(self, show: Callable[[OutputLine], object]) -> None:
        self._show = show

    def show(self, message: dict[str, Any]) -> None:
        """The lines of one notice, and how many were left out behind them."""
        lines = [OutputLine(message["task"], stream, text) for stream, text in message["lines"]]
        if message["dropped"]:
            lines.append(OutputLine(message["task"], "err", f"({message['dropped']:,} lines left out)"))
        try:
            for line in lines:
                self._show(line)
        except Exception:  # user code
            logger.exception("a line that task %s has printed could not be shown", message["task"])


def print_line(line: OutputLine) -> None:
    """Print it where it was printed there."""
    print(f"{line.task_id} | {line.text}", file=sys.stderr if line.stream == "err" else sys.stdout)
