"""Interrupting the task that executes: SIGINT from the agent, bound to one START of the board.

The agent writes the START that it means, then sends the signal. A signal that comes late, or from anybody else,
meets another START, or none, and does nothing: no interrupt ever hits the next task or the processor's own code.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from gristmill_worker.board import CANCEL, INTERRUPT, REASON, ProcessorBoard


class TaskCancelled(BaseException):
    """The task was cancelled. Not an `Exception`, so that `except Exception` does not swallow it."""


class TaskTimedOut(BaseException):
    """The task has run as long as it may. Not an `Exception`, so that `except Exception` does not swallow it."""


def _nothing() -> None:
    """Nobody wants to know."""


class Interrupts:
    """The processor's side: which START may be interrupted now."""

    def __init__(self, board: ProcessorBoard) -> None:
        self._words = board.words
        self.running = 0
        """The START whose code runs now; 0 outside user code."""
        self.below: list[int] = []
        """The STARTs of tasks that wait while `running` runs on their stack; they may be interrupted as well."""
        self.delivered = 0
        """The START that was interrupted last."""
        self._reason = 0
        self.note: Callable[[], None] = _nothing
        """Told of every interrupt that is raised."""
        self.install()

    def install(self) -> None:
        """Take SIGINT; again after a task that took it for itself."""
        if signal.getsignal(signal.SIGINT) != self._on_signal:
            signal.signal(signal.SIGINT, self._on_signal)

    def enter(self, start: int) -> None:
        """User code begins: from here on an interrupt is raised, one that has come already at once."""
        self.running = start
        if self._words[INTERRUPT] == start or self.below:
            self._raise_what_came(start)

    def was_cancelled(self, start: int) -> bool:
        """Whether this START was interrupted because its task is cancelled."""
        return self.delivered == start and self._reason == CANCEL

    def was_timed_out(self, start: int) -> bool:
        """Whether this START was interrupted because its time is over."""
        return self.delivered == start and self._reason != CANCEL

    @property
    def unwinds(self) -> bool:
        """Whether a task below was interrupted: what lies on it has to end first."""
        return self.delivered != 0 and self.delivered in self.below

    def resume(self, start: int) -> None:
        """What lay on this START has ended, and its code goes on; an interrupt that has come meanwhile is raised.

        So is one of a task further below: this one, too, has to end first.
        """
        self.running = start
        if start:
            self._raise_what_came(start)

    def _raise_what_came(self, start: int) -> None:
        meant = self._words[INTERRUPT]
        if meant == start or meant in self.below:
            self._raise(meant)
        if self.delivered == start or self.unwinds:
            self._raise(self.delivered)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        start = self.running
        meant = self._words[INTERRUPT]
        if start and (meant == start or meant in self.below):
            self._raise(meant)

    def _raise(self, start: int) -> NoReturn:
        self.running = 0
        if self.delivered != start:
            self.delivered = start
            self._reason = self._words[REASON]
        self.note()
        raise TaskCancelled if self._reason == CANCEL else TaskTimedOut
