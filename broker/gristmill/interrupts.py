"""Ctrl-C, once: the first interrupt unwinds the program, later ones cannot stop it from tidying up."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TIDYING_SECONDS = 30.0
"""After this time another interrupt counts again: Python swallows one that is raised in a destructor or a callback of
a weak reference, and then nothing unwinds."""


@contextmanager
def one_interrupt() -> Iterator[None]:
    """Inside, the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt and the next ones are passed over.

    Whoever presses Ctrl-C twice would otherwise interrupt the tidying up, and leave processes and files behind.
    It stays so after an interrupt: what follows is the end of the program. Main thread only.
    """
    pressed: float | None = None

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        now = time.monotonic()
        if pressed is None or now - pressed > TIDYING_SECONDS:
            pressed = now
            raise KeyboardInterrupt

    # What is ignored stays so: `nohup` means it.
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before: dict[signal.Signals, Any] = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if pressed is None else signal.SIG_IGN)
