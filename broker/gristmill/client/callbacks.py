"""The thread that calls users' callbacks: whatever a callback waits for, the I/O thread goes on bringing outcomes.

Whatever else takes longer than the I/O thread may be held up is done here too.

It is started with the first callback of a session and ends with the session. One callback at a time, in the order in
which their futures were settled: those that came with one message are all settled before the first of them is called.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Callbacks:
    """The callbacks of one session."""

    def __init__(self) -> None:
        self._due: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def call(self, due: Callable[[], object]) -> None:
        """Call this, behind what is due already."""
        with self._lock:
            if self._stopping:
                late = True
            else:
                late = False
                self._due.put(due)
                if self._thread is None:
                    self._start()
        if late:  # the session is over: nothing waits for this thread any more
            _call(due)

    def stop(self) -> None:
        """The session is over: the thread ends when all that is due was called."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            self._due.put(None)
            started = self._thread is not None
        if not started:  # for want of threads, if anything is due
            self._run()

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread, unless it is the caller."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="gristmill-callbacks", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            logger.exception("callbacks have to wait: there can be no more threads; the next one tries again")
        else:
            self._thread = thread

    def _run(self) -> None:
        while (due := self._due.get()) is not None:
            _call(due)
            del due  # what it holds must not stay alive until the next comes


def _call(due: Callable[[], object]) -> None:
    try:
        due()
    except BaseException:  # such as SystemExit: it must not end this thread
        logger.exception("%r failed", due)
