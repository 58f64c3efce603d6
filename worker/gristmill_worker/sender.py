"""What the agent sends to Redis: a thread of its own, so that a slow Redis never stops the agent from watching.

Requests go in order, each until Redis has taken it: losing the connection, and a Redis that refuses for a while,
pass. So a request may arrive twice, and all that the agent sends can be applied twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from gristmill.errors import ConnectionLostError
from gristmill.store.connection import ELSEWHERE, Connection, ReplyError, backoff
from gristmill_worker.board import clock_ns

logger = logging.getLogger(__name__)

PASSING = frozenset(
    ("OOM", "READONLY", "LOADING", "BUSY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOPERM")
)
"""Codes of refusals that end some day."""
FINAL = frozenset(("ERR", "WRONGTYPE", "NOGROUP"))
"""Codes of refusals that would come again. NOGROUP is no error: the worker's stream went with its record."""


class Answer(NamedTuple):
    """What came back for a request."""

    replies: list[Any]
    """One for each command; an error reply is a ReplyError."""
    sent_at: int
    """Of `clock_ns`, when it was sent for the last time."""
    took_seconds: float


Then = Callable[[Answer], None]


class Sender:
    """One connection, one thread."""

    def __init__(
        self,
        address: str,
        name: str,
        call: Callable[[Callable[[], None]], None],
        on_server: Callable[[str], None] = lambda run_id: None,
    ) -> None:
        """`call` has a function run in the main thread: answers arrive there, and the `run_id` of another server."""
        self.server = ""
        """The `run_id` of the server that was reached last."""
        self._on_server = on_server
        self._connection = Connection(address, name=name)
        self._call = call
        self._requests: deque[tuple[list[bytes], Then | None]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._refused = False
        self._trouble = ""
        """What went wrong last: what is unexpected is told once."""
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._thread.start()

    def post(self, commands: list[bytes], then: Then | None = None) -> None:
        """Send packed commands in one pipeline; `then` gets the answer."""
        with self._changed:
            self._requests.append((commands, then))
            self._changed.notify_all()

    def forget(self) -> None:
        """Send nothing of what still waits: it speaks for a worker id that is dead."""
        with self._changed:
            self._requests.clear()

    def finish(self, patience: float) -> bool:
        """Send what waits, for at most `patience` seconds, then stop; whether all was sent."""
        deadline = time.monotonic() + patience
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                while not self._requests and not self._stopping:
                    self._changed.wait()
                if not self._requests:
                    break
                request = self._requests[0]
            if self._try(*request):
                failures = 0
                with self._changed:
                    if self._requests and self._requests[0] is request:
                        self._requests.popleft()
            else:
                failures += 1
                time.sleep(backoff(failures))
        self._connection.close()

    def _note_server(self, run_id: str) -> None:
        before, self.server = self.server, run_id
        if before and before != run_id:
            self._call(lambda: self._on_server(run_id))

    def _try(self, commands: list[bytes], then: Then | None) -> bool:
        """Send one request; whether Redis has answered for good."""
        connection = self._connection
        try:
            if not connection.connected:
                connection.connect()
                self._note_server(connection.run_id)
            sent_at, began = clock_ns(), time.perf_counter()
            connection.send(*commands)
            replies = [connection.read() for _ in commands]
        except Exception as error:
            # Whatever it is: without this thread the worker could not say anything.
            connection.close()
            unexpected = not isinstance(error, (ConnectionLostError, ReplyError))
            level = logging.ERROR if unexpected and str(error) != self._trouble else logging.DEBUG
            logger.log(level, "not sent; trying again", extra={"cause": str(error)}, exc_info=unexpected)
            self._trouble = str(error)
            return False
        refusal = next((reply for reply in replies if isinstance(reply, ReplyError) and reply.code not in FINAL), None)
        if (refusal is not None) != self._refused:
            self._refused = refusal is not None
            if refusal is not None:
                level = logging.WARNING if refusal.code in PASSING else logging.ERROR
                logger.log(level, "Redis refuses what the worker reports; trying again", extra={"cause": str(refusal)})
            else:
                logger.info("Redis takes again what the worker reports")
        if refusal is not None:
            if refusal.code in ELSEWHERE:
                connection.close()
            return False
        for reply in replies:
            if isinstance(reply, ReplyError) and reply.code != "NOGROUP":
                logger.error("Redis does not take what the worker reports; it is lost", extra={"cause": str(reply)})
        if then is not None:
            answer = Answer(replies, sent_at, time.perf_counter() - began)
            self._call(lambda: then(answer))
        return True
