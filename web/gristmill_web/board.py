"""What the page shows: read at most once a tick however many look at it, and kept for when Redis is away."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass

from gristmill.errors import ConnectionLostError, RedisRefusedError
from gristmill.protocol.keys import ID_PATTERN
from gristmill.snapshot import SHOWN_STATES, WORKER_SORTS, Overview, Snapshot

WORKERS_A_PAGE = 50
TASKS_SHOWN = 25
RATE_SECONDS = 10.0
"""Rates are over so long, so that they do not jump with every batch."""
GONE_SECONDS = 600.0
"""How long a worker that has gone is shown: as long as Redis keeps its record."""
GONE_REMEMBERED = 1000
QUERIES_KEPT = 32
RETRY_SECONDS = 1.0
"""After a failure nobody asks Redis again for so long: everyone who looks would wait for the same time-out."""
PATIENCE_SECONDS = 1.0
"""Who finds another one asking Redis waits so long for the answer, and then takes what there is."""
NO_ANSWER = "Redis has not answered yet."
FUNCTION_LENGTH = 200


@dataclass(frozen=True)
class Query:
    """Which part one viewer looks at; it lies in the address of the page."""

    page: int = 1
    sort: str = "worker"
    descending: bool = False
    state: str = ""
    function: str = ""

    @classmethod
    def of(cls, arguments: dict[str, str]) -> Query:
        """From the arguments of an address: what makes no sense there counts as absent."""
        page, sort, state = (arguments.get(name, "") for name in ("page", "sort", "state"))
        return cls(
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
            sort=sort if sort in WORKER_SORTS else "worker",
            descending=arguments.get("order") == "down",
            state=state if state in SHOWN_STATES else "",
            function=arguments.get("function", "")[:FUNCTION_LENGTH],
        )

    def arguments(self, **changed: str | int) -> dict[str, str | int]:
        """The arguments of the address that shows the same with `changed`; defaults are left out."""
        values: dict[str, str | int] = {
            "page": self.page if self.page > 1 else "",
            "sort": self.sort if self.sort != "worker" else "",
            "order": "down" if self.descending else "",
            "state": self.state,
            "function": self.function,
            **changed,
        }
        return {name: value for name, value in values.items() if value != ""}


@dataclass(frozen=True)
class View:
    """What one viewer sees."""

    overview: Overview | None
    """None when Redis could not be read even once."""
    finished_per_s: float | None
    problem: str
    """Why the overview is not of now; empty when it is."""


class Board:
    """Reads overviews for viewers in any number of threads."""

    def __init__(self, snapshot: Snapshot, *, max_age_seconds: float) -> None:
        self.snapshot = snapshot
        self._max_age = max_age_seconds
        self._reading = threading.Lock()
        """Held by the one who asks Redis."""
        self._lock = threading.Lock()
        """Held for as long as it takes to look at what was read."""
        self._kept: OrderedDict[Query, tuple[float, Overview]] = OrderedDict()
        self._finished: deque[tuple[float, int]] = deque(maxlen=64)
        self._met: dict[str, float] = {}
        self._problem = ""
        self._failed_at = float("-inf")

    def view(self, query: Query) -> View:
        """The overview of now, or the last one with the reason why there is no newer."""
        if self._is_old(query):
            if self._reading.acquire(timeout=PATIENCE_SECONDS):
                try:
                    # Whoever was reading meanwhile may have read just this, or failed.
                    if self._is_old(query):
                        self._read(query)
                finally:
                    self._reading.release()
            else:
                return self._show(query, NO_ANSWER)
        return self._show(query, "")

    def _is_old(self, query: Query) -> bool:
        """Whether it is time to ask Redis."""
        now = time.monotonic()
        with self._lock:
            if self._problem:
                return now - self._failed_at > RETRY_SECONDS
            kept = self._kept.get(query)
            return kept is None or now - kept[0] > self._max_age

    def _show(self, query: Query, problem: str) -> View:
        with self._lock:
            kept = self._kept.get(query)
            if kept is None and self._kept:
                # This part was never read; another one still has the counts and the workers as they were.
                kept = next(reversed(self._kept.values()))
            return View(kept[1] if kept else None, self._rate(), self._problem or problem)

    def _read(self, query: Query) -> None:
        now = time.monotonic()
        try:
            overview = self.snapshot.overview(
                page=query.page,
                per_page=WORKERS_A_PAGE,
                sort=query.sort,
                descending=query.descending,
                also=[worker for worker, at in self._met.items() if now - at < GONE_SECONDS],
                tasks=TASKS_SHOWN,
                state=query.state,
                function=query.function,
            )
        except (ConnectionLostError, RedisRefusedError) as error:
            with self._lock:
                self._problem = str(error)
                self._failed_at = time.monotonic()
            return
        self._remember(overview, now)
        with self._lock:
            self._problem = ""
            self._finished.append((now, overview.counts.finished))
            self._kept[query] = (now, overview)
            self._kept.move_to_end(query)
            while len(self._kept) > QUERIES_KEPT:
                self._kept.popitem(last=False)

    def _remember(self, overview: Overview, now: float) -> None:
        """Which workers were met, so that those who go can still be shown for a while."""
        for worker in overview.workers.ids[:GONE_REMEMBERED]:
            if ID_PATTERN.match(worker):
                self._met[worker] = now
        for worker in [worker for worker, at in self._met.items() if now - at > GONE_SECONDS]:
            del self._met[worker]
        while len(self._met) > 2 * GONE_REMEMBERED:
            del self._met[next(iter(self._met))]

    def _rate(self) -> float | None:
        """Tasks finished per second of late; None while it is not known."""
        if len(self._finished) < 2:
            return None
        last_at, last = self._finished[-1]
        first_at, first = next(
            (sample for sample in self._finished if last_at - sample[0] <= RATE_SECONDS), self._finished[-1]
        )
        if last < first or last_at - first_at < 0.2:
            return None  # another Redis, or not enough time between the two
        return (last - first) / (last_at - first_at)
