"""How far a long piece of work has come: a moving bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 5.0
"""Where there is no terminal, a line at most so often, and one at the end of each stage."""


class Watcher(Protocol):
    """Is told of stages, each a number of equal steps."""

    def stage(self, title: str, steps: int) -> None:
        """A stage begins, or is about to."""

    def step(self, title: str) -> None:
        """One step of that stage is done."""


class Bars:
    """One bar a stage, on a terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("  {task.description:<24}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def stage(self, title: str, steps: int) -> None:
        self._tasks[title] = self._progress.add_task(title, total=steps)

    def step(self, title: str) -> None:
        self._progress.advance(self._tasks[title])


class Lines:
    """Plain lines, for a log file or a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._steps: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._printed = time.monotonic()

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def stage(self, title: str, steps: int) -> None:
        self._steps[title] = steps
        self._done[title] = 0

    def step(self, title: str) -> None:
        self._done[title] += 1
        done, steps = self._done[title], self._steps[title]
        now = time.monotonic()
        if done == steps or now - self._printed >= LINE_SECONDS:
            self._printed = now
            self._console.print(f"  {title}: {done:,} of {steps:,}", highlight=False, markup=False)


def watch(console: Console) -> AbstractContextManager[Watcher]:
    """What fits the console: bars on a terminal, lines elsewhere."""
    return Bars(console) if console.is_terminal else Lines(console)
