"""The thread that calls users' callbacks: whatever a callback waits for, the I/O thread goes on bringing outcomes.

It is started with the first callback of a session and ends with the session. One callback at a time, in the order in
which their futures were settled: those that came with one message are all settled before the first of them is called.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gristmill.client.future import Future

logger = logging.getLogger(__name__)


class Callbacks:
    """The callbacks of one session."""

    def __init__(self) -> None:
        self._settled: queue.SimpleQueue[Future | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def call(self, future: Future) -> None:
        """The callbacks of this future, which is settled, are due."""
        with self._lock:
            if self._stopping:
                late = True
            else:
                late = False
                self._settled.put(future)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="gristmill-callbacks", daemon=True)
                    self._thread.start()
        if late:  # the session is over: nothing waits for this thread any more
            _call(future)

    def stop(self) -> None:
        """The session is over: the thread ends when all that is due was called."""
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._settled.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread, unless it is the caller."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while (future := self._settled.get()) is not None:
            _call(future)
            del future  # it must not stay alive until the next comes


def _call(future: Future) -> None:
    try:
        future.run_callbacks()
    except BaseException:  # such as SystemExit: it must not end this thread
        logger.exception("a callback of %r failed", future)
