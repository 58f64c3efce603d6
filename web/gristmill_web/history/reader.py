"""The one reader of a page process: it tails `events` into the index, and looks at the fleet now and then.

    history = History(snapshot)
    history.start()           # the first view starts it too
    history.index.select(...)

It never costs the cluster much: it asks twice a second at most, and takes at most `SHARE` of a core however much
happens. Where it then falls behind what Redis keeps, the index has a gap, and says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from gristmill.errors import ConnectionLostError, RedisRefusedError
from gristmill.snapshot import Fleet, Happened, Snapshot
from gristmill_web.history.fleet import FleetHistory
from gristmill_web.history.index import Bounds, Ended, Index

logger = logging.getLogger(__name__)

PAUSE_SECONDS, IDLE_PAUSE_SECONDS = 0.4, 2.0
"""Between two questions, when nothing is left to read; the second while nobody looks at us."""
SHARE = 0.05
"""Of a core, that reading may take while it is behind; the first reading may take all."""
ENTRIES = 200
"""Asked for at a time; one holds 1 to 100 changes."""
RETRY_SECONDS = 1.0
FLEET_SECONDS = 2.0
"""How often the fleet is looked at while somebody looks at us."""
FLEET_IDLE_SECONDS = 10.0
LOOKED_SECONDS = 30.0
"""Who has looked within so long is still there."""
CHECKED = 200
"""Tasks of a gap whose records are looked at in one step."""
FIRST_READ_SECONDS = 2.0
"""How long the first view waits for what there is to read."""


class History:
    """Recent history: the index, the fleet, and the thread that fills them."""

    def __init__(
        self, snapshot: Snapshot, bounds: Bounds | None = None, look_at_fleet: Callable[[], Fleet | None] | None = None
    ) -> None:
        self.snapshot = snapshot
        self._look_at_fleet = look_at_fleet or snapshot.fleet
        self.index = Index(bounds or Bounds())
        self.fleet = FleetHistory()
        self.observers: list[Callable[[Ended], None]] = []
        """Told of every attempt that has ended since the first reading."""
        self.problem = "Redis has not been read yet."
        """Why the index is not of now; empty when it is."""
        self.behind = 0
        """Changes that have not been read yet."""
        self.now = 0
        """Redis's clock when it was last read, ms."""
        self._read_at = 0.0
        self._reads = True
        """Whether the last attempt to read succeeded: one line in the log for each outage."""
        self._after = self._failures_after = "0"
        self._caught_up = threading.Event()
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._looked_at = float("-inf")
        self._fleet_at = float("-inf")
        self._unsure: list[tuple[int, int]] = []
        """(time, id): tasks that have not changed since the time and come behind the id may have ended in a gap."""
        self._gaps = 0

    def start(self) -> None:
        """Start the reader if it does not run."""
        with self._lock:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="gristmill-history", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the reader; what it has read stays."""
        self._stopping.set()
        self._woken.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(10)

    def close(self) -> None:
        """End the reader, and forget everything."""
        self.stop()
        self.index.close()

    def look(self) -> History:
        """Said by everyone who looks: the reader runs, and what there was at its start has been read."""
        before, self._looked_at = self._looked_at, time.monotonic()
        if self._looked_at - before > LOOKED_SECONDS:
            self._woken.set()
        self.start()
        self._caught_up.wait(FIRST_READ_SECONDS)
        return self

    @property
    def clock(self) -> int:
        """Redis's clock now, ms, as far as it is known; it stands still while Redis is away."""
        if not self.now or self.problem:
            return self.now
        return self.now + int((time.monotonic() - self._read_at) * 1000)

    def catch_up(self) -> None:
        """Read all that there is now; for tests and measurements, when the reader does not run."""
        while self._step():
            pass

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic(), time.thread_time()
            try:
                more = self._step()
            except (ConnectionLostError, RedisRefusedError) as error:
                if self._reads:
                    logger.warning("the history cannot be read", extra={"reason": str(error)})
                self._reads, self.problem = False, str(error)
                self._caught_up.set()
                self._stopping.wait(RETRY_SECONDS)
                continue
            except Exception:
                logger.exception("a part of the history could not be read")
                self._stopping.wait(RETRY_SECONDS)
                continue
            if not more:
                self._caught_up.set()
                self._woken.wait(PAUSE_SECONDS if self._is_looked_at() else IDLE_PAUSE_SECONDS)
                if not self._stopping.is_set():
                    self._woken.clear()
            elif self._caught_up.is_set():
                self._stopping.wait((time.thread_time() - began[1]) / SHARE - (time.monotonic() - began[0]))

    def _step(self) -> bool:
        """Read what comes next; answers whether there is more."""
        happened = self.snapshot.happened(self._after, self._failures_after, most=ENTRIES)
        self._take(happened)
        now = time.monotonic()
        pause = FLEET_SECONDS if self._is_looked_at() else FLEET_IDLE_SECONDS
        if now - self._fleet_at >= pause:
            self._fleet_at = now
            fleet = self._look_at_fleet()
            if fleet is not None:
                self.fleet.take(fleet)
        self._check_unsure()
        self.now, self._read_at, self._reads, self.problem = happened.now, time.monotonic(), True, ""
        return happened.more

    def _is_looked_at(self) -> bool:
        return time.monotonic() - self._looked_at < LOOKED_SECONDS

    def _take(self, happened: Happened) -> None:
        index = self.index
        if happened.failures:
            index.add_failures(happened.failures)
            self._failures_after = happened.failures[-1].entry
        if happened.changes:
            ended = index.add(happened.changes)
            self._after = happened.changes[-1].entry
            if self._caught_up.is_set():
                for observe in self.observers:
                    for one in ended:
                        observe(one)
        elif happened.newest < index.number:
            index.reset(happened.now)
        self.behind = max(0, happened.newest - index.number)
        if index.gaps != self._gaps:
            self._gaps = index.gaps
            self._unsure.append((index.last_at, 0))

    def _check_unsure(self) -> None:
        """Ask Redis what has become of some of the tasks that may have ended in a gap."""
        if not self._unsure:
            return
        before, after = self._unsure[0]
        tasks = self.index.unsure(before, after, CHECKED)
        if not tasks:
            del self._unsure[0]
            return
        states = self.snapshot.states([task for _, task, _ in tasks])
        wrong = [(identity, task, states[task]) for identity, task, state in tasks if states[task] != state]
        if wrong:
            self.index.correct(wrong, before)
        self._unsure[0] = (before, tasks[-1][0])
