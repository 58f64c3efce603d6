"""Watching what processors execute: long tasks, time limits, tasks that are being stopped, and deaths."""

from __future__ import annotations

import logging
import os

import orjson

from gristmill.errors import ProcessorDiedError, TaskTimeoutError
from gristmill_worker.board import (
    CANCEL,
    CONNECTION,
    LEFT,
    PARKED,
    STATUS,
    TIME_LIMIT,
    TOP,
    Executing,
    Held,
    clock_ns,
)
from gristmill_worker.capture import send_captured
from gristmill_worker.departed import Departed
from gristmill_worker.execution import Place, time_limit_error
from gristmill_worker.orders import CANCELED, FAILED
from gristmill_worker.past import Past
from gristmill_worker.processors import Deadline, Processor, Stop, describe_end
from gristmill_worker.reports import Reports
from gristmill_worker.stack import levels

logger = logging.getLogger(__name__)

MILLISECOND = 1_000_000
LONG_NS = 30 * MILLISECOND
"""A task that has run so long does not keep others waiting behind it."""
SOON_NS = 20 * MILLISECOND
"""How often what executes is looked at until it is known to be long."""
STOPPING_NS = 5 * MILLISECOND
"""How often what is being stopped is looked at."""
STUCK_NS = 1000 * MILLISECOND
"""A processor that keeps its lock so long was frozen while holding it: a kill need not wait for the lock."""


