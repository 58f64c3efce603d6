"""Who holds a slot: as many processors take tasks as the worker has slots, whatever waits.

A task that waits for other tasks gives its slot up. Its processor is counted out, and another one takes the slot: one
that stands by (parked), or a new one, up to a bound. When the task goes on there is one processor too many; the next
that falls free is parked. At the bound a slot stays empty, and the waiting tasks run their own children (`ALONE`); one
that cannot, since it waits in other threads, raises the bound by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gristmill_worker.board import ALONE, LEAVE, LEAVING, LEFT, PARK, STATUS, clock_ns
from gristmill_worker.processors import SECOND, Processor

PARKED_NS = 60 * SECOND
"""A processor that nobody has needed for so long ends."""


class Turn(NamedTuple):
    """What is to be done now."""

    missing: int
    """So many processors are to be started."""
    idle: list[Processor]
    """These are to stand by from now on and are waiting for tasks: their reading is to be ended."""


class Slots:
    """The slots of one worker id."""

    def __init__(self, count: int, most: int) -> None:
        self.count = count
        self.most = most

    def look(self, processors: Sequence[Processor]) -> Turn:
        """Direct the processors, all that are alive, and say what else there is to do."""
        living = [one for one in processors if one.board.words[LEAVING] != LEAVE and one.board.words[STATUS] != LEFT]
        standing = [one for one in living if one.parked and one.board.words[LEAVING] == PARK]
        waiting = [one for one in living if one.waiting]
        active = [one for one in living if one not in standing and one not in waiting]
        surplus = len(active) - self.count
        for one in waiting:
            one.direct(0)
        idle: list[Processor] = []
        if surplus >= 0:
            idle = self._park(active, surplus)
            self._retire(standing)
        else:
            # One that has just parked may hold what has to go back first; then it can be woken.
            woken = [one for one in standing if one.parked_since][:-surplus]
            for one in (*active, *woken):
                one.direct(0)
            surplus += len(woken)
        most = self.most + sum(one.helpless for one in waiting)
        missing = max(0, min(-surplus, most - len(processors)))
        alone = surplus < 0 and not missing and not any(not one.parked_since for one in standing)
        for one in living:
            one.board.words[ALONE] = alone
        return Turn(missing, idle)

    @staticmethod
    def _park(active: list[Processor], surplus: int) -> list[Processor]:
        """Idle ones stand by at once; without enough of them, whoever falls free first. Answers the idle ones."""
        free = [one for one in active if one.board.executing() is None]
        chosen = free[:surplus]
        called = [one for one in chosen if one.board.words[LEAVING] != PARK]
        anybody = len(chosen) < surplus
        for one in active:
            one.direct(PARK if one in chosen or (anybody and one not in free) else 0)
        return called

    @staticmethod
    def _retire(standing: list[Processor]) -> None:
        """What nobody has needed for long ends."""
        now = clock_ns()
        for one in standing:
            if one.parked_since and now - one.parked_since > PARKED_NS:
                one.direct(LEAVE)
