"""Futures: `concurrent.futures.Future` in every respect, at a tenth of its price.

The stock constructor makes a Condition, which costs more than all else that a client does for a task; most futures are
never waited for before they are done. So there is no constructor, and the Condition is made by the first who needs one.

A future has one *gate*, kept under `_gate` in its `__dict__` and decided once, by `dict.setdefault`, which is atomic:

- nobody has waited when the outcome comes: the I/O thread puts the final state there, a string. From then on the
  future is done; it will never have a Condition, and needs none, because nothing about it changes any more.
- somebody waits first: the Condition lies there. From then on the state (`_settled`) changes only while it is held,
  as in the standard library, whose `wait` and `as_completed` rely on that: they take all Conditions, look at the
  states several times, and expect the same answer.

Why no wake-up is lost: whoever waits first puts the Condition into the gate and then looks at the state under it.
Either this comes before the outcome's `setdefault`, which then finds the Condition, waits for it to be released (the
waiter is inside `Condition.wait`, or has left its mark in `_waiters`) and notifies; or it comes after, and the waiter
finds the final state where it wanted to put its Condition. There is no third order. The payload is stored before the
gate is decided, so that whoever sees a final state sees the outcome too.

Only who has taken the future out of the session's table of unfinished tasks (`dict.pop`, atomic as well) may settle
it, so it is settled once.
"""

from __future__ import annotations

import concurrent.futures
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, InvalidStateError
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from gristmill.client.gate import NOBODY_WAITS, NOTHING_TO_LOCK
from gristmill.errors import SerializationError, TaskError
from gristmill.protocol import payloads

if TYPE_CHECKING:
    from gristmill.client.functions import FunctionObject
    from gristmill.client.serializer import LargeCall
    from gristmill.client.session import Session

RUNNING = "RUNNING"
FINISHED = "FINISHED"
CANCELLED = "CANCELLED_AND_NOTIFIED"

SUCCESS = "success"
CANCELED_STATES = frozenset({"canceled", "canceled_not_found"})

CANCEL_SECONDS = 60.0
"""How long `cancel` waits for the answer, unless told otherwise."""


class Profile(NamedTuple):
    """What a task took."""

    duration_s: float
    """Seconds from start to end, in the processor."""
    cpu_time_s: float
    """Seconds of CPU, user and system."""
    memory_peak: int
    """Bytes by which the processor's memory grew at most."""
    wait_s: float
    """Seconds from submit to assignment to a worker."""
    worker: str
    """Id of the worker; empty when none ran it."""
    attempt: int
    """Which attempt ended it: 1 for the first, 0 when none was made."""