class Watch:
    """The eyes of one worker id."""

    def __init__(self, reports: Reports, past: Past, departed: Departed, place: Place, grace_ns: int) -> None:
        self._reports = reports
        self._past = past
        self._departed = departed
        self._place = place
        self._grace_ns = grace_ns

    def look(self, processor: Processor, now: int) -> int | None:
        """Do what is due for this processor; when to look again (`clock_ns`), None for no reason to."""
        executing = processor.board.executing()
        for stop in list(processor.stops.values()):
            self._pursue(processor, stop, now)
        self._answer_stopped(processor)
        again = None if executing is None else self._look_at(processor, executing, now)
        if executing is not None and processor.board.words[TOP]:
            again = min((time for time in (again, self._look_at_claimed(processor, now)) if time), default=None)
        return now + STOPPING_NS if processor.stops else again

    def _look_at(self, processor: Processor, executing: Executing, now: int) -> int | None:
        if executing.start != processor.settled:
            if now >= executing.started_at + LONG_NS or processor.waiting:
                self._settle(processor, executing)
            return now + SOON_NS
        deadline = processor.deadline
        if deadline is None or deadline.start != executing.start or executing.start in processor.stops:
            return None
        if now < deadline.at:
            return deadline.at
        self._stop_for_time(processor, executing.start, now)
        return now + STOPPING_NS

    def _look_at_claimed(self, processor: Processor, now: int) -> int | None:
        """The time limits of the tasks on its stack."""
        again = None
        for held, executing in processor.levels()[1:]:
            limit_ms = held.run.get("timeout_ms") or 0
            if not limit_ms or executing.start in processor.stops:
                continue
            at = executing.started_at + int(limit_ms * MILLISECOND)
            if now >= at:
                self._stop_for_time(processor, executing.start, now)
            again = min(again or at, max(at, now + STOPPING_NS))
        return again

    def give_back(self, processor: Processor) -> bool:
        """Take away what the processor has not started; False when it could not be asked just now."""
        board = processor.board
        with board.locked() as locked:
            if not locked:
                return False
            rest = self._take_rest(processor)
            outcomes = board.take_outcomes() if board.executing() is not None else b""
        self._reports.outcomes(outcomes)
        self._return(rest)
        return True

    def bury(self, processor: Processor, *, leaving: bool = False) -> None:
        """Report what a dead processor leaves behind; when the worker is `leaving`, only what it had finished."""
        board = processor.board
        send_captured(processor, self._reports, clock_ns(), dead=True)
        outcomes = board.last_outcomes()
        finished = {(row[0], row[1]) for row in orjson.loads(b"[%b]" % outcomes)}
        self._reports.outcomes(outcomes)
        for task, attempt in finished:
            self._past.note(task, attempt, FAILED)
        stack = levels(board)
        processor.note_ended(stack)
        self._answer_stopped(processor)
        if not stack and not leaving and processor.was_ready and board.words[STATUS] not in (LEFT, PARKED):
            logger.warning("a processor ended between tasks", extra=self._facts(processor))
        above: Held | None = None
        for held, executing in reversed(stack):
            stop_asked = processor.stops.pop(executing.start, None)
            if stop_asked is not None:
                self._answer(processor, stop_asked, has_outcome=held[:2] in finished)
            elif held[:2] not in finished and not leaving:
                self._died(processor, held, executing, above)
            above = held
        if not leaving:
            self._return(self._take_rest(processor))
            self._departed.add(processor.name, board.words[CONNECTION], board.history())
        self._past.bury(board.history())
        self._reports.remember(board.outcomes_since(processor.positions[0][1] if processor.positions else 0))
        if crashed := processor.crash_stack():
            os.write(2, f"{crashed}\n".encode())  # as it is: whoever reads the log knows what Python writes at a crash
        processor.close()

    # --- long tasks and time limits -----------------------------------------------------------------------

    def _settle(self, processor: Processor, seen: Executing) -> None:
        """It is long: what waits behind it goes elsewhere, what was finished before it goes out."""
        board = processor.board
        with board.locked() as locked:
            executing = board.executing() if locked else None
            if executing is None or executing.start != seen.start:
                return
            held = board.rows()[executing.row]
            rest = self._take_rest(processor)
            outcomes = board.take_outcomes()
        processor.settled = seen.start
        limit_ms = held.run.get("timeout_ms") or 0
        processor.deadline = Deadline(seen.start, seen.started_at + int(limit_ms * MILLISECOND)) if limit_ms else None
        self._reports.outcomes(outcomes)
        self._return(rest)

    @staticmethod
    def _take_rest(processor: Processor) -> list[Held]:
        """Inside the lock, or when the processor is dead."""
        board = processor.board
        rows, unstarted = board.rows(), board.unstarted()
        for index in unstarted:
            board.take(index)
        return [rows[index] for index in unstarted]

    def _return(self, rest: list[Held]) -> None:
        for held in rest:
            self._past.note(held.task, held.attempt, CANCELED)
        self._reports.returned([(held.task, held.attempt) for held in rest])

    def _stop_for_time(self, processor: Processor, start: int, now: int) -> None:
        board = processor.board
        with board.locked() as locked:
            stack = levels(board) if locked else []
            found = next((level for level in stack if level.executing.start == start), None)
            if found is None:
                return
            held = found.held
            processor.interrupt(stack, found, TIME_LIMIT, now + self._grace_ns)
        logger.info("time limit reached", extra={"task": held.task, "attempt": held.attempt})

    # --- stopping -----------------------------------------------------------------------------------------

    def _pursue(self, processor: Processor, stop: Stop, now: int) -> None:
        """See whether what is to be stopped has ended; kill its processor when it does not."""
        board = processor.board
        with board.locked() as locked:
            if locked:
                processor.note_ended(levels(board))
            if stop.start not in processor.stops:
                return
            if now >= stop.kill_at and (locked or now >= stop.kill_at + STUCK_NS):
                # Under the lock: until this processor is dead, no other task can start in it.
                processor.kill()
                stop.kill_at = now + STUCK_NS
                logger.info(
                    "killing a processor whose task does not end",
                    extra={"processor": processor.name, "pid": processor.pid, "task": stop.held.task},
                )

    def _answer_stopped(self, processor: Processor) -> None:
        for stop, has_outcome in processor.stopped:
            self._answer(processor, stop, has_outcome=has_outcome)
        processor.stopped.clear()

    def _answer(self, processor: Processor, stop: Stop, *, has_outcome: bool) -> None:
        """What was to be stopped has ended: by itself, by the interrupt, or with its processor."""
        held = stop.held
        if not has_outcome and stop.reason == TIME_LIMIT:
            has_outcome = True
            error = time_limit_error(held.run, self._place)
            self._reports.failed(held, TaskTimeoutError, str(error), processor.board.executing_since())
        answer = FAILED if has_outcome else CANCELED
        self._past.note(held.task, held.attempt, answer)
        for request in stop.requests:
            self._reports.confirm(held.task, held.attempt, request, answer)
        if stop.reason == CANCEL:
            logger.info("cancel", extra={"task": held.task, "attempt": held.attempt, "answer": answer})

    def _died(self, processor: Processor, held: Held, executing: Executing, above: Held | None) -> None:
        """`above` is the task that lay on this one on the stack of the processor, which was running it meanwhile."""
        ran_ms = (clock_ns() - executing.started_at) // MILLISECOND
        logger.warning(
            "a processor died",
            extra={**self._facts(processor), "task": held.task, "attempt": held.attempt, "ran_ms": ran_ms},
        )
        how = describe_end(processor.exit_status)
        stack = processor.crash_stack() if above is None else ""
        text = (
            f"the processor that executed the task died: {how}; worker {self._place.worker} on host "
            f"{self._place.host}, pid {processor.pid}{stack and f'; its Python stack:{chr(10)}{stack}'}"
        )
        if above is not None:
            text += f"; the task was waiting meanwhile, and ran {above.name} ({above.task}) itself"
        self._past.note(held.task, held.attempt, FAILED)
        self._reports.failed(held, ProcessorDiedError, text, executing.started_at)

    @staticmethod
    def _facts(processor: Processor) -> dict[str, object]:
        how = describe_end(processor.exit_status)
        return {"processor": processor.name, "pid": processor.pid, "how": how}
