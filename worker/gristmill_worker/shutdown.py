"""How a worker is told to end: signals, its owner's end, or the scheduler."""

from __future__ import annotations

import signal
from collections.abc import Callable
from enum import Enum
from types import FrameType


class Wish(Enum):
    """What was asked for."""

    STAY = 0
    DRAIN = 1
    """Finish what executes, give back the rest, leave."""
    STOP = 2
    """Leave at once."""


class Shutdown:
    """The strongest wish so far. SIGTERM drains; a second one, or SIGINT, stops at once."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """`ring` wakes the main thread when the wish did not come by a signal."""
        self.wish = Wish.STAY
        self._ring = ring

    def install(self) -> None:
        """Take the signals. SIGCHLD only wakes the main thread."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGINT, self._on_interrupt)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def drain(self) -> None:
        """The scheduler, or a first SIGTERM."""
        if self.wish is Wish.STAY:
            self.wish = Wish.DRAIN
            self._ring()

    def stop(self) -> None:
        """The scheduler, the owner's end, SIGINT, or a second SIGTERM."""
        self.wish = Wish.STOP
        self._ring()

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        if self.wish is Wish.STAY:
            self.drain()
        else:
            self.stop()

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.stop()
