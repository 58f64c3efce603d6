"""The overview: counts, alerts, workers, schedulers and the newest tasks."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

from flask import current_app

from gristmill.protocol.keys import ID_PATTERN
from gristmill.snapshot import SHOWN_STATES, WORKER_SORTS, Overview, Snapshot
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.queries import Query

NOW_STATES = SHOWN_STATES[:4]
ENDED_STATES = SHOWN_STATES[4:]
WORKERS_A_PAGE = 50
TASKS_SHOWN = 25
RATE_SECONDS = 10.0
"""Rates are over so long, so that they do not jump with every batch."""
GONE_SECONDS = 600.0
"""How long a worker that has gone is remembered: as long as Redis keeps its record."""
GONE_REMEMBERED = 1000


@dataclass(frozen=True)
class Seen:
    """One reading, with what only those know who have read before."""

    overview: Overview
    finished_per_s: float | None
    """None while it is not known."""


class Memory:
    """What one reading tells the next: who was there, and how much had finished."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finished: deque[tuple[float, int]] = deque(maxlen=64)
        self._met: dict[str, float] = {}

    def met(self, minutes: int) -> list[str]:
        """Workers that were there within the last minutes."""
        now = time.monotonic()
        with self._lock:
            return [worker for worker, at in self._met.items() if now - at < minutes * 60]

    def remember(self, overview: Overview) -> Seen:
        """Keep what the next reading needs."""
        now = time.monotonic()
        with self._lock:
            self._finished.append((now, overview.counts.finished))
            for worker in overview.workers.ids[:GONE_REMEMBERED]:
                if ID_PATTERN.match(worker):
                    self._met.pop(worker, None)
                    self._met[worker] = now
            for worker in [worker for worker, at in self._met.items() if now - at > GONE_SECONDS]:
                del self._met[worker]
            while len(self._met) > 2 * GONE_REMEMBERED:
                del self._met[next(iter(self._met))]
            return Seen(overview, self._rate())

    def _rate(self) -> float | None:
        """Tasks finished per second of late."""
        last_at, last = self._finished[-1]
        first_at, first = next(
            (sample for sample in self._finished if last_at - sample[0] <= RATE_SECONDS), self._finished[-1]
        )
        if last < first or last_at - first_at < 0.2:
            return None  # another Redis, or not enough time between the two
        return (last - first) / (last_at - first_at)


def show(request: Request) -> Shown:
    """The overview of now, or the last one with the reason why there is no newer."""
    query = Query.of(
        "overview", request.arguments, sorts=WORKER_SORTS, filters={"state": SHOWN_STATES, "function": None}
    )
    gone = request.preferences.gone
    memory: Memory = current_app.extensions["gristmill_memory"]
    look = request.board.look("overview", (query, gone), lambda: _read(request.snapshot, query, gone, memory))
    seen = look.value
    return Shown(
        values={
            "seen": seen.overview if seen else None,
            "finished_per_s": seen.finished_per_s if seen else None,
            "now_states": NOW_STATES,
            "ended_states": ENDED_STATES,
        },
        plain={
            "finished_per_s": seen.finished_per_s if seen else None,
            "overview": seen.overview.plain() if seen else None,
        },
        query=query,
        now=seen.overview.now if seen else 0,
        problem=look.problem,
        news=_news(seen.overview if seen else None, look.problem),
    )


def _read(snapshot: Snapshot, query: Query, gone: int, memory: Memory) -> Seen:
    overview = snapshot.overview(
        page=query.page,
        per_page=WORKERS_A_PAGE,
        sort=query.sort,
        descending=query.descending,
        also=memory.met(gone),
        tasks=TASKS_SHOWN,
        state=query["state"],
        function=query["function"],
    )
    return memory.remember(overview)


def _news(overview: Overview | None, problem: str) -> str:
    """What the tab's title says: that something is wrong, or how much runs."""
    if problem:
        return "Redis is away"
    if overview is None:
        return ""
    errors = sum(alert.level == "error" for alert in overview.alerts)
    if errors:
        return "1 error" if errors == 1 else f"{errors} errors"
    return f"{overview.counts.states['running']:,} running"


PAGE = Page("overview", "/", "Overview", show)