class Future(concurrent.futures.Future[Any]):
    """The outcome of one task, when it comes. Made by `Client.submit`; its methods may be called from any thread.

    It works with `concurrent.futures.wait` and `as_completed`, and can be an argument of another task, which then
    waits for it. `running()` is true from the start: whether a task is queued or executing is the cluster's affair.
    """

    # What a task is, until it is settled. Defaults lie in the class, so that making a future sets little.
    _session: Session | None = None
    _number: int = 0
    _function: FunctionObject | None = None
    _call: str | None = None
    _large: LargeCall | None = None
    _options: dict[str, Any] | None = None
    _dependencies: tuple[Future, ...] = ()
    _batch: int = 0
    """The batch that carries it; 0 while it waits to be sent."""
    _resent: int = 0
    """How often it was sent again with something that was missing."""
    _cancel_asked: bool = False
    _id: str = ""

    # What came of it.
    _settled: str = RUNNING
    """The state, for a future whose gate is a Condition."""
    _row: list[Any] | None = None
    """Its row of the inbox (`messages.INBOX_COLUMNS`); the payload in it goes once it is loaded."""
    _worker: str = ""
    _source: Future | None = None
    """The dependency whose failure is this one's."""
    _failed: bool = False

    def __init__(self) -> None:
        # Nothing: see the head of this module. The session fills in what it needs.
        pass

    # --- the gate -----------------------------------------------------------------------------------------

    @property
    def _state(self) -> str:  # type: ignore[override]  # the standard library reads it, under the Condition
        gate = self.__dict__.get("_gate")
        return gate if type(gate) is str else self._settled

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # made when first needed
        gate = self.__dict__.get("_gate")
        if gate is None:
            gate = self.__dict__.setdefault("_gate", threading.Condition())
        if type(gate) is str:
            return cast("threading.Condition", NOTHING_TO_LOCK)
        return cast("threading.Condition", gate)

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]  # made when first needed, under the Condition
        if type(self.__dict__.get("_gate")) is str:
            return NOBODY_WAITS
        return cast("list[Any]", self.__dict__.setdefault("_waiting", []))

    @property
    def _done_callbacks(self) -> list[Callable[[Future], object]]:  # the same
        return cast("list[Callable[[Future], object]]", self.__dict__.setdefault("_callbacks", []))

    def _settle(self, state: str) -> bool:
        """Make the outcome, which has been stored before, the final one. Returns whether callbacks wait to be run.

        Called by whoever has taken the future out of the table of unfinished tasks, and by nobody else.
        """
        gate = self.__dict__.setdefault("_gate", state)
        if type(gate) is str:
            return False
        with gate:
            self._settled = state
            for waiter in self._waiters:
                if state is CANCELLED:
                    waiter.add_cancelled(self)
                elif self._failed:
                    waiter.add_exception(self)
                else:
                    waiter.add_result(self)
            gate.notify_all()
        return "_callbacks" in self.__dict__

    def _forget_call(self) -> None:
        """The call is needed no more: it will not be sent again."""
        self._function = self._call = self._large = self._options = None
        self._dependencies = ()

    def run_callbacks(self) -> None:
        """Call what was added by `add_done_callback`, in order; exceptions are logged."""
        self._invoke_callbacks()  # type: ignore[attr-defined]  # the standard library's

    # --- waiting ------------------------------------------------------------------------------------------

    def cancelled(self) -> bool:
        """Whether the task was cancelled."""
        return self._state is CANCELLED

    def running(self) -> bool:
        """Whether the outcome is still to come."""
        return self._state is RUNNING

    def done(self) -> bool:
        """Whether the outcome is here: a value, an exception, or that it was cancelled."""
        return self._state is not RUNNING

    def _await(self, timeout: float | None) -> None:
        """Wait for the outcome; raises CancelledError or TimeoutError."""
        condition = self._condition
        session = self._session
        if session is not None and self._state is RUNNING:
            session.before_wait(self, timeout)
        with condition:
            if self._state is RUNNING:
                condition.wait(timeout)
            state = self._state
        if state is CANCELLED:
            raise CancelledError
        if state is RUNNING:
            raise concurrent.futures.TimeoutError(f"task {self.task_id} has not finished within {timeout} s")

    def await_end(self, timeout: float | None) -> str:
        """Wait for the outcome, at most `timeout` seconds; returns the state that the future is in then."""
        if self._state is RUNNING:
            try:
                self._await(timeout)
            except (CancelledError, concurrent.futures.TimeoutError):
                pass
        return self._state

    def result(self, timeout: float | None = None) -> Any:
        """The task's value, waiting for it at most `timeout` seconds.

        Raises what the task raised (the remote traceback is its `__cause__`), CancelledError when it was cancelled,
        TimeoutError when it has not finished in time, and other `TaskError`s when it has no value for another reason.
        """
        own = self.__dict__
        if own.get("_gate") is not FINISHED:
            self._await(timeout)
        if "_value" in own:
            return own["_value"]
        error: BaseException | None = None
        try:
            error = self._load()
            if error is not None:
                raise error
            return own["_value"]
        finally:
            # An exception whose traceback holds this frame must not hold the future that holds the exception.
            del own, error
            self = None  # type: ignore[assignment]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception the task raised, or None; waits, and raises, as `result` does."""
        own = self.__dict__
        if own.get("_gate") is not FINISHED:
            self._await(timeout)
        return None if "_value" in own else self._load()

    def _load(self) -> BaseException | None:
        """Turn what arrived into the value or the exception, once. Returns the exception, or None."""
        own = self.__dict__
        known: BaseException | None = own.get("_error")
        if known is not None or "_value" in own:
            return known
        if self._source is not None:
            return self._source._load()
        row = self._row
        payload = row[3] if row is not None else None
        if type(payload) is dict:  # an error by name
            error: BaseException = payloads.load_error(payload["error"], payload.get("message", ""))
        elif payload is None:
            if "_value" in own:  # loaded by another thread meanwhile
                return None
            error = own.get("_error") or TaskError(f"task {self.task_id} ended without an outcome")
        else:
            data = self._read(payload)
            if not self._failed:
                try:
                    own.setdefault("_value", pickle.loads(data))
                except Exception as problem:
                    error = payloads.loading_failed(f"the value of task {self.task_id}", problem)
                    error.__cause__ = problem
                else:
                    self._drop_payload()
                    return None
            else:
                error = payloads.load_failure(data)
        own.setdefault("_error", error)
        self._drop_payload()
        return cast("BaseException", own["_error"])

    def _read(self, payload: Any) -> bytes:
        """The bytes of a payload; a large one is fetched."""
        if type(payload) is str:
            return payloads.bytes_of(payload)
        assert self._session is not None
        return self._session.fetch(payload)

    def _drop_payload(self) -> None:
        if self._row is not None:
            self._row[3] = None

    def _value_bytes(self) -> bytes:
        """The pickled value of a future that succeeded, to be put into a call."""
        row = self._row
        payload = row[3] if row is not None else None
        if payload is None:
            return payloads.dump_value(self.result())
        return self._read(payload)

    # --- what else there is to know -----------------------------------------------------------------------

    @property
    def task_id(self) -> str:
        """The task's id, as `redis-cli` and the page show it; empty for a future that no client made."""
        if self._id or self._session is None:
            return self._id
        return f"{self._session.client_id}.{self._number:07d}"

    @property
    def worker(self) -> str:
        """The id of the worker that ran it; empty when none did, or it is not done."""
        return self._worker

    def profiling_info(self) -> Profile:
        """What the task took; raises ValueError when it is not done."""
        if not self.done():
            raise ValueError(f"task {self.task_id} is not done: wait for it first")
        _, attempt, _, _, duration, cpu, memory, wait = (self._row or [0] * 8)[:8]
        return Profile(duration / 1e6, cpu / 1e6, memory, wait / 1e3, self._worker, attempt)

    def __repr__(self) -> str:
        state = self._state
        text = "running" if state is RUNNING else "cancelled" if state is CANCELLED else "finished"
        if state is FINISHED and self._failed:
            text = "failed"
        return f"<Future {self.task_id or hex(id(self))} {text}>"

    # --- cancelling ---------------------------------------------------------------------------------------

    def cancel(self, timeout: float | None = CANCEL_SECONDS) -> bool:
        """Cancel the task, also while it executes, and wait for the answer at most `timeout` seconds.

        Returns True when it ended cancelled, and False when its outcome was first (or no answer came in time;
        the request stands then). The dependents of a cancelled task are cancelled too.
        """
        if self._session is None:
            self._finish_alone(CANCELLED)
        elif self._state is RUNNING:
            self._session.cancel([self])
            self.await_end(timeout)
        return self._state is CANCELLED

    # --- for executors and tests --------------------------------------------------------------------------

    def _finish_alone(self, state: str, **outcome: Any) -> bool:
        """Settle a future that is not a client's. Answers False when it is done already."""
        with self._condition:
            if self._state is not RUNNING:
                return False
            self.__dict__.update(outcome)
            self._settle(state)
        self.run_callbacks()
        return True

    def set_result(self, result: Any) -> None:
        """Set the value of a future that no client made; raises InvalidStateError when it is done."""
        if self._session is not None or not self._finish_alone(FINISHED, _value=result):
            self._refuse_outcome()

    def set_exception(self, exception: BaseException | None) -> None:
        """Set the exception of a future that no client made; raises InvalidStateError when it is done."""
        if self._session is not None or not self._finish_alone(FINISHED, _error=exception, _failed=True):
            self._refuse_outcome()

    def _refuse_outcome(self) -> NoReturn:
        raise InvalidStateError(f"{self!r} is done, or gets its outcome from its client")

    # --- elsewhere ----------------------------------------------------------------------------------------

    def __reduce__(self) -> Any:
        """A future that is done travels with its outcome; one that is not can only be an argument of a task."""
        if not self.done():
            raise SerializationError(
                f"expected a future that is done, or one among the arguments; got the unfinished task {self.task_id} "
                "inside a function or a value; pass it to the task as an argument"
            )
        if self.cancelled():
            return (_cancelled, (self.task_id,))
        error = self._load() if self._failed else None
        if error is not None:
            return (_failed, (self.task_id, error))
        return (_succeeded, (self.task_id, self._value_bytes()))


def _done(task_id: str) -> Future:
    future = Future()
    future._id = task_id
    return future


def _succeeded(task_id: str, data: bytes) -> Future:
    future = _done(task_id)
    future._row = [0, 0, SUCCESS, payloads.text_of(data), 0, 0, 0, 0]
    future._settle(FINISHED)
    return future


def _failed(task_id: str, error: BaseException) -> Future:
    future = _done(task_id)
    future.set_exception(error)
    return future


def _cancelled(task_id: str) -> Future:
    future = _done(task_id)
    future._settle(CANCELLED)
    return future
