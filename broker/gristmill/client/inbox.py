"""What the schedulers tell a client, entry by entry: outcomes, refusals, what is missing, what nobody knows.

Called by whoever reads the inbox (the I/O thread, or the constructor before there is one). Handling an entry twice
changes nothing: after a lost connection the inbox is read from its beginning.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson

from gristmill.client import gate
from gristmill.client.future import CANCELED_STATES, CANCELLED, FINISHED, SUCCESS, Future
from gristmill.client.leaves import Leaf
from gristmill.client.outbox import ASKED, KNOWN
from gristmill.client.references import BORROWED
from gristmill.client.serializer import LargeCall, call_with_values
from gristmill.errors import ClientClosedError, QueueFullError, TaskError, TaskLostError, WorkerDiedError
from gristmill.protocol import payloads
from gristmill.protocol.kinds import INBOX_COLUMNS, INLINE_BYTES

if TYPE_CHECKING:
    from gristmill.client.session import Session

logger = logging.getLogger(__name__)

RESENDS = 5
"""A task is sent again so often for something that is missing; then it is lost."""

GATE_SECONDS = 0.05
"""So long the I/O thread waits for a gate that somebody holds; then it sees to the others first."""
END_SECONDS = 0.5
"""At the end of a session it waits for all gates together so long."""


class LargeValue:
    """A value or failure that lies in Redis; when nobody needs it any more, it may go there too."""

    __slots__ = ("live", "object_id", "registration", "released", "size")

    def __init__(
        self, object_id: str, size: int, registration: int, released: deque[tuple[str, int, int]], live: set[int]
    ) -> None:
        self.object_id = object_id
        self.size = size
        """Bytes."""
        self.registration = registration
        self.released = released
        self.live = live
        live.add(id(self))

    def __del__(self) -> None:
        # In any thread, perhaps in the middle of a garbage collection: both are atomic and take no lock.
        self.live.discard(id(self))
        self.released.append((self.object_id, 0, self.registration))


LEAST_COLUMNS = len(INBOX_COLUMNS) - 1
"""`because` may be absent; a shorter row is nobody's outcome."""


