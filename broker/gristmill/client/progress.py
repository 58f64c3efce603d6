"""How far a map has come, for the person who waits: a bar in a terminal or notebook, else a line now and then."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

BAR_SECONDS = 0.1
LINE_SECONDS = 10.0
"""A bar moves, and a line comes, at most this often."""


class Progress:
    """Shown on standard error from the first item on. `advance` may be called from any thread.

    Args:
        name: what runs.
        total: how many items there are, or None when nobody knows.
        console: where to show it.
    """

    def __init__(self, name: str, total: int | None, console: Console | None = None) -> None:
        from rich.console import Console

        self.name = name
        self.total = total
        self.done = 0
        self._console = console or Console(stderr=True, highlight=False)
        self._begun = self._shown = time.monotonic()
        self._lock = threading.RLock()  # the garbage collector may close another's, or this, while it is shown
        self._closed = False
        self._bar: Any = None
        self._row: Any = None
        if _has_widgets() if self._console.is_jupyter else self._console.is_terminal:
            self._bar = _bar(self._console)
            self._row = self._bar.add_task(name, total=total)
            self._bar.start()

    def advance(self, items: int) -> None:
        """So many items more are done (fewer, when it is negative)."""
        with self._lock:
            self.done += items
            now = time.monotonic()
            if self._closed or now - self._shown < (LINE_SECONDS if self._bar is None else BAR_SECONDS):
                return
            self._shown = now
            self._show()

    def close(self) -> None:
        """Show the final state. Harmless when it was closed before."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._show()
            if self._bar is not None:
                self._bar.stop()

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._row, completed=self.done, total=self.total)
        else:
            print(self._line(), file=self._console.file or sys.stderr, flush=True)

    def _line(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        return f"{self.name}: {self.done:,}{of} items, {time.monotonic() - self._begun:.1f} s"


def _has_widgets() -> bool:
    """Whether a notebook can show something that moves."""
    try:
        return all(importlib.util.find_spec(name) for name in ("IPython", "ipywidgets"))
    except ValueError:  # one without a spec is there all the same
        return True


def _bar(console: Console) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
