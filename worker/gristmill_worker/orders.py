"""Requests to stop or give back a task (`cancel` and `give_back` of `messages.Control`), and their answers.

The answer says what is true of that attempt: `canceled` (it will not run, or was stopped, and has no outcome),
`failed` (it has started, or its outcome is on the way), `not_found` (no processor of this worker has received it).
For the last, what Redis may just be handing to a processor must have arrived: the answer waits until every processor
has come back from Redis once.
"""

from __future__ import annotations

from typing import NamedTuple

from gristmill_worker.board import CANCEL, CONNECTION, TURN, clock_ns
from gristmill_worker.departed import Departed
from gristmill_worker.past import Past
from gristmill_worker.processors import Processor
from gristmill_worker.reports import Reports
from gristmill_worker.stack import levels

CANCELED, FAILED, NOT_FOUND = "canceled", "failed", "not_found"
_STOPPING = "stopping"
"""Nothing to say yet: it is being stopped, and whoever sees it end answers."""
_UNKNOWN = "unknown"
"""A processor could not be asked just now."""


class Order(NamedTuple):
    """One request."""

    task: str
    attempt: int
    request: int
    cancel: bool
    """Stop it also when it executes; otherwise only give it back."""


class _Unseen:
    """An order for an attempt that nobody has seen so far."""

    def __init__(self, order: Order, processors: list[Processor]) -> None:
        self.order = order
        self.turns = {processor: processor.board.words[TURN] for processor in processors}


class Orders:
    """Those that one worker id has got."""

    def __init__(self, reports: Reports, past: Past, departed: Departed, grace_ns: int) -> None:
        self._reports = reports
        self._past = past
        self._departed = departed
        self._grace_ns = grace_ns
        self._unseen: list[_Unseen] = []

    @property
    def waiting(self) -> bool:
        """Whether some have no answer yet because nobody has seen their task."""
        return bool(self._unseen)

    def give(self, order: Order, processors: list[Processor]) -> None:
        """Do it, or begin to."""
        answer = self._decide(order, processors, search=True)
        if answer not in ("", _UNKNOWN):
            self._answer(order, answer)
            return
        unseen = _Unseen(order, processors)
        self._unseen.append(unseen)
        for processor in processors:
            if processor.board.executing() is None:
                self._reports.unblock(processor.board.words[CONNECTION])

    def look(self, processors: list[Processor]) -> None:
        """Try again those whose task nobody had seen."""
        for unseen in self._unseen[:]:
            arrived = self._all_has_arrived(unseen, processors)
            answer = self._decide(unseen.order, processors, search=arrived)
            if not answer and arrived:
                answer = NOT_FOUND
            if answer not in ("", _UNKNOWN):
                self._unseen.remove(unseen)
                self._answer(unseen.order, answer)

    def _answer(self, order: Order, answer: str) -> None:
        if answer != _STOPPING:
            self._reports.confirm(order.task, order.attempt, order.request, answer)

    def _decide(self, order: Order, processors: list[Processor], *, search: bool) -> str:
        """The answer; empty when nobody has seen the attempt.

        To `search` through all that was here lately takes far longer than a look at what is held, and comes last.
        """
        answer = self._past.noted(order.task, order.attempt)
        for processor in processors:
            answer = answer or self._ask(processor, order, search=False)
        if search:
            answer = answer or self._past.answer(order.task, order.attempt)
            for processor in processors:
                answer = answer or self._ask(processor, order, search=True)
        return answer

    def _ask(self, processor: Processor, order: Order, *, search: bool) -> str:
        board = processor.board
        with board.locked() as locked:
            if not locked:
                return _UNKNOWN
            rows = board.rows()
            index = next((i for i, row in enumerate(rows) if row[:2] == order[:2]), None)
            stack = levels(board)
            processor.note_ended(stack)
            found = next((level for level in stack if level.held[:2] == order[:2]), None)
            if found is not None:
                if not order.cancel:
                    return FAILED
                stop = processor.stops.get(found.executing.start)
                if stop is None:
                    stop = processor.interrupt(stack, found, CANCEL, clock_ns() + self._grace_ns)
                stop.requests.append(order.request)
                return _STOPPING
            ended = next((stop for stop, _ in processor.stopped if stop.held[:2] == order[:2]), None)
            if ended is not None:
                ended.requests.append(order.request)
                return _STOPPING
            if index is None:
                return FAILED if search and board.has_held(order.task, order.attempt) else ""
            if index not in board.unstarted():
                return FAILED
            board.take(index)
        self._past.note(order.task, order.attempt, CANCELED)
        return CANCELED

    def _all_has_arrived(self, unseen: _Unseen, processors: list[Processor]) -> bool:
        """Whether what Redis had handed out when the order came is in the boards by now."""
        for processor, turn in unseen.turns.items():
            if processor in processors and processor.board.words[TURN] == turn and not processor.parked:
                with processor.board.locked() as locked:
                    # While it executes it reads nothing: all that it was handed is in its board.
                    if not locked or processor.board.executing() is None:
                        return False
        return self._departed.all_inspected
