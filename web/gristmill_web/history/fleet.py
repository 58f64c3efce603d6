"""The workers as the reader has seen them: who was there when, what each does now, and their sums over time."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from gristmill.snapshot import Fleet, Worker

KEPT_MS = 30 * 60_000
"""How long samples and workers that have gone are remembered: the longest window of a chart."""
MOST_GONE = 2_000


class Sample(NamedTuple):
    """The fleet at one moment."""

    at: int
    workers: int
    cpu_percent: float
    rss_bytes: int


@dataclass
class Presence:
    """One worker, while it is there and for a while after."""

    first: int
    """When it was first seen, Redis's clock, ms."""
    last: int
    """When it was last seen."""
    figures: Worker
    gone: bool = False


@dataclass
class FleetHistory:
    """Filled by the reader, read by pages."""

    workers: dict[str, Presence] = field(default_factory=dict)
    samples: deque[Sample] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, fleet: Fleet) -> None:
        """Take in one reading; the same one twice changes nothing."""
        now, found = fleet.now, fleet.workers
        with self._lock:
            if self.samples and self.samples[-1].at >= now:
                return
            there = set()
            for worker in found:
                there.add(worker.worker)
                known = self.workers.get(worker.worker)
                if known is None:
                    self.workers[worker.worker] = Presence(now, now, worker)
                else:
                    known.last, known.figures, known.gone = now, worker, False
            for name, known in list(self.workers.items()):
                if name not in there:
                    known.gone = True
                    if now - known.last > KEPT_MS:
                        del self.workers[name]
            gone = [name for name, known in self.workers.items() if known.gone]
            for name in gone[: max(0, len(gone) - MOST_GONE)]:
                del self.workers[name]
            heard = [worker for worker in found if worker.state in ("live", "draining")]
            cpu, rss = sum(worker.cpu_percent for worker in heard), sum(worker.rss_bytes for worker in heard)
            self.samples.append(Sample(now, fleet.total, cpu, rss))
            while self.samples and now - self.samples[0].at > KEPT_MS:
                self.samples.popleft()

    def shown(self, now: int, gone_minutes: int) -> dict[str, Presence]:
        """The workers that are there, and those that have gone within so many minutes."""
        with self._lock:
            return {
                name: known
                for name, known in self.workers.items()
                if not known.gone or now - known.last <= gone_minutes * 60_000
            }

    def series(self, since: int) -> list[Sample]:
        """The samples since a moment, oldest first."""
        with self._lock:
            return [sample for sample in self.samples if sample.at >= since]
