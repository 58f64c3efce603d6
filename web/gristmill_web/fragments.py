"""Fragments as they were rendered a moment ago: of many who look at the same, one has it rendered."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

KEPT = 64
"""How many are kept, of all pages and viewers together."""


@dataclass(frozen=True)
class Fragment:
    """What one poll is answered."""

    html: str
    now: int
    """Time of its figures by Redis's clock, ms."""
    tag: str
    """Digest of `html`."""

    @classmethod
    def of(cls, html: str, now: int) -> Fragment:
        """With its digest."""
        return cls(html, now, hashlib.blake2b(html.encode(), digest_size=9).hexdigest())


class Fragments:
    """Shared by viewers in any number of threads."""

    def __init__(self, max_age_seconds: float) -> None:
        self._max_age = max_age_seconds
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[float, Fragment]] = OrderedDict()

    def look(self, key: Hashable, render: Callable[[], Fragment]) -> Fragment:
        """What `render` makes, or has made for the same `key` of late: two may render at once, and neither waits."""
        now = time.monotonic()
        with self._lock:
            at, fragment = self._kept.get(key, (float("-inf"), None))
        if fragment is not None and now - at <= self._max_age:
            return fragment
        fragment = render()
        with self._lock:
            self._kept[key] = (now, fragment)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return fragment
