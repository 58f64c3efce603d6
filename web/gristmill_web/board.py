"""What pages show: read at most once a tick however many look at it, and kept for when Redis is away."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gristmill.errors import ConnectionLostError, RedisRefusedError
from gristmill.snapshot import Snapshot

Read = TypeVar("Read")

KEPT = 64
"""How many readings are kept, of all pages and queries together."""
RETRY_SECONDS = 1.0
"""After a failure nobody asks Redis again for so long: everyone who looks would wait for the same time-out."""
GLANCE_SECONDS = 4.0
"""What is read behind the viewers' backs may be so old; nobody has looked for a while when it is older."""
PATIENCE_SECONDS = 1.0
"""Who finds another one asking for the same waits so long for the answer, and then takes what there is."""
NO_ANSWER = "Redis has not answered yet."


@dataclass(frozen=True)
class Look(Generic[Read]):
    """What one viewer gets."""

    value: Read | None
    """None when it could not be read even once."""
    problem: str
    """Why it is not of now; empty when it is."""


class Board:
    """Reads for viewers in any number of threads."""

    def __init__(self, snapshot: Snapshot, *, max_age_seconds: float) -> None:
        self.snapshot = snapshot
        self._max_age = max_age_seconds
        self._lock = threading.Lock()
        """Held for as long as it takes to look at what was read."""
        self._reading: dict[tuple[str, Hashable], threading.Lock] = {}
        """Each held by the one who asks Redis for that."""
        self._kept: OrderedDict[tuple[str, Hashable], tuple[float, Any]] = OrderedDict()
        self._problem = ""
        self._failed_at = float("-inf")

    def look(self, page: str, query: Hashable, read: Callable[[], Read]) -> Look[Read]:
        """What `read` answers, at most `max_age_seconds` old; or the last answer with the reason why there is no newer.

        `page` and `query` say what is read: for those who ask for the same, it is read once. A query that was never
        read while Redis is away gets what another query of the page got: better the wrong part than nothing.
        """
        key = (page, query)
        if not self._is_old(key):
            return self._show(key, "")
        with self._lock:
            reading = self._reading.setdefault(key, threading.Lock())
        if not reading.acquire(timeout=PATIENCE_SECONDS):
            return self._show(key, NO_ANSWER)
        try:
            # Whoever was reading meanwhile may have read just this, or failed.
            if self._is_old(key):
                self._read(key, read)
        finally:
            reading.release()
            with self._lock:
                self._reading.pop(key, None)
        return self._show(key, "")

    def glance(self, page: str, read: Callable[[], Read], *, max_age_seconds: float) -> Look[Read]:
        """As `look`, but nobody waits for what takes long to read: while it is read anew the last answer serves."""
        key = (page, "")
        with self._lock:
            kept = self._kept.get(key)
            age = time.monotonic() - kept[0] if kept else float("inf")
            old = age > max_age_seconds and time.monotonic() - self._failed_at > RETRY_SECONDS
            begin = kept is not None and old and key not in self._reading
            if begin:
                self._reading[key] = threading.Lock()
        if age > GLANCE_SECONDS:
            return self.look(page, "", read)
        if begin:
            threading.Thread(target=self._read_behind, args=(key, read), name=f"read-{page}", daemon=True).start()
        return self._show(key, "")

    def _read_behind(self, key: tuple[str, Hashable], read: Callable[[], Any]) -> None:
        try:
            self._read(key, read)
        finally:
            with self._lock:
                self._reading.pop(key, None)

    def ping(self) -> str:
        """Why Redis does not serve the namespace; empty when it does. One command."""
        try:
            self.snapshot.ping()
        except (ConnectionLostError, RedisRefusedError) as error:
            return str(error)
        return ""

    @property
    def is_asking(self) -> bool:
        """Whether somebody waits for Redis now."""
        with self._lock:
            return any(reading.locked() for reading in self._reading.values())

    def _is_old(self, key: tuple[str, Hashable]) -> bool:
        """Whether it is time to ask Redis."""
        now = time.monotonic()
        with self._lock:
            if self._problem:
                return now - self._failed_at > RETRY_SECONDS
            kept = self._kept.get(key)
            return kept is None or now - kept[0] > self._max_age

    def _show(self, key: tuple[str, Hashable], problem: str) -> Look[Any]:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                kept = next((self._kept[other] for other in reversed(self._kept) if other[0] == key[0]), None)
            return Look(kept[1] if kept else None, self._problem or problem)

    def _read(self, key: tuple[str, Hashable], read: Callable[[], Any]) -> None:
        now = time.monotonic()
        try:
            value = read()
        except (ConnectionLostError, RedisRefusedError) as error:
            with self._lock:
                self._problem = str(error)
                self._failed_at = time.monotonic()
            return
        with self._lock:
            self._problem = ""
            self._kept[key] = (now, value)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
