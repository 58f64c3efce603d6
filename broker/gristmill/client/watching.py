"""Futures of tasks that are known by their ids only: `Future.from_id`.

The schedulers are asked once for each, and again after a loss; what they answer comes by the inbox, when the task has
ended or at once when nobody knows it (any more).
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from gristmill.client import batches
from gristmill.client.future import CANCELED_STATES, CANCELLED, FINISHED, RUNNING, SUCCESS, Future
from gristmill.errors import ClientClosedError, QueueFullError, TaskExpiredError, UnknownTaskError
from gristmill.store.connection import pack

if TYPE_CHECKING:
    from gristmill.client.session import Session

_TASK_ID = re.compile(r"([A-Za-z0-9_-]{1,64})\.([0-9]{7,10})\Z")

_GONE = {
    "expired": (
        TaskExpiredError,
        "the outcome of task {} has expired: it was not submitted with options(keep=...), or that time is over",
    ),
    "unknown": (UnknownTaskError, "expected the id of a task that was submitted; got {}; nobody knows it"),
    "crowded": (QueueFullError, "too many clients wait for task {}: ask again later"),
}


class Watching:
    """The tasks of others that one session waits for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self.futures: dict[str, list[Future]] = {}
        """By id of the task; who takes a list out settles what is in it."""
        self._ended: ClientClosedError | None = None

    def future(self, task: str) -> Future:
        """The future of any task; raises ValueError for what is no id."""
        found = _TASK_ID.match(task) if isinstance(task, str) else None
        if found is None:
            raise ValueError(f"expected the id of a task, such as AbCdEfGhIj.0000042 (`future.task_id`); got {task!r}")
        session = self._session
        session.check_open()
        if found[1] == session.client_id and (own := session.unfinished.get(int(found[2]))) is not None:
            return own
        future = Future(session)
        future._id = task
        with self._lock:
            if self._ended is not None:  # since the session was asked whether it is open
                raise self._ended
            asked = task in self.futures
            self.futures.setdefault(task, []).append(future)
        if not asked:
            self._ask(task)
        return future

    def ask_again(self) -> None:
        """After a loss: whoever is asked answers twice at worst."""
        for task in list(self.futures):
            self._ask(task)

    def _ask(self, task: str) -> None:
        session = self._session
        body = batches.body(client=session.client_id, task=task)
        session.outbox.requests.append(pack(("XADD", session.keys.cancels(), "*", "watch", body)))
        session.hand_over()

    def cancel(self, task: str) -> None:
        """Ask for the end of a task, as a person does who knows its id."""
        session = self._session
        reason = f"cancelled by client {session.client_id}"
        body = batches.body(tasks=[task], client="", after=0, reason=reason)
        session.outbox.lasting.append(pack(("XADD", session.keys.cancels(), "*", "cancel", body)))
        session.hand_over()

    def answer(self, message: dict[str, Any]) -> None:
        """What the schedulers say about one task."""
        task = message["task"]
        with self._lock:
            futures = self.futures.pop(task, [])
        for future in futures:
            if "row" in message:
                state = self._take_outcome(future, message["row"], message["worker"])
            else:
                error, text = _GONE[message["gone"]]
                future._failed, future._error = True, error(text.format(task))
                state = FINISHED
            self._session.inbox.settle(future, state)

    def _take_outcome(self, future: Future, row: list[Any], worker: str) -> str:
        future._row, future._worker = row, worker
        if row[2] in CANCELED_STATES:
            return CANCELLED
        future._failed = row[2] != SUCCESS
        if type(row[3]) is dict and "object" in row[3]:
            row[3] = self._session.inbox.large_value(row[3])
        return FINISHED

    def end(self, error: ClientClosedError) -> None:
        """The session ends: nobody will answer."""
        with self._lock:
            self._ended = error
            left, self.futures = self.futures, {}
        for futures in left.values():
            for future in futures:
                if future._state is RUNNING:
                    future._failed, future._error = True, error
                    self._session.inbox.settle(future, FINISHED)
