"""What workers did when: the intervals of finished attempts, as charts need them, kept for the longest window.

Long attempts are kept one by one. Short ones of the same kind that follow each other closely are kept as one, so that
a million of them cost no more than a few; and what they used of memory goes into seconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

KEPT_MS = 31 * 60_000


class Grain(NamedTuple):
    """How finely intervals are kept for the windows of a length."""

    window_ms: int
    """For windows up to this long."""
    long_ms: int
    """From here on an attempt is kept for itself."""
    near_ms: int
    """Shorter ones of a kind that are no further apart are kept as one."""


GRAINS = (Grain(10 * 60_000, 1000, 100), Grain(30 * 60_000, 6000, 600))
"""A pixel of the longer windows stands for six times as much."""
LONG_KEPT = 3000
"""Long ones of one worker."""
SHORT_KEPT = 1000
"""Of one worker and kind."""
MOST_KINDS = 30
"""Of one worker; the functions of what comes then are not told apart."""
MOST_WORKERS = 5000
OTHERS = "(others)"
SECOND_MS = 1000


class Kind(NamedTuple):
    """What looks alike in a chart."""

    state: str
    """success, failed or canceled; running only for what goes on."""
    function: str
    lane: str


class Span(NamedTuple):
    """One attempt, or several short ones that follow each other closely."""

    worker: str
    kind: Kind
    start: int
    """Redis's clock, ms."""
    end: int
    task: str
    """One of them."""
    attempts: int = 1
    busy_ms: float = 0.0
    """Their durations added up."""


class _Kept:
    """The intervals of one worker at one grain."""

    def __init__(self, grain: Grain) -> None:
        self.grain = grain
        self.long: deque[Span] = deque(maxlen=LONG_KEPT)
        self.short: dict[Kind, deque[Span]] = {}

    def add(self, span: Span) -> None:
        if span.end - span.start >= self.grain.long_ms:
            self.long.append(span)
            return
        known = self.short.get(span.kind)
        if known is None:
            if len(self.short) >= MOST_KINDS:
                span = span._replace(kind=span.kind._replace(function=OTHERS, lane=""))
            known = self.short.setdefault(span.kind, deque(maxlen=SHORT_KEPT))
        before = known[-1] if known else None
        if before is not None and span.start <= before.end + self.grain.near_ms and span.end >= before.start:
            # Another one takes its place: who reads meanwhile has one that does not change.
            known[-1] = Span(
                before.worker, before.kind, min(before.start, span.start), max(before.end, span.end), span.task,
                before.attempts + span.attempts, before.busy_ms + span.busy_ms,
            )  # fmt: skip
        else:
            known.append(span)

    def forget(self, before: int) -> None:
        for spans in (self.long, *self.short.values()):
            while spans and spans[0].end < before:
                spans.popleft()
        for kind in [kind for kind, spans in self.short.items() if not spans]:
            del self.short[kind]


class _Worker:
    def __init__(self) -> None:
        self.kept = [_Kept(grain) for grain in GRAINS]
        self.last = 0


class Spans:
    """Filled by the reader, read by pages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[str, _Worker] = {}
        self._newest = 0
        self._swept = 0
        self._lasting: dict[int, int] = {}
        """Second to bytes: what began to be used then, minus what ended."""
        self._passing: dict[int, float] = {}
        """Second to bytes: what was used within that second alone, by the share of it."""

    def add(self, span: Span, memory: int) -> None:
        """Add an attempt that has ended, and the peak of its memory in bytes."""
        with self._lock:
            if span.end > self._newest:
                self._newest = span.end
                if self._newest - self._swept > 10_000:
                    self._swept = self._newest
                    self._sweep()
            if span.end < self._newest - KEPT_MS:
                return
            self._add_memory(span, memory)
            worker = self._workers.get(span.worker)
            if worker is None:
                worker = self._workers[span.worker] = _Worker()
            worker.last = max(worker.last, span.end)
            for kept in worker.kept:
                kept.add(span)

    def _add_memory(self, span: Span, memory: int) -> None:
        if not memory:
            return
        first, last = span.start // SECOND_MS, span.end // SECOND_MS
        if last > first:
            self._lasting[first] = self._lasting.get(first, 0) + memory
            self._lasting[last] = self._lasting.get(last, 0) - memory
        else:
            share = max(1, span.end - span.start) / SECOND_MS
            self._passing[first] = self._passing.get(first, 0.0) + memory * share

    def _sweep(self) -> None:
        """Forget what is older than the longest window."""
        oldest = self._newest - KEPT_MS
        for name, worker in list(self._workers.items()):
            if worker.last < oldest:
                del self._workers[name]
                continue
            for kept in worker.kept:
                kept.forget(self._newest - min(KEPT_MS, kept.grain.window_ms + 60_000))
        while len(self._workers) > MOST_WORKERS:
            del self._workers[next(iter(self._workers))]
        second = oldest // SECOND_MS
        carried = sum(self._lasting.pop(at) for at in [at for at in self._lasting if at < second])
        if carried:
            self._lasting[second] = self._lasting.get(second, 0) + carried
        for at in [at for at in self._passing if at < second]:
            del self._passing[at]

    def workers(self, since: int) -> list[str]:
        """The workers of which something ended since then."""
        with self._lock:
            return [name for name, worker in self._workers.items() if worker.last >= since]

    def of(self, workers: Iterable[str], since: int, until: int) -> list[Span]:
        """What these workers did in a window, as finely as one of its length can show it."""
        at = next((at for at, grain in enumerate(GRAINS) if grain.window_ms >= until - since), len(GRAINS) - 1)
        found: list[Span] = []
        with self._lock:
            for name in workers:
                worker = self._workers.get(name)
                if worker is None:
                    continue
                kept = worker.kept[at]
                for spans in (kept.long, *kept.short.values()):
                    for span in reversed(spans):
                        if span.end < since:
                            break
                        found.append(span)
        return found

    def memory(self, since: int, until: int) -> list[tuple[int, float]]:
        """(second, bytes) of what finished attempts used, for each second of the window."""
        first, last = since // SECOND_MS, until // SECOND_MS
        with self._lock:
            used = sum(amount for at, amount in self._lasting.items() if at < first)
            found = []
            for at in range(first, last + 1):
                used += self._lasting.get(at, 0)
                found.append((at * SECOND_MS, max(0.0, used + self._passing.get(at, 0.0))))
        return found
