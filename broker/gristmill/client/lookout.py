"""What a client asks about its cluster, on a connection of its own: how much it can do, and why its tasks wait.

A task that nobody can run would wait in silence: for a capability that no worker offers, or for the client's version of
Python. So when the oldest task does not get on, the lanes of all are looked at, in a thread that ends with the look.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from gristmill.errors import GristmillError

if TYPE_CHECKING:
    from gristmill.client.session import Session

logger = logging.getLogger(__name__)

CHECK_SECONDS = 3.0
"""A task that was the oldest at one check and still is at the next makes the client look."""
LONGEST_CHECK_SECONDS = 60.0
"""While that goes on, checks become rarer, up to this."""
MOST_LANES = 50


class Lookout:
    """The looks of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.reasons: dict[str, str] = {}
        """By lane: why no worker takes its tasks."""
        self.next_check = time.monotonic() + CHECK_SECONDS
        self._pause = CHECK_SECONDS
        self._oldest = -1
        self._thread: threading.Thread | None = None

    def check(self, now: float) -> None:
        """See whether the oldest task does not get on, and if so, look why (I/O thread)."""
        try:
            oldest = next(iter(self._session.unfinished), -1)
        except RuntimeError:  # a caller has just added one
            return
        if oldest < 0 or oldest != self._oldest:
            self._oldest = oldest
            self._pause = CHECK_SECONDS
            self.reasons = {}
        elif not (self._thread and self._thread.is_alive()):
            self._pause = min(2 * self._pause, LONGEST_CHECK_SECONDS)
            self._thread = threading.Thread(target=self._look_safely, name="gristmill-lookout", daemon=True)
            self._thread.start()
        self.next_check = now + self._pause

    def join(self, timeout: float) -> None:
        """Wait until nobody looks."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def capacity(self) -> int:
        """How many tasks can execute at the same time. Raises ConnectionLostError."""
        from gristmill.snapshot.needs import read_capacity
        from gristmill.snapshot.reading import Reader, together

        reader = Reader(self._session.address, name=f"gristmill-look-{self._session.client_id}")
        try:
            (count,) = together(reader, read_capacity(self._session.keys))
        finally:
            reader.close()
        return int(count)

    def reason(self, lane: str | None) -> str:
        """Why tasks of this lane (the client's own without one) wait, if it is known; else empty."""
        return self.reasons.get(lane or self._session.outbox.lane, "")

    def _look_safely(self) -> None:
        try:
            self.look()
        except GristmillError:
            pass  # the I/O thread has more to say about a Redis that cannot be reached
        except Exception:
            logger.exception("looking for the reason why tasks wait failed")

    def look(self) -> None:
        """Find out which lanes of unfinished tasks no worker takes, and say what is new."""
        from gristmill.snapshot.needs import read_unserved
        from gristmill.snapshot.reading import Reader, together

        session = self._session
        waiting: dict[str, int] = {}
        for future in list(session.unfinished.values()):
            lane = (future._options or {}).get("lane") or session.outbox.lane
            waiting[lane] = waiting.get(lane, 0) + 1
        lanes = sorted(waiting)[:MOST_LANES]
        reader = Reader(session.address, name=f"gristmill-look-{session.client_id}")
        try:
            (found,) = together(reader, read_unserved(session.keys, lanes))
        finally:
            reader.close()
        for lane, reason in found.items():
            if self.reasons.get(lane) != reason:
                some = "a task waits" if waiting[lane] == 1 else f"{waiting[lane]:,} tasks wait"
                logger.warning("%s: %s", some, reason, extra={"client": session.client_id, "lane": lane})
        for lane in self.reasons.keys() - found.keys():
            logger.info("a worker takes the tasks that waited", extra={"client": session.client_id, "lane": lane})
        self.reasons = found
