"""What waits to be sent, and what one write holds.

Whoever sends (a calling thread or the I/O thread, never both: see `session`) asks `compose` for everything that may go
now: several batches of tasks with the objects that they need, then cancels, releases and the rest, and at the end two
questions: is the intake open, and up to which batch has the record come? One write, and one turn of replies.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import hiredis
import orjson

from gristmill.client import batches
from gristmill.client.functions import FunctionObject, Functions
from gristmill.client.future import Future
from gristmill.client.leaves import Leaf
from gristmill.client.references import BORROWED
from gristmill.client.serializer import LargeCall, named
from gristmill.errors import ConnectionLostError, RedisRefusedError
from gristmill.protocol.buffers import with_objects
from gristmill.protocol.keys import Keys
from gristmill.protocol.payloads import object_id
from gristmill.protocol.signing import signer
from gristmill.store.connection import ReplyError, pack
from gristmill.store.objects import object_writes

WRITE_BATCHES = 16
WRITE_BYTES = 8 << 20
"""One write holds at most this many batches and about this many bytes."""
UNAPPLIED_BATCHES = 64
"""So many batches may lie in the request stream unapplied: nobody's flood holds up the others."""
CANCELS_PER_REQUEST = 100
ASK_BATCHES = 4
ASK_SECONDS = 0.05
"""The two questions go with every write that is so many batches, or so long, after the last that asked."""

ASKED_AT_ONCE = 500
ASKED, KNOWN = -1, -2
"""The batch of a task that was sent under an earlier registration: not yet, or already said to be there."""

OPEN = b"open"


class Write(NamedTuple):
    """What one write holds and what its replies mean."""

    data: bytes
    replies: int
    asked: bool
    """Whether the last two replies are the answers to the questions."""
    batch: int
    """The last batch in it, 0 for none."""
    large: list[LargeCall]
    """Calls whose bytes are needed no more once Redis has them."""
    sent: float
    """When it was composed (monotonic seconds)."""


def refused_tasks(write: Write, replies: list[Any]) -> list[int]:
    """The numbers of the tasks whose batches were answered by an error."""
    commands = hiredis.Reader()
    commands.feed(write.data)
    numbers: list[int] = []
    for reply in replies:
        command = commands.gets()
        if isinstance(reply, ReplyError) and command[0] == b"XADD" and command[3] == b"tasks":
            numbers += [row[0] for row in orjson.loads(command[4])["tasks"]]
    return numbers


