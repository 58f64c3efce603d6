"""What one reading tells the next: who was there, and how much had ended."""

from __future__ import annotations

import threading
import time
from collections import deque

from gristmill.protocol.states import TERMINAL
from gristmill.snapshot import Fleet, Pulse, Snapshot, Worker
from gristmill_web.board import Board, Look

FLEET_SECONDS = 2.0
"""Workers beat every two seconds: more often there is nothing new."""
RATE_SECONDS = 10.0
"""Rates are over so long, so that they do not jump with every batch."""
GONE_SECONDS = 300.0
"""How long a worker that has gone is looked for; the longest that a viewer may choose."""
REMEMBERED = 2000


class Memory:
    """Shared by all who look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: deque[tuple[float, dict[str, int]]] = deque(maxlen=64)
        self._met: dict[str, float] = {}

    def fleet(self, board: Board) -> Look[Fleet]:
        """The fleet, read anew when it is old, with the workers that have gone of late."""
        return board.glance("fleet", lambda: self._read_fleet(board.snapshot), max_age_seconds=FLEET_SECONDS)

    def _read_fleet(self, snapshot: Snapshot) -> Fleet:
        now = time.monotonic()
        with self._lock:
            self._met = {worker: at for worker, at in self._met.items() if now - at < GONE_SECONDS}
            met = list(self._met)
        fleet = snapshot.fleet(also=met)
        with self._lock:
            for worker in fleet.workers[:REMEMBERED]:
                self._met[worker.worker] = now
            while len(self._met) > 2 * REMEMBERED:
                del self._met[next(iter(self._met))]
        return fleet

    def pulse(self, board: Board) -> Look[tuple[Pulse, dict[str, float]]]:
        """The pulse, and how many tasks end in each state per second of late; empty while that is not known."""
        return board.look("pulse", "", lambda: self._read_pulse(board.snapshot))

    def _read_pulse(self, snapshot: Snapshot) -> tuple[Pulse, dict[str, float]]:
        pulse = snapshot.pulse()
        ended = {state.value: pulse.counts.states[state.value] for state in TERMINAL}
        with self._lock:
            self._ended.append((time.monotonic(), ended))
            return pulse, rates(self._ended)


def rates(samples: deque[tuple[float, dict[str, int]]]) -> dict[str, float]:
    """How fast each figure grew over the last `RATE_SECONDS`; empty when that cannot be told. Pure."""
    last_at, last = samples[-1]
    first_at, first = next((sample for sample in samples if last_at - sample[0] <= RATE_SECONDS), samples[-1])
    if last_at - first_at < 0.2 or any(last[name] < first[name] for name in last):
        return {}  # not enough time between the two, or another Redis
    return {name: (last[name] - first[name]) / (last_at - first_at) for name in last}


def gone_lately(fleet: Fleet, minutes: int) -> tuple[Worker, ...]:
    """The workers that were heard within the last minutes, and have gone. Pure."""
    return tuple(worker for worker in fleet.gone if fleet.now - worker.seen < minutes * 60_000)
