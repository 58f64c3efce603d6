"""Waking the agent's main thread: one pipe for its own threads, its processors, and signals."""

from __future__ import annotations

import os
import select
import signal

AGENT = b"a"
"""The byte of the agent's own threads. Signals ring with their number."""
PROCESSOR = b"p"
"""The byte of a processor: there is something to watch."""


class Alarm:
    """Whoever writes a byte into `descriptor` ends the main thread's `wait`."""

    def __init__(self) -> None:
        self._read_end, self.descriptor = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self.descriptor, False)
        self._on_signals = False
        self._poll = select.poll()
        self._poll.register(self._read_end, select.POLLIN)

    def ring(self) -> None:
        """End the wait, or the next one."""
        try:
            os.write(self.descriptor, AGENT)
        except OSError:
            pass  # full: it will wake up; closed: nobody waits any more

    def ring_on_signals(self) -> None:
        """Signals that have a handler ring too. Only in the main thread."""
        self._on_signals = True
        signal.set_wakeup_fd(self.descriptor, warn_on_full_buffer=False)

    def wait(self, seconds: float) -> bytes:
        """Until somebody rings, at most so long; the bytes with which they rang."""
        if not self._poll.poll(max(0.0, seconds) * 1000):
            return b""
        try:
            return os.read(self._read_end, 65536)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Let go of the pipe."""
        if self._on_signals:
            signal.set_wakeup_fd(-1)
        os.close(self._read_end)
        os.close(self.descriptor)
