"""Ctrl-C, once: the first interrupt unwinds the program, later ones cannot stop it from tidying up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def one_interrupt() -> Iterator[None]:
    """Inside, the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt and the next ones are passed over.

    Whoever presses Ctrl-C twice would otherwise interrupt the tidying up, and leave processes and files behind.
    It stays so after an interrupt: what follows is the end of the program. Main thread only.
    """
    pressed = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if not pressed:
            pressed = True
            raise KeyboardInterrupt

    # What is ignored stays so: `nohup` means it.
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before: dict[signal.Signals, Any] = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if pressed else handler)