class Outbox:
    """The queues of one client. `waiting` and `cancels` may be appended to by any thread without a lock."""

    def __init__(self, keys: Keys, lane: str, upload: Callable[[Leaf], bool] = lambda leaf: True) -> None:
        """`upload` uploads a leaf anew; it answers False when that has changed."""
        self.keys = keys
        self.signer = signer(keys.namespace)
        self.lane = lane
        self.priority = 0
        """Of tasks that name none; 0 outside of tasks."""
        self._upload = upload
        self.client = ""
        self.functions = Functions()
        self.leaves = self.functions.leaves
        self.waiting: deque[Future] = deque()
        self.cancels: deque[Future] = deque()
        self.requests: deque[bytes] = deque()
        """Other packed commands, each with one reply; what is lost with the connection is not sent again."""
        self.lasting: deque[bytes] = deque()
        """Those that are sent again until Redis has answered: twice is as good as once."""
        self.unanswered: list[bytes] = []
        """Those of them that the last write held; without an answer so far."""
        self.dropped: list[Future] = []
        """Cancelled before they were sent."""
        self.lost: list[Future] = []
        """To be sent again, but their arguments have changed."""
        self.unsendable: list[tuple[Future, Exception]] = []
        """They cannot be packed, and why."""
        self.refused: list[int] = []
        """Numbers of tasks that a full Redis did not take: nothing of them is there."""
        self.full = False
        """Whether Redis was full at the last write."""
        self.large_added = 0
        """Bytes of large calls that were queued so far (written by callers, under the session's lock)."""
        self.large_taken = 0
        """Bytes of large calls that were packed so far (written by whoever composes)."""
        self.ask = False
        """Ask the two questions although nothing is to be sent."""
        self.trim_from = ""
        """Inbox entries before this one are handled."""
        self.last_beat = time.monotonic()
        self._object_numbers = itertools.count(1)
        self._resend: deque[tuple[int, list[Future]]] = deque()
        self.registration = 0
        self.last = 0
        """The last batch that was packed."""
        self.applied = 0
        """The batch up to which all are applied, as far as is known."""
        self.intake = OPEN
        self._asked_batch = 0
        self._asked_at = 0.0
        self.asked: dict[int, Future] = {}
        """Sent under an earlier registration: the schedulers are asked whether there are records of them."""
        self.much_needing: WeakValueDictionary[int, Future] = WeakValueDictionary()
        """Tasks with more dependencies than a row has, by number: `depend` brings the rest."""
        self._submit_key = self.keys.submit()
        self._cancels_key = self.keys.cancels()
        self._ask_intake = pack(("GET", self.keys.intake()))
        self._ask_record = b""

    # --- registrations ------------------------------------------------------------------------------------

    def begin(self, client: str, registration: int, table: dict[int, Future]) -> None:
        """A registration begins: batches count from 1. What was sent before is asked for, the rest is sent."""
        # In this order: a caller enters its task into the table first and into the queue then, so that it may be
        # here twice (the second is passed over), but is never left out.
        self.waiting.clear()
        unfinished = [future for _, future in sorted(table.copy().items())]
        self.client = client
        self.registration = registration
        self.last = self.applied = 0
        self._asked_batch, self._asked_at = 0, 0.0
        self.intake = OPEN
        self._resend.clear()
        self._ask_record = self.record_question()
        self.asked = {future._number: future for future in unfinished if future._batch}
        for future in self.asked.values():
            future._batch = ASKED
        unsent = [future for future in unfinished if not future._batch]
        self.waiting.extend(unsent)
        self.large_taken = self.large_added - sum(f._large.size for f in unsent if f._large is not None)
        self._ask_known()

    def _ask_known(self) -> None:
        """Which of the tasks of an earlier registration are there? Those that are not come back by `lost`."""
        numbers = iter(sorted(self.asked))
        while some := list(itertools.islice(numbers, ASKED_AT_ONCE)):
            body = batches.body(client=self.client, registration=self.registration, tasks=some)
            self.requests.append(pack(("XADD", self._cancels_key, "*", "known", body)))
        self.cancels.extend(future for future in self.asked.values() if future._cancel_asked)
        # Of a list of references: callers add to it at any time.
        much = [future for found in self.much_needing.valuerefs() if (future := found()) is not None]
        self.requests += self._depend_requests(much)

    def resume(self, applied: int, table: dict[int, Future]) -> None:
        """The record is at `applied`: what later batches carried is sent again, in the same batches."""
        unfinished = list(table.values())
        self.applied = applied
        groups: dict[int, list[Future]] = {number: [] for number in range(applied + 1, self.last + 1)}
        for future in unfinished:
            if future._batch in groups:
                groups[future._batch].append(future)
        self._resend = deque(groups.items())
        # An interrupt may have come between taking tasks from the queue and giving them a batch. One that a caller is
        # just about to queue is here twice then: the second is passed over.
        queued = set(self.waiting.copy())
        self.waiting.extendleft(future for future in reversed(unfinished) if not future._batch and future not in queued)
        self.asked = {number: future for number, future in self.asked.items() if number in table}
        self._ask_known()
        self.cancels.extend(future for future in unfinished if future._cancel_asked)

    def repeat_unanswered(self) -> None:
        """The connection was lost, or Redis refused something."""
        self.lasting.extendleft(reversed(self.unanswered))
        self.unanswered.clear()

    def record_question(self) -> bytes:
        """The packed question for the client's record: registration, batch, ended."""
        return pack(("HMGET", self.keys.client(self.client), "registration", "batch", "ended"))

    # --- composing ----------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Whether something waits, be it allowed to go now or not."""
        return bool(
            self.waiting or self.urgent or self.dropped or self.lost or self.unsendable or self.functions.released
        )

    @property
    def urgent(self) -> bool:
        """Whether something waits that may go although no more tasks may."""
        return bool(self.cancels or self.requests or self.lasting or self._resend or self.ask)

    @property
    def may_send_tasks(self) -> bool:
        """Whether the intake is open and not too many batches are unapplied."""
        return self.last - self.applied < UNAPPLIED_BATCHES and self.intake == OPEN

    @property
    def large_waiting(self) -> int:
        """Bytes of large calls that are not yet packed."""
        return self.large_added - self.large_taken

    def compose(self) -> Write | None:
        """Everything that may go now; None when nothing may."""
        commands: list[bytes] = []
        large: list[LargeCall] = []
        batch = size = 0
        while self._resend and len(commands) < WRITE_BATCHES and size < WRITE_BYTES:
            batch, rows = self._resend.popleft()
            size += self._pack_batch(commands, large, batch, rows, upload=True)
        count = 0
        while (
            self.waiting and not self._resend and count < WRITE_BATCHES and size < WRITE_BYTES and self.may_send_tasks
        ):
            rows = self._take_rows()
            if not rows:
                break
            count += 1
            batch = self.last = self.last + 1
            for future in rows:
                future._batch = batch
                if future._large is not None:
                    self.large_taken += future._large.size
            size += self._pack_batch(commands, large, batch, rows, upload=False)
        asked = self.ask or (bool(batch) and (self.full or self._is_time_to_ask(batch)))
        self._pack_cancels(commands)
        self._pack_releases(commands)
        while self.requests:
            commands.append(self.requests.popleft())
        while self.lasting:
            self.unanswered.append(self.lasting[0])
            commands.append(self.lasting.popleft())
        if not commands and not asked:
            return None
        if self.trim_from:
            commands.append(pack(("XTRIM", self.keys.client_inbox(self.client), "MINID", self.trim_from)))
            self.trim_from = ""
        if asked:
            self.ask = False
            self._asked_batch, self._asked_at = self.last, time.monotonic()
            commands.append(self._ask_intake)
            commands.append(self._ask_record)
        return Write(b"".join(commands), len(commands), asked, batch, large, time.monotonic())

    def _is_time_to_ask(self, batch: int) -> bool:
        """Whether the answers that are known are old: one task at a time need not ask with each."""
        return batch - self._asked_batch >= ASK_BATCHES or time.monotonic() - self._asked_at > ASK_SECONDS

    def _take_rows(self) -> list[Future]:
        """The next batch. Tasks whose cancel was asked for meanwhile never leave."""
        rows = batches.cut_batch(self.waiting)
        dropped = [future for future in rows if future._cancel_asked]
        if dropped:
            self.dropped += dropped
            rows = [future for future in rows if not future._cancel_asked]
        return rows

    def _pack_batch(
        self,
        commands: list[bytes],
        large: list[LargeCall],
        batch: int,
        rows: list[Future],
        *,
        upload: bool,
    ) -> int:
        """Pack one batch, objects first; returns its bytes."""
        start = len(commands)
        for future in tuple(rows):
            try:
                if future._large is not None and not self._upload_call(commands, large, batch, rows, future):
                    continue
                if future._function is not None and future._function.leaves:
                    self._upload_leaves(future._function.leaves, batch, future, rows)
            except (ConnectionLostError, RedisRefusedError):
                raise
            except Exception as error:
                self.unsendable.append((future, error))
                rows.remove(future)
        index = batches.functions_of(rows)
        for function in index:
            function.last_batch = batch
            if upload or function.uploaded != self.registration:
                self._upload_function(commands, function)
        try:
            body = self._tasks_body(batch, rows, index)
        except Exception:
            self._take_unsendable(batch, rows)
            body = self._tasks_body(batch, rows, batches.functions_of(rows))
        commands.append(pack(("XADD", self._submit_key, "*", "tasks", body)))
        if self.much_needing:
            commands += self._depend_requests(rows)
        return sum(map(len, commands[start:]))

    def _tasks_body(self, batch: int, rows: list[Future], index: dict[FunctionObject, int]) -> bytes:
        facts = (self.client, self.registration, batch, self.lane)
        return batches.tasks_body(*facts, rows, index, priority=self.priority, signer=self.signer)

    def _take_unsendable(self, batch: int, rows: list[Future]) -> None:
        """Something in a batch cannot be packed: the others go without it, or nothing would ever go again."""
        for future in tuple(rows):
            try:
                self._tasks_body(batch, [future], batches.functions_of([future]))
            except Exception as error:
                self.unsendable.append((future, error))
                rows.remove(future)

    def _depend_requests(self, futures: Iterable[Future]) -> list[bytes]:
        """What brings the rest of the dependencies of those that have very many. They may be sent again."""
        much = [future for future in futures if future._number in self.much_needing]
        return [
            pack(("XADD", self._submit_key, "*", "depend", body))
            for future in much
            for body in batches.depend_bodies(future)
        ]

    def _signed(self, stem: str, data: Any) -> str:
        return stem if self.signer is None else self.signer.stem(stem, (data,))

    def _upload_function(self, commands: list[bytes], function: FunctionObject) -> None:
        data = function.data
        if function.leaves:
            data = with_objects(map(named, function.leaves), data)
        if function.uploaded != self.registration:
            # A new id with each registration: the old object may just be being freed.
            stem = self._signed(f"{self.client}.f{next(self._object_numbers)}", data)
            function.object_id = object_id(stem, len(data))
            function.uploaded = self.registration
        commands += object_writes(self.keys, function.object_id, data)

    def _upload_leaves(self, leaves: Iterable[Leaf], batch: int, future: Future, rows: list[Future]) -> bool:
        """See to it that Redis has these objects; mostly they were uploaded before the call was queued."""
        for leaf in leaves:
            if leaf.uploaded != self.registration and leaf.uploaded != BORROWED and not self._upload(leaf):
                self.lost.append(future)
                rows.remove(future)
                return False
            leaf.last_batch = batch
        return True

    def _upload_call(
        self, commands: list[bytes], large: list[LargeCall], batch: int, rows: list[Future], future: Future
    ) -> bool:
        call = future._large
        assert future._session is not None
        assert call is not None
        data = call.bytes_again(future._session)
        if data is None:
            self.lost.append(future)
            rows.remove(future)
            return False
        if not self._upload_leaves(call.leaves, batch, future, rows):
            return False
        if not call.is_inline:
            data = call.with_ids(data)
            stem = f"{self.client}.c{future._number}"
            stem = self._signed(f"{stem}.{future._resent}" if future._resent else stem, data)
            call.object_id = object_id(stem, len(data))
            call.object_size = len(data)
            commands += object_writes(self.keys, call.object_id, data)
            if not call.keep:
                large.append(call)
        return True

    def _pack_cancels(self, commands: list[bytes]) -> None:
        """Cancels name the batch that must be applied before; what was never sent is dropped here."""
        while self.cancels:
            ids: list[str] = []
            after = 0
            while self.cancels and len(ids) < CANCELS_PER_REQUEST:
                future = self.cancels.popleft()
                if future._batch == 0:
                    self.dropped.append(future)
                elif not future.done():
                    ids.append(future.task_id)
                    after = max(after, future._batch)
            if ids:
                self._request(commands, "cancel", tasks=ids, after=after, reason="")

    def _pack_releases(self, commands: list[bytes]) -> None:
        released = self.functions.released
        while released:
            objects: list[str] = []
            after = 0
            while released and len(objects) < CANCELS_PER_REQUEST:
                name, batch, registration = released.popleft()
                if registration in (self.registration, BORROWED):  # an earlier one's are gone with its record
                    objects.append(name)
                    after = max(after, batch)
            if objects:
                self._request(commands, "release", objects=objects, after=after)

    def _request(self, commands: list[bytes], kind: str, **fields: Any) -> None:
        body = batches.body(client=self.client, **fields)
        commands.append(pack(("XADD", self._cancels_key, "*", kind, body)))

    def disconnect_request(self, after: int) -> bytes:
        """The packed request by which the client goes when its batches up to `after` are applied."""
        body = batches.body(client=self.client, after=after)
        return pack(("XADD", self._cancels_key, "*", "disconnect", body))

    def beat(self, figures: dict[str, float]) -> bytes:
        """The packed request by which the client's lease is renewed."""
        body = batches.body(client=self.client, **figures)
        return pack(("XADD", self.keys.heartbeats(), "MAXLEN", "~", 10_000, "*", "client_beat", body))
