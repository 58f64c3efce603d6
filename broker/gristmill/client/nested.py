"""Waiting inside a task: a task that waits for a future gives its slot up (`gristmill_worker.pauses`).

Whoever waits for a future leaves a waiter with it, as the `wait` and `as_completed` of `concurrent.futures` do; its
event is a `Pause`, which knows for what it waits and lets the processor see to the rest.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import gristmill.client
from gristmill.client import batches
from gristmill.store.connection import pack

if TYPE_CHECKING:
    from gristmill.client.future import Future
    from gristmill.client.session import Session

MOST_NAMED = 100
"""So many tasks are offered to be run by the waiting task itself."""
FIRST_SECONDS, LONGEST_SECONDS = 0.01, 0.5
"""After the answer that there is none it is asked again: soon at first, then twice as late each time."""
ANSWER_SECONDS = 2.0
"""Without an answer for so long it is asked again."""


class Waits(Protocol):
    """What a processor does while its task waits (`gristmill_worker.pauses.Pauses`)."""

    def pause(self, pause: Pause, timeout: float | None) -> bool:
        """Wait until `pause.sleep` says that it is over, at most `timeout` seconds; answers whether it is."""

    def priority_of(self, task: str) -> int:
        """The priority of a task that executes here."""


class Pause:
    """Stands for a `threading.Event` while a task waits for futures."""

    def __init__(self) -> None:
        self.futures: list[Future] = []
        """What is waited for."""
        self._claims: dict[Session, Claims] = {}
        self._changed = threading.Condition()
        self._over = False

    def is_set(self) -> bool:
        """Whether what is waited for has come."""
        return self._over

    def set(self) -> None:
        """It has come."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def clear(self) -> None:
        """Wait for the next."""
        with self._changed:
            self._over = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait as a task does; answers whether it has come."""
        waits = gristmill.client.waits
        if self._over or waits is None:
            return self._over or self.sleep(timeout)
        return waits.pause(self, timeout)

    def sleep(self, timeout: float | None) -> bool:
        """Wait as any thread does, at most until somebody calls `stir`."""
        with self._changed:
            if not self._over:
                self._changed.wait(timeout)
            return self._over

    # --- what the main thread of the task runs itself -------------------------------------------------------

    def claim(self, worker: str) -> None:
        """Ask for a child to run here, at this worker, if none is being asked for."""
        for future in self.futures:
            session = future._session
            if session is not None and session.claims is not None and not future.done():
                self._claims[session] = session.claims
                session.claims.ask(self, worker)
                return

    def take_call(self) -> list[bytes] | None:
        """The call of a child to run here, once it has come: the fields of an entry."""
        return next((call for claims in self._claims.values() if (call := claims.take()) is not None), None)

    def end_claims(self) -> None:
        """Nobody will run anything here any more: what still comes goes back."""
        for claims in self._claims.values():
            claims.end()

    def stir(self) -> None:
        """End a `sleep`, although nothing has come."""
        with self._changed:
            self._changed.notify_all()


class Claims:
    """What one nested client has asked for. Asked by the main thread of the task, answered in the I/O thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._worker = ""
        self._pause: Pause | None = None
        """Who takes calls now."""
        self._calls: deque[list[bytes]] = deque()
        self._lock = threading.Lock()
        self._number = 0
        self._answered: set[int] = set()
        self._next = 0.0
        self._patience = FIRST_SECONDS

    def ask(self, pause: Pause, worker: str) -> None:
        """Ask for one of the session's unfinished tasks, first those that are waited for; not too often."""
        now = time.monotonic()
        if now < self._next:
            return
        session = self._session
        wanted = [future for future in pause.futures if future._session is session and not future.done()]
        others = itertools.islice(session.unfinished.copy().values(), MOST_NAMED)
        named = dict.fromkeys([*wanted[:MOST_NAMED], *others])
        sent = [future for future in named if future._batch][:MOST_NAMED]
        if not sent:
            return
        with self._lock:
            self._pause, self._worker = pause, worker
            self._number += 1
            self._next = now + ANSWER_SECONDS
        body = batches.body(
            client=session.client_id,
            worker=worker,
            claim=self._number,
            tasks=[future.task_id for future in sent],
            after=max(future._batch for future in sent),
        )
        session.outbox.requests.append(pack(("XADD", session.keys.cancels(), "*", "claim", body)))
        session.hand_over()

    def take(self) -> list[bytes] | None:
        """A call that has come."""
        with self._lock:
            return self._calls.popleft() if self._calls else None

    def end(self) -> None:
        """Nobody takes calls any more."""
        with self._lock:
            self._pause = None
            calls = list(self._calls)
            self._calls.clear()
        for call in calls:
            self._give_back(call)

    def answer(self, number: int, fields: list[str] | None) -> None:
        """What the schedulers say (I/O thread). It may come twice."""
        with self._lock:
            if number in self._answered:
                return
            self._answered.add(number)
            pause = self._pause
            call = None if fields is None else [text.encode() for text in fields]
            if number == self._number:
                self._patience = FIRST_SECONDS if fields else min(2 * self._patience, LONGEST_SECONDS)
                self._next = 0.0 if fields else time.monotonic() + self._patience
            if call is not None and pause is not None:
                self._calls.append(call)
        if call is not None and pause is None:
            self._give_back(call)
        elif pause is not None:
            pause.stir()

    def _give_back(self, call: list[bytes]) -> None:
        session = self._session
        task, attempt, *_ = call[1].decode().split(" ", 2)
        body = batches.body(worker=self._worker, tasks=[(task, int(attempt))])
        session.outbox.lasting.append(pack(("XADD", session.keys.results(), "*", "returned", body)))
        session.hand_over()


class Waiters(list[Any]):
    """Who waits for one future of a task's: each waits by a `Pause`."""

    def __init__(self, future: Future) -> None:
        super().__init__()
        self._future = future

    def append(self, waiter: Any) -> None:
        """Called while the futures of the waiter are locked: nothing has used its event yet."""
        if type(waiter.event) is not Pause:
            waiter.event = Pause()
        waiter.event.futures.append(self._future)
        super().append(waiter)


class Waiter:
    """Waits for one future."""

    def __init__(self) -> None:
        self.event = Pause()

    def add_result(self, _: object) -> None:
        """It has succeeded."""
        self.event.set()

    add_exception = add_cancelled = add_result


def wait_for(future: Future, timeout: float | None) -> None:
    """Wait for a future inside a task, at most `timeout` seconds."""
    condition: Any = future._condition
    waiter = Waiter()
    with condition:
        if future.done():
            return
        condition.waiters.append(waiter)
    try:
        waiter.event.wait(timeout)
    finally:
        with condition:
            if waiter in condition.waiters:
                condition.waiters.remove(waiter)