class Inbox:
    """Turns the entries of the inbox into settled futures."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.unfinished = session.unfinished
        self.callbacks: deque[Future] = deque()
        """Settled futures whose callbacks are still to be run: after everything that came with them is settled."""
        self.held: deque[tuple[Future, str]] = deque()
        """Futures that are to be settled and whose gate somebody holds, with their final state."""
        self.large_values: set[int] = set()
        """Large values that somebody may still look at, by `id`: they go with the session, so it must stay."""
        self.registered = 0
        """The registration that was confirmed last."""
        self.ended = ""
        """Why the schedulers say that this client has ended."""

    def handle(self, kind: bytes, body: bytes) -> None:
        """Handle one entry. One that cannot be understood is passed over, or it would come again for ever."""
        try:
            self._handle(kind, body)
        except Exception:
            logger.exception("an inbox entry of kind %r could not be understood", kind.decode(errors="replace"))

    def _handle(self, kind: bytes, body: bytes) -> None:
        if kind == b"outcomes":
            self._outcomes(body)
            return
        message = orjson.loads(body)
        if kind == b"registered":
            self.registered = message["registration"]
        elif kind == b"refused":
            self._refused(message["reason"], message["tasks"])
        elif kind == b"missing":
            for number, _ in message["tasks"]:
                if future := self.unfinished.get(number):
                    self.send_with_values(future)
        elif kind == b"lost":
            self._lost(message["tasks"], message.get("of", ()))
        elif kind == b"unknown":
            self._unknown(message["tasks"])
        elif kind == b"output":
            self.session.printing.take(message)
        elif kind == b"watched":
            self.session.watching.answer(message)
        elif kind == b"shutdown" and self.session.shutdown_answer is not None:
            self.session.shutdown_answer.set(message["accepted"])
        elif kind == b"claimed" and self.session.claims is not None:
            self.session.claims.answer(message["claim"], message["fields"])

    def _outcomes(self, body: bytes) -> None:
        message = orjson.loads(body)
        worker = message["worker"]
        take = self.unfinished.pop
        waited_for: list[tuple[Future, str]] = []
        with gate.deciding:
            # This is `Future._settle`, with the lock taken once for all: nearly every future is done here.
            for row in message["rows"]:
                if len(row) < LEAST_COLUMNS:
                    raise ValueError(f"expected a row of {LEAST_COLUMNS} columns; got {row!r}")
                future = take(row[0], None)
                if future is None:
                    continue
                future._row = row
                future._worker = worker
                final = FINISHED
                if row[2] != SUCCESS:
                    final = self._unsuccessful(future, row)
                elif type(row[3]) is dict:
                    row[3] = self.large_value(row[3])
                future._function = future._call = future._large = future._options = None
                future._dependencies = ()
                if future._gate is None:
                    future._state = final
                else:
                    waited_for.append((future, final))
        for future, final in waited_for:
            self.settle(future, final)

    def large_value(self, payload: dict[str, Any]) -> LargeValue:
        """What stands for a large value or failure until somebody looks at it."""
        outbox = self.session.outbox
        return LargeValue(
            payload["object"], payload["size"], outbox.registration, outbox.functions.released, self.large_values
        )

    def _unsuccessful(self, future: Future, row: list[Any]) -> str:
        """Prepare a failed or cancelled outcome; returns the future's final state."""
        if row[2] in CANCELED_STATES:
            return CANCELLED
        future._failed = True
        payload = row[3]
        if len(row) > 8:
            for dependency in future._dependencies:
                if dependency.task_id == row[8] and dependency.done():
                    future._source = dependency._source or dependency
                    return FINISHED
        if payload is None and row[2] == "failed_worker_died":
            future._error = WorkerDiedError(
                f"too many workers died while executing task {future.task_id} (attempt {row[1]})"
            )
        elif type(payload) is dict and "object" in payload:
            row[3] = self.large_value(payload)
        return FINISHED

    # --- outcomes that this client finds itself -----------------------------------------------------------

    def fail(self, future: Future, error: BaseException) -> None:
        """End a task with an error of the client's own making."""
        if self.unfinished.pop(future._number, None) is None:
            return
        future._failed = True
        future._error = error
        self._end(future, FINISHED)

    def end_canceled(self, future: Future) -> None:
        """End a task as cancelled: it was never sent, or nobody knows it."""
        if self.unfinished.pop(future._number, None) is not None:
            self._end(future, CANCELLED)

    def end_all(self, futures: Iterable[Future]) -> None:
        """The session ends: these end as cancelled, and whoever holds a gate is not waited for any longer."""
        for future in futures:
            if future._options is not None and "keep_ms" in future._options and future._batch:
                self.fail(
                    future,
                    ClientClosedError(
                        f"the client is closed; task {future.task_id} goes on: its outcome can be had by Future.from_id"
                    ),
                )
            else:
                self.end_canceled(future)
        deadline = time.monotonic() + END_SECONDS
        while self.held:
            self._settle_held(max(0.0, deadline - time.monotonic()), force=True)

    def follow(self, future: Future, dependency: Future) -> None:
        """End a task as its dependency ended, which has no value."""
        if dependency.cancelled():
            self.end_canceled(future)
        elif self.unfinished.pop(future._number, None) is not None:
            future._failed = True
            future._source = dependency._source or dependency
            self._end(future, FINISHED)

    def _end(self, future: Future, state: str) -> None:
        future._id = future.task_id  # the session's id may change
        future._forget_call()
        self.settle(future, state)

    # --- gates that are held ------------------------------------------------------------------------------

    def settle(self, future: Future, state: str) -> None:
        """Make what was stored in a future its outcome; who has taken it out of its table does so."""
        # One that is held may be held by an interrupted `as_completed`, and then thousands are: no more patience.
        if not future._settle(state, 0.0 if self.held else GATE_SECONDS):
            self.held.append((future, state))
        elif future._gate is not None and (future._gate.callbacks or future._gate.watchers):
            self.callbacks.append(future)

    def settle_held(self) -> None:
        """Try those again whose gate was held."""
        for _ in range(len(self.held)):
            self._settle_held(0.0, force=False)

    def _settle_held(self, patience: float, *, force: bool) -> None:
        try:
            future, state = self.held.popleft()
        except IndexError:  # at the end of a session a caller may be here too
            return
        assert future._gate is not None
        if not future._open(future._gate, state, patience, force=force):
            self.held.append((future, state))
        elif future._gate.callbacks or future._gate.watchers:
            self.callbacks.append(future)

    # --- what has to be sent again ------------------------------------------------------------------------

    def _refused(self, reason: str, numbers: list[int]) -> None:
        about, _, text = reason.partition(": ")
        if about == "client":
            self.ended = text
        for number in numbers:
            future = self.unfinished.get(number)
            if future is None:
                continue
            if about == "intake":
                if self.session.wait_when_full:
                    self._send_again(future)
                else:
                    self.fail(future, QueueFullError(f"new tasks are refused at the moment ({text}): submit it later"))
            elif about == "object" and self.session.outbox.full and not self.session.wait_when_full:
                self.fail(future, QueueFullError("Redis is full, with no room for the task's object: submit it later"))
            elif about == "object" and future._resent < RESENDS:
                if future._function is not None:
                    future._function.uploaded = 0
                for leaf in _leaves_of(future):
                    leaf.uploaded = 0
                self._send_again(future)
            elif about == "object":
                self.fail(future, TaskLostError(f"task {future.task_id} was refused again and again: {text}"))
            else:
                self.fail(future, TaskError(f"task {future.task_id} was refused: {reason}"))
        if about == "intake":
            self.session.outbox.intake = text.encode()  # the next reply knows better

    def _send_again(self, future: Future) -> None:
        future._resent += 1
        future._batch = 0
        self.session.queue_again(future)

    def _lost(self, numbers: list[int], of: Iterable[int]) -> None:
        """There are no records of these. Their outcomes, if there were any, have been handled by now."""
        outbox = self.session.outbox
        for number in numbers:
            future = self.unfinished.get(number)
            if future is None or not future._batch:
                continue  # it has ended, or is on its way again
            if future._cancel_asked:
                self.end_canceled(future)
            elif future._batch == ASKED:
                future._batch = 0
                self.session.queue_again(future)
            elif future._resent < RESENDS:
                self._send_again(future)
            else:
                self.fail(future, TaskLostError(f"task {future.task_id} was lost again and again: its record vanished"))
        for number in of:
            future = outbox.asked.pop(number, None)
            if future is not None and future._batch == ASKED:
                future._batch = KNOWN

    def _unknown(self, numbers: list[int]) -> None:
        """A cancel named tasks that nobody knows. Their outcomes, if there were any, have been handled by now."""
        for number in numbers:
            future = self.unfinished.get(number)
            if future is None:
                continue
            if future._batch == 0:
                self.session.outbox.cancels.append(future)  # on its way again: the cancel finds it there
            elif future._cancel_asked:
                self.end_canceled(future)

    def send_with_values(self, future: Future) -> None:
        """Send a task again with the values of its dependencies in it, once all of them are done."""
        pending = [dependency for dependency in future._dependencies if not dependency.done()]
        if pending:
            # Whichever comes last finds nothing pending.
            pending[0].watch(lambda _: self.send_with_values(future))
            return
        for dependency in future._dependencies:
            if dependency._failed or dependency.cancelled():
                self.follow(future, dependency)
                return
        if self.unfinished.get(future._number) is not future or not future._dependencies:
            return
        leaves = future._large.leaves if future._large is not None else ()
        try:
            call = self._call_bytes(future)
            data = call_with_values(call, future._dependencies)
        except Exception as error:
            self.fail(future, TaskLostError(f"task {future.task_id} cannot be sent again with values: {error}"))
            return
        future._dependencies = ()
        future._call, future._large = None, None
        if len(data) <= INLINE_BYTES and not leaves:
            future._call = payloads.text_of(data)
        else:
            future._large = LargeCall(data, (), {}, keep=True, leaves=leaves)
        self._send_again(future)

    def _call_bytes(self, future: Future) -> bytes:
        if future._call is not None:
            return payloads.bytes_of(future._call)
        data = future._large.bytes_again(self.session) if future._large is not None else None
        if data is None:
            raise TaskLostError("its arguments have changed since")
        return data


def _leaves_of(future: Future) -> Iterable[Leaf]:
    """The objects that a task names, by its call or by its function; those of another client are not ours to send."""
    leaves = [] if future._large is None else [*future._large.leaves]
    if future._function is not None:
        leaves += future._function.leaves
    return [leaf for leaf in leaves if leaf.uploaded != BORROWED]
