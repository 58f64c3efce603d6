"""What the agent reports, in the words of `messages`."""

from __future__ import annotations

from collections import deque
from typing import Any

import orjson

from gristmill.protocol import kinds, messages
from gristmill.protocol.keys import GROUP_PROCESSORS, Keys
from gristmill.protocol.kinds import Request
from gristmill.protocol.messages import Confirm
from gristmill.store.connection import ReplyError, pack
from gristmill_worker.board import Held, clock_ns
from gristmill_worker.execution import FAILED, RETRY, error_line, wants_retry
from gristmill_worker.sender import Answer, Sender, Then

HEARTBEATS_KEPT = 10_000
REMEMBERED_NS = 10_000_000_000
RETURNED_AT_ONCE = 500


class Reports:
    """Everything that one worker id says."""

    def __init__(self, sender: Sender, keys: Keys, worker: str) -> None:
        self._sender = sender
        self._keys = keys
        self.worker = worker
        self._recent: deque[tuple[int, list[Any]]] = deque()

    def register(self, message: messages.WorkerMessage, then: Then) -> None:
        """Ask for a record."""
        self._heartbeat(Request.WORKER, message, then)

    def beat(self, message: messages.BeatMessage, then: Then) -> None:
        """Renew the lease; the answer goes through `is_registered` too.

        A sweep applies the beats that wait before it ends leases: a record that is there after the beat was taken
        is there to stay. One that is gone shows at once, before the processors of an agent that slept start anything.
        """
        record = pack(("HMGET", self._keys.worker(self.worker), "lease_ms", "gone"))
        self._sender.post([self._heartbeat_command(Request.BEAT, message), record], then)

    def drain(self) -> None:
        """No more tasks."""
        self._heartbeat(Request.DRAIN, messages.DrainMessage(worker=self.worker))

    def leave(self) -> None:
        """The worker goes."""
        self._heartbeat(Request.LEAVE, messages.LeaveMessage(worker=self.worker))

    def outcomes(self, rows: bytes, *, again: bool = False) -> None:
        """JSON rows, joined by commas, in place of a processor."""
        if rows:
            if not again:
                self.remember(orjson.loads(b"[%b]" % rows))
            body = b'{"version":%d,"worker":%b,"outcomes":[%b]}' % (kinds.VERSION, orjson.dumps(self.worker), rows)
            self._result(Request.OUTCOMES, body)

    def remember(self, rows: list[Any]) -> None:
        """These outcomes were sent: a new server may not have them."""
        self._recent.append((clock_ns(), rows))
        self.recent(REMEMBERED_NS)

    def recent(self, age_ns: int) -> list[Any]:
        """Outcomes of the last `age_ns` that are in no living processor's board; older ones are forgotten."""
        while self._recent and self._recent[0][0] < clock_ns() - age_ns:
            self._recent.popleft()
        return [row for _, rows in self._recent for row in rows]

    def held(self, number: int, rows: list[tuple[str, int, str]]) -> None:
        """What the processors hold, as (task, attempt, processor), after another server has taken over."""
        message = messages.HeldMessage(worker=self.worker, number=number, tasks=rows)
        self._result(Request.HELD, messages.encode(message))

    def failed(self, held: Held, error: type[Exception], text: str, started_at: int) -> None:
        """A task failed, and its processor cannot say so itself."""
        status = RETRY if wants_retry(held.run, error) else FAILED
        row: list[Any] = [held.task, held.attempt, status.decode(), {"error": error.__name__, "message": text}]
        row += [max(0, clock_ns() - started_at) // 1000, 0, 0, orjson.Fragment(error_line(f"{error.__name__}: {text}"))]
        self.outcomes(orjson.dumps(row))

    def output(self, task: str, attempt: int, lines: list[tuple[str, str]], dropped: int, number: int) -> None:
        """Lines that a task has printed."""
        message = messages.OutputMessage(
            task=task,
            attempt=attempt,
            number=number,
            lines=lines,  # type: ignore[arg-type]
            dropped=dropped,
        )
        self._result(Request.OUTPUT, messages.encode(message))

    def confirm(self, task: str, attempt: int, request: int, answer: Any) -> None:
        """Answer a request of the control stream."""
        confirm = Confirm(task=task, attempt=attempt, request=request, answer=answer)
        self._result(
            Request.CONFIRMS, messages.encode(messages.ConfirmsMessage(worker=self.worker, confirms=[confirm]))
        )

    def returned(self, tasks: list[tuple[str, int]]) -> None:
        """Give back (task, attempt)s that were not started."""
        for first in range(0, len(tasks), RETURNED_AT_ONCE):
            message = messages.ReturnedMessage(worker=self.worker, tasks=tasks[first : first + RETURNED_AT_ONCE])
            self._result(Request.RETURNED, messages.encode(message))

    def suspended(self, message: messages.SuspendedMessage, then: Then) -> None:
        """Say which tasks wait for other tasks."""
        command = pack(("XADD", self._keys.results(), "*", Request.SUSPENDED.value, messages.encode(message)))
        self._sender.post([command], then)

    def unblock(self, connection: int) -> None:
        """End a processor's blocking read now: it shall see what its board says."""
        if connection:
            self._sender.post([pack(("CLIENT", "UNBLOCK", connection))])

    def ask_pending(self, processor: str, connection: int, then: Then) -> None:
        """Which entries a dead processor was handed: the last reply.

        Its connection, if it ever had one, is closed first, so that none follow.
        """
        kill = [pack(("CLIENT", "KILL", "ID", connection))] if connection else []
        stream = self._keys.worker_tasks(self.worker)
        self._sender.post([*kill, pack(("XPENDING", stream, GROUP_PROCESSORS, "-", "+", 10_000, processor))], then)

    def ask_entries(self, entries: list[str], then: Then) -> None:
        """What these entries of the worker's stream say."""
        stream = self._keys.worker_tasks(self.worker)
        self._sender.post([pack(("XRANGE", stream, entry, entry)) for entry in entries], then)

    def forget_consumer(self, processor: str) -> None:
        """Nothing is pending for a dead processor any more: its name can go."""
        stream = self._keys.worker_tasks(self.worker)
        self._sender.post([pack(("XGROUP", "DELCONSUMER", stream, GROUP_PROCESSORS, processor))])

    def _heartbeat(self, kind: Request, message: messages.Message, then: Then | None = None) -> None:
        self._sender.post([self._heartbeat_command(kind, message)], then)

    def _heartbeat_command(self, kind: Request, message: messages.Message) -> bytes:
        stream = self._keys.heartbeats()
        add = ("XADD", stream, "MAXLEN", "~", HEARTBEATS_KEPT, "*", kind.value, messages.encode(message))
        return pack(add)

    def _result(self, kind: Request, body: bytes) -> None:
        self._sender.post([pack(("XADD", self._keys.results(), "*", kind.value, body))])


def is_registered(answer: Answer) -> bool:
    """Whether the worker's record was there, and not marked as gone, after a beat."""
    record = answer.replies[1]
    if isinstance(record, ReplyError):
        return True  # not allowed to look: the scheduler will say
    return record[0] is not None and record[1] is None
