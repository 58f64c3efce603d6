"""Futures: `concurrent.futures.Future` in every respect, at a tenth of its price.

The stock constructor makes a Condition, which costs more than all else that a client does for a task; most futures are
never waited for before they are done. Here the Condition is made by the first who needs it: see `gate`.

Only who has taken the future out of the session's table of unfinished tasks (`dict.pop`, which is atomic) settles it,
so it is settled once.
"""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, InvalidStateError
from typing import TYPE_CHECKING, Any, NoReturn

import gristmill.client
from gristmill.client import gate
from gristmill.client.gate import Gate, NothingToLock
from gristmill.client.loading import NOT_LOADED, Profile, load, profile_of, value_bytes
from gristmill.client.nested import Waiters
from gristmill.errors import (
    SerializationError,
)
from gristmill.protocol import payloads

if TYPE_CHECKING:
    from gristmill.client.calls import Calls
    from gristmill.client.functions import FunctionObject
    from gristmill.client.graph import Graph
    from gristmill.client.serializer import LargeCall
    from gristmill.client.session import Session

RUNNING = "RUNNING"
FINISHED = "FINISHED"
CANCELLED = "CANCELLED_AND_NOTIFIED"

SUCCESS = "success"
CANCELED_STATES = frozenset({"canceled", "canceled_not_found"})

CANCEL_SECONDS = 60.0
"""How long `cancel` waits for the answer, unless told otherwise."""


