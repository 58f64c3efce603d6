"""Waiting for what the first items of a map say: it may save sending thousands alone."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from gristmill.client.future import RUNNING
from gristmill.errors import GristmillError

if TYPE_CHECKING:
    from gristmill.client.parts import Part
    from gristmill.client.session import Session

FIRST_ITEMS = 32
PROBE_SECONDS = 0.05
"""After so many items, and each time their number has doubled, news is awaited, but no longer than this."""
PATIENT_ITEMS = 1000
PATIENT_STEP = 50
"""When so many were sent, and they keep the cluster busy, news is awaited until it comes, and again with each step."""
ASKING_SECONDS = 5.0
"""How large the cluster is, is asked this often meanwhile."""


class Probing:
    """When one map waits, and how long.

    Args:
        patient: whether it may wait until there is news, and not just for a moment.
        deadline: when it waits no longer (monotonic seconds).
    """

    def __init__(self, session: Session, *, patient: bool, deadline: float | None) -> None:
        self.closed = False
        """Nothing is awaited any more."""
        self._session = session
        self._patient = patient
        self._deadline = deadline
        self._next = FIRST_ITEMS
        self._capacity = 0
        self._next_asking = 0.0

    def wait(self, parts: deque[Part], sent: int) -> None:
        """So many items were sent: wait until a part has ended that was not looked at, if it is time for that."""
        if sent < self._next:
            return
        patient = self._patient and sent >= PATIENT_ITEMS
        self._next = sent + PATIENT_STEP if patient else 2 * sent
        end = time.monotonic() + PROBE_SECONDS
        while not self.closed and not any(part.future._state is not RUNNING and not part.noted for part in parts):
            now = time.monotonic()
            if (not patient and now >= end) or (self._deadline is not None and now >= self._deadline):
                return
            if patient and self.capacity() * 2 > sent:
                self._next = 2 * self._capacity + 1
                return
            parts[0].future.await_end(PROBE_SECONDS)

    def capacity(self) -> int:
        """How many tasks the cluster can execute at once, as far as is known."""
        now = time.monotonic()
        if now > self._next_asking:
            self._next_asking = now + ASKING_SECONDS
            try:
                self._capacity = self._session.lookout.capacity()
            except GristmillError:
                pass  # whoever waits for the outcomes is told
        return self._capacity
