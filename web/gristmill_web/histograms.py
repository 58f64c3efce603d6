"""Histograms for Prometheus: how long tasks waited and ran, counted from when this process began to look."""

from __future__ import annotations

import threading
from bisect import bisect_left

from gristmill_web.history.index import Ended

BUCKETS_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)


class Histogram:
    """Counts per bucket; may be shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BUCKETS_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        with self._lock:
            self._counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
            self._sum += seconds

    def read(self) -> tuple[list[tuple[str, int]], float, int]:
        """(upper bound, how many up to it) of each bucket, the sum, and how many there are."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        rows, so_far = [], 0
        for bound, count in zip((*map(str, BUCKETS_SECONDS), "+Inf"), counts, strict=True):
            so_far += count
            rows.append((bound, so_far))
        return rows, total, so_far


class Durations:
    """Waits and runs of the attempts that end while this process looks."""

    def __init__(self) -> None:
        self.waits = Histogram()
        self.runs = Histogram()

    def note(self, ended: Ended) -> None:
        """One attempt has ended."""
        if ended.wait_ms is not None:
            self.waits.observe(ended.wait_ms / 1000)
        if ended.duration_us is not None:
            self.runs.observe(ended.duration_us / 1e6)