class Future(concurrent.futures.Future[Any]):
    """The outcome of one task, when it comes. Made by `Client.submit`; its methods may be called from any thread.

    It works with `concurrent.futures.wait` and `as_completed`, and can be an argument of another task, which then
    waits for it. `running()` is true from the start: whether a task is queued or executing is the cluster's affair.
    """

    __slots__ = (
        "_batch",  # the batch that carries it; 0 while it waits to be sent
        "_call",  # the pickled call in base64, or None when it is large
        "_cancel_asked",
        "_dependencies",
        "_error",  # the exception, once it is loaded
        "_failed",
        "_function",
        "_gate",  # the Gate, once somebody waits
        "_graph",  # the graph that it belongs to; not set otherwise
        "_id",  # the task's id when it is not that of the session and number
        "_large",
        "_last_user",  # the last task of its graph that uses it; not set when none does
        "_number",
        "_options",
        "_resent",  # how often it was sent again with something that was missing
        "_row",  # its row of the inbox (`messages.INBOX_COLUMNS`); the payload in it goes once it is loaded
        "_session",
        "_source",  # the dependency whose failure is this one's
        "_state",
        "_value",  # the value, once it is loaded
        "_worker",
    )

    if TYPE_CHECKING:
        _graph: Graph
        _last_user: Future

    def __init__(
        self,
        session: Session | None = None,
        number: int = 0,
        function: FunctionObject | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        # Not the stock constructor: see the head of this module.
        self._session = session
        self._number = number
        self._function = function
        self._options = options
        self._call: str | None = None
        self._large: LargeCall | None = None
        self._dependencies: tuple[Future, ...] = ()
        self._batch = 0
        self._resent = 0
        self._cancel_asked = False
        self._gate: Gate | None = None
        self._state = RUNNING
        self._row: list[Any] | None = None
        self._worker = ""
        self._failed = False
        self._value: Any = NOT_LOADED
        self._error: BaseException | None = None
        self._source: Future | None = None
        self._id = ""

    @classmethod
    def from_id(cls, task_id: str, client: Calls) -> Future:
        """The future of a task that was submitted elsewhere, by its id; `client` is any of the same cluster.

        While the task is unfinished the future is running. Its outcome is there as long as it is kept
        (`Client.options(keep=...)`); `result` raises TaskExpiredError when that time is over, and UnknownTaskError when
        there never was such a task. It can be cancelled. Raises ValueError for what is no id of a task.

            task_id = client.options(keep=3600).submit(long_job).task_id
            Future.from_id(task_id, other_client).result()
        """
        return client._session.watching.future(task_id)

    # --- the gate -----------------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # for a type checker they are what the standard library says

        @property
        def _condition(self) -> Gate | NothingToLock:
            """Made when first needed."""
            found = self._gate
            if found is None:
                with gate.deciding:
                    found = self._gate
                    if found is None:
                        if self._state is not RUNNING:
                            return gate.OPEN_GATE
                        found = Gate()
                        if gristmill.client.waits is not None:  # inside a task
                            found.waiters = Waiters(self)
                        self._gate = found
            return found

        @property
        def _waiters(self) -> list[Any]:
            return self._condition.waiters

        @property
        def _done_callbacks(self) -> list[Callable[[Future], object]]:
            return self._condition.callbacks

    def _settle(self, state: str, patience: float = -1.0) -> bool:
        """Make the outcome, which has been stored before, the final one. Answers as `_open`.

        Called by whoever has taken the future out of the table of unfinished tasks, and by nobody else.
        """
        with gate.deciding:
            found = self._gate
            if found is None:
                self._state = state
                return True
        return self._open(found, state, patience)

    def _open(self, found: Gate, state: str, patience: float = -1.0, *, force: bool = False) -> bool:
        """Settle a future for which somebody waits, or has waited. Answers False when the gate was held for longer
        than `patience` seconds (-1: no limit); with `force` it is settled without the gate then: see `gate`.
        """
        mine = found.acquire(timeout=patience)
        if not mine and not force:
            return False
        try:
            self._state = state
            tell = "add_cancelled" if state is CANCELLED else "add_exception" if self._failed else "add_result"
            for waiter in tuple(found.waiters):
                getattr(waiter, tell)(self)
            if mine:
                found.notify_all()
        finally:
            if mine:
                found.release()
        return True

    def _forget_call(self) -> None:
        """The call is needed no more: it will not be sent again."""
        self._function = self._call = self._large = self._options = None
        self._dependencies = ()

    def run_callbacks(self) -> None:
        """Call what was added by `add_done_callback`, in order; exceptions are logged."""
        self._invoke_callbacks()  # type: ignore[attr-defined]  # the standard library's

    def watch(self, watcher: Callable[[Future], object]) -> None:
        """Call the client's own `watcher`, which waits for nothing, in the I/O thread once this is done; or now."""
        condition: Any = self._condition
        with condition:
            if self._state is RUNNING:
                condition.watchers.append(watcher)
                return
        watcher(self)

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
        session = self._session
        if self._state is RUNNING and (session is None or not session.before_wait(self, timeout)):
            condition = self._condition
            with condition:
                if self._state is RUNNING:
                    condition.wait(timeout)
        state = self._state
        if state is CANCELLED:
            raise CancelledError
        if state is RUNNING:
            why = f"; it waits: {reason}" if (reason := self.waiting_for) else ""
            raise concurrent.futures.TimeoutError(f"task {self.task_id} has not finished within {timeout} s{why}")

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
        if self._state is not FINISHED:
            self._await(timeout)
        if self._value is not NOT_LOADED:
            return self._value
        error: BaseException | None = None
        try:
            error = load(self)
            if error is not None:
                raise error
            return self._value
        finally:
            # An exception whose traceback holds this frame must not hold the future that holds the exception.
            del error
            self = None  # type: ignore[assignment]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception the task raised, or None; waits, and raises, as `result` does."""
        if self._state is not FINISHED:
            self._await(timeout)
        return None if self._value is not NOT_LOADED else load(self)

    def __await__(self) -> Generator[Any, None, Any]:
        """The value, as `result` gives it, without blocking the event loop: `await client.submit(function)`."""
        from gristmill.client.awaiting import awaited

        return awaited(self)

    def traceback(self, timeout: float | None = None) -> str | None:
        """The traceback of the process that ran the task, as text; None when it succeeded. Waits as `result` does."""
        error = self.exception(timeout)
        cause = None if error is None else error.__cause__
        return cause.text if isinstance(cause, payloads.RemoteTraceback) else None if error is None else str(error)

    @property
    def is_large(self) -> bool:
        """Whether the value is here in name only: looking at it fetches it."""
        row = (self._source or self)._row
        return row is not None and row[3] is not None and not isinstance(row[3], (str, dict))

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

    @property
    def waiting_for(self) -> str:
        """Why no worker takes the task, when it has waited for some seconds: a sentence, with what to do; else empty.

        future.waiting_for  # "no worker offers gpu; start one: gristmill worker --capabilities gpu"
        """
        if self._state is not RUNNING or self._session is None:
            return ""
        return self._session.lookout.reason((self._options or {}).get("lane"))

    def profiling_info(self) -> Profile:
        """What the task took; raises ValueError when it is not done."""
        if not self.done():
            raise ValueError(f"task {self.task_id} is not done: wait for it first")
        return profile_of(self)

    def __repr__(self) -> str:
        state = self._state
        text = "running" if state is RUNNING else "cancelled" if state is CANCELLED else "finished"
        if state is FINISHED and self._failed:
            text = "failed"
        return f"<Future {self.task_id or hex(id(self))} {text}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from gristmill.client.notebook import table

        rows = {"state": repr(self)[1:-1].rpartition(" ")[2]}
        if self.waiting_for:
            rows["it waits"] = self.waiting_for
        if self.done() and self._row is not None:
            profile = self.profiling_info()
            rows |= {"took": f"{profile.duration_s:.3f} s", "worker": profile.worker, "attempt": str(profile.attempt)}
        return table(f"Future {self.task_id}", rows)

    # --- cancelling ---------------------------------------------------------------------------------------

    def cancel(self, timeout: float | None = CANCEL_SECONDS) -> bool:
        """Cancel the task, also while it executes, and wait for the answer at most `timeout` seconds.

        Returns True when it ended cancelled, and False when its outcome was first (or no answer came in time;
        the request stands then). The dependents of a cancelled task are cancelled too. In the thread of an event loop
        it does not wait: there the answer is False unless it is known at once.
        """
        if self._session is None:
            self._finish_alone(CANCELLED)
        elif self._state is RUNNING:
            self._session.cancel([self])
            self.await_end(0 if _in_event_loop() else timeout)
        return self._state is CANCELLED

    # --- for executors and tests --------------------------------------------------------------------------

    def _finish_alone(self, state: str, value: Any = None, error: BaseException | None = None) -> bool:
        """Settle a future that is not a client's. Answers False when it is done already."""
        found: Any = self._condition
        with found:
            if not isinstance(found, Gate) or self._state is not RUNNING:
                return False
            self._value = value
            if error is not None:
                self._value, self._error, self._failed = NOT_LOADED, error, True
            self._open(found, state)
        for watcher in found.watchers:
            watcher(self)
        self.run_callbacks()
        return True

    def set_result(self, result: Any) -> None:
        """Set the value of a future that no client made; raises InvalidStateError when it is done."""
        if self._session is not None or not self._finish_alone(FINISHED, value=result):
            self._refuse_outcome()

    def set_exception(self, exception: BaseException | None) -> None:
        """Set the exception of a future that no client made; raises InvalidStateError when it is done."""
        if self._session is not None or not self._finish_alone(FINISHED, error=exception):
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
        error = load(self) if self._failed else None
        if error is not None:
            return (_failed, (self.task_id, error))
        return (_succeeded, (self.task_id, bytes(value_bytes(self))))


def _in_event_loop() -> bool:
    """Whether this thread runs an event loop, which nothing may block."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _succeeded(task_id: str, data: bytes) -> Future:
    future = Future()
    future._id = task_id
    future._row = [0, 0, SUCCESS, payloads.text_of(data), 0, 0, 0, 0]
    future._state = FINISHED
    return future


def _failed(task_id: str, error: BaseException) -> Future:
    future = Future()
    future._id = task_id
    future.set_exception(error)
    return future


def _cancelled(task_id: str) -> Future:
    future = Future()
    future._id = task_id
    future._state = CANCELLED
    return future
