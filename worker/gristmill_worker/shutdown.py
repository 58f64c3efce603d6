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
    """The strongest wish so far. The first SIGTERM or SIGINT drains; another of them, or SIGQUIT, stops at once."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """`ring` wakes the main thread when the wish did not come by a signal."""
        self.wish = Wish.STAY
        self._ring = ring

    def install(self) -> None:
        """Take the signals. SIGCHLD only wakes the main thread."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGINT, self._on_terminate)
        signal.signal(signal.SIGQUIT, self._on_quit)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def drain(self) -> None:
        """The scheduler, or the first signal."""
        if self.wish is Wish.STAY:
            self.wish = Wish.DRAIN
            self._ring()

    def stop(self) -> None:
        """The scheduler, the owner's end, SIGQUIT, or a second signal."""
        self.wish = Wish.STOP
        self._ring()

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        if self.wish is Wish.STAY:
            self.drain()
        else:
            self.stop()

    def _on_quit(self, number: int, frame: FrameType | None) -> None:
        self.stop()
