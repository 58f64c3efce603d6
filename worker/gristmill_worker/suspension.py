"""What the agent says of tasks that wait for other tasks: the beat has the figures, a message of its own the news.

Everything is said in full and numbered, so that a lost, late or repeated message changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gristmill.protocol.messages import SuspendedMessage
from gristmill_worker.board import TOP
from gristmill_worker.processors import Processor
from gristmill_worker.reports import Reports
from gristmill_worker.sender import Answer


class Picture(NamedTuple):
    """The processors at one moment."""

    ready: int
    """How many take tasks or have one that waits, those counted out that are one too many."""
    suspended: int
    """How many have a task that waits, and nothing else to do."""
    waiting: tuple[str, ...]
    """The tasks that wait, those counted too whose processor runs a child of theirs meanwhile."""


class Suspension:
    """Of one worker id."""

    def __init__(self, reports: Reports, count: int) -> None:
        self._reports = reports
        self._count = count
        self._sending = False
        self.picture = Picture(0, 0, ())
        self.number = 0
        """The running number of the last change of what waits."""

    def look(self, processors: Sequence[Processor]) -> None:
        """See what waits now; when that is news, say so."""
        waiting = [one for one in processors if one.waiting]
        active = sum(one.ready and one not in waiting for one in processors)
        tasks: list[str] = []
        for one in processors:
            if one in waiting or one.board.words[TOP]:
                stack = one.levels()
                tasks += [level.held.task for level in (stack if one in waiting else stack[:-1])]
        picture = Picture(min(active, self._count) + len(waiting), len(waiting), tuple(tasks))
        if picture == self.picture:
            return
        before, self.picture = self.picture, picture
        if before.waiting or picture.waiting:
            self.number += 1
            self._say()

    def _say(self) -> None:
        """One message at a time: what changes meanwhile goes with the next."""
        if self._sending:
            return
        self._sending = True
        number, picture = self.number, self.picture
        message = SuspendedMessage(
            worker=self._reports.worker,
            processors_ready=picture.ready,
            suspended=picture.suspended,
            suspensions=number,
            waiting=list(picture.waiting),
        )
        self._reports.suspended(message, lambda answer: self._on_said(number, answer))

    def _on_said(self, number: int, answer: Answer) -> None:
        self._sending = False
        if number != self.number:
            self._say()
