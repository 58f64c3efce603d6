"""One client's life with Redis: two connections, one I/O thread, and the table of what is unfinished.

Who sends. A lone task must not wait for a thread to wake up, and a flood must not be sent task by task. So:

    IDLE    nothing is on its way. The thread that submits packs and sends itself, under the lock, and leaves LONE.
    LONE    a caller has sent; nobody reads the replies yet. The next to submit reads them if they are there, and sends
            itself again; else it hands over to the I/O thread: BUSY.
    BUSY    the I/O thread alone uses the command connection. Callers append to the outbox and go on, without a lock.
            It reads the replies, sends all that has collected meanwhile, and when nothing has: IDLE.
    CLOSED  the end.

No task is left lying: a caller first appends and then looks at the state; the I/O thread first makes it IDLE, under
the lock, and then looks at the outbox once more. Whichever is second sees the other. Batches form by themselves: while
a program submits in a loop, the interpreter lets the I/O thread run every few milliseconds; by then hundreds wait.

In LONE the I/O thread (`courier`) is not woken by the replies of the command connection: with one task at a time that
would cost a switch of threads for each, for nothing. Over TLS callers never send themselves, since one TLS socket
must not be used by two threads at a time.
"""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import gristmill.client
from gristmill._version import __version__
from gristmill.client import nested
from gristmill.client.callbacks import Callbacks
from gristmill.client.courier import BUSY, CLOSED, IDLE, LONE, Courier
from gristmill.client.fetching import Fetcher
from gristmill.client.future import Future
from gristmill.client.inbox import Inbox, LargeValue
from gristmill.client.leaves import Leaf
from gristmill.client.lookout import Lookout
from gristmill.client.options import lane_of
from gristmill.client.outbox import ASKED, OPEN, Outbox, Write, refused_tasks
from gristmill.client.printing import OutputLine, Printing, print_line
from gristmill.client.recovery import establish, new_client_id
from gristmill.client.references import ObjectReference
from gristmill.client.serializing import Custom
from gristmill.client.shutdown import ShutdownAnswer
from gristmill.client.uploading import Uploader
from gristmill.client.watching import Watching
from gristmill.errors import (
    ClientClosedError,
    ConnectionLostError,
    QueueFullError,
    RedisRefusedError,
)
from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import MOST_DEPENDENCIES, PRIORITY_LIMIT
from gristmill.protocol.payloads import escaped
from gristmill.store.connection import Connection, ReplyError

WAITING_TASKS = 20_000
WAITING_BYTES = 64 << 20
"""So much waits to be sent at most; then `submit` waits."""
DISCONNECT_SECONDS = 5.0

CLOSED_TEXT = "the client is closed: make a new one"


class RecordLostError(RedisRefusedError):
    """The client's record in Redis is gone, ended, or that of another registration."""


class Trouble(NamedTuple):
    """What Redis, or the way to it, had to say."""

    at: float
    """Monotonic seconds."""
    text: str


class Session:
    """What a client shares with its futures and its I/O thread."""

    def __init__(
        self,
        address: str,
        namespace: str,
        *,
        name: str,
        lease_seconds: float,
        connect_timeout: float,
        wait_when_full: bool,
        serializer: Any = None,
        show_line: Callable[[OutputLine], object] = print_line,
        parent: tuple[str, int] | None,
    ) -> None:
        self.address = address
        self.keys = Keys(namespace)
        self.name = escaped(name)
        self.lease_seconds = lease_seconds
        self.wait_when_full = wait_when_full
        self.parent = parent
        self.claims = nested.Claims(self) if parent is not None else None
        """What a task asks for in order to run it itself."""
        self.client_id = new_client_id()
        self.refusal: str | None = None
        """Why nothing can be submitted any more."""
        self.forked = False
        """This is the copy of a session in a forked process: its I/O thread does not exist here."""
        self.owner_gone = False
        """Nobody can submit any more: the session ends when no task is unfinished and no large value unread."""
        self.stopping = threading.Event()
        self.unfinished: dict[int, Future] = {}
        """Tasks without an outcome, by number. Who takes one out settles it."""
        self.numbers = itertools.count()
        self._uploader = Uploader(self)
        self.outbox = Outbox(self.keys, lane_of(None), self._uploader.upload_now)
        self.outbox.functions.upload = self._uploader.upload
        if parent is not None and gristmill.client.waits is not None:
            # The deepest first: what a task waits for comes before what is like the task.
            self.outbox.priority = min(gristmill.client.waits.priority_of(parent[0]) + 1, PRIORITY_LIMIT)
        self.serializer = None if serializer is None else Custom(serializer, self.outbox.functions.released)
        """The user's, or None."""
        self.references: weakref.WeakSet[ObjectReference] = weakref.WeakSet()
        self.watching = Watching(self)
        self.callbacks = Callbacks()
        self.printing = Printing(show_line, self.callbacks)
        self.inbox = Inbox(self)
        self.state = BUSY
        self.lock = threading.Lock()
        self.handed_over = False
        """The I/O thread is to see to the outbox, which it enters in `state` itself."""
        self.progress = threading.Condition(self.lock)
        """Told when replies have come."""
        self.write: Write | None = None
        """What was sent on the command connection and is not yet answered."""
        self.acknowledged = 0
        """The last batch that Redis has answered for."""
        self.recovered = 0.0
        """When the last recovery ended, and how many came soon after another."""
        self.hasty_recoveries = 0
        self.trouble = Trouble(0.0, "")
        """Why the client had to connect anew, or could not, last."""
        self.broken = False
        """A caller could not send: the I/O thread must connect anew."""
        self.commands = Connection(address, name=f"gristmill-client-{self.client_id}")
        self.reading = Connection(address, name=f"gristmill-inbox-{self.client_id}")
        self._callers_send = not address.startswith("rediss://")
        self._fetcher = Fetcher(self)
        self.lookout = Lookout(self)
        self.shutdown_answer: ShutdownAnswer | None = None
        """Where the answer goes to a request to shut everything down."""
        self.courier = Courier(self)
        try:
            establish(self, connect_timeout)
        except BaseException:
            self.close_connections()
            self.courier.close()
            raise
        self.state = IDLE
        _open_sessions.add(self)
        # Last in, first out: before the end of a LocalCluster that was made earlier.
        atexit.unregister(_leave_all)
        atexit.register(_leave_all)
        self.courier.start()

    # --- submitting ---------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise ClientClosedError or QueueFullError when nothing can be submitted."""
        if self.refusal is not None:
            raise ClientClosedError(self.refusal)
        if self.outbox.intake != OPEN and not self.wait_when_full:
            reason = self.outbox.intake.decode(errors="replace")
            self.outbox.ask = True  # so that the next try knows better
            self.hand_over()
            raise QueueFullError(f"new tasks are refused at the moment ({reason}): submit it again later")

    def enqueue(self, future: Future) -> None:
        """Take over a task whose call is serialised."""
        self.unfinished[future._number] = future
        outbox = self.outbox
        outbox.waiting.append(future)
        if self.state is not BUSY:
            self._send_now()
        elif len(outbox.waiting) > WAITING_TASKS or outbox.large_waiting > WAITING_BYTES:
            self._wait_for_room()

    def enqueue_graph(self, futures: list[Future]) -> None:
        """Take over tasks that need each other's values: they leave together, as far as one write reaches.

        One that went ahead could end before those that need it are there. Its value would be gone then, and they, and
        everything behind them, would have to be sent again with values.
        """
        for start in range(0, len(futures), WAITING_TASKS // 2):
            some = futures[start : start + WAITING_TASKS // 2]
            with self.lock:
                self.outbox.large_added += sum(future._large.size for future in some if future._large is not None)
            self.unfinished.update((future._number, future) for future in some)
            self.outbox.waiting.extend(some)
            self._send_now()
            self._wait_for_room()

    def depends(self, future: Future, dependencies: tuple[Future, ...]) -> None:
        """A task that is about to be queued waits for these."""
        future._dependencies = dependencies
        if len(dependencies) > MOST_DEPENDENCIES:
            self.outbox.much_needing[future._number] = future

    def shares_tasks_with(self, other: Session) -> bool:
        """Whether tasks of the other client may be dependencies of this one's: it is of the same installation."""
        return other.address == self.address and other.keys.prefix == self.keys.prefix and other.refusal is None

    def enqueue_large(self, future: Future) -> None:
        """The same for one whose call travels as an object."""
        assert future._large is not None
        with self.lock:
            self.outbox.large_added += future._large.size
        self.enqueue(future)

    def queue_again(self, future: Future) -> None:
        """A task that was sent goes again (I/O thread only)."""
        with self.lock:
            if future._large is not None:
                self.outbox.large_added += future._large.size
            self.outbox.waiting.append(future)
            self._hand_over()

    def _send_now(self) -> None:
        """Send what waits from this thread if the command connection is free, else hand over to the I/O thread."""
        with self.lock:
            if self.state is CLOSED:
                self._refuse_late()
            if self.state is BUSY:
                return
            try:
                if self.state is LONE:
                    if not self.commands.receive():
                        self._hand_over()
                        return
                    self.read_replies()
                    self.state = IDLE
                    self.progress.notify_all()
                if self._callers_send:
                    self.write = self.outbox.compose()
                if self.write is not None:
                    self.state = LONE
                    self.commands.send(self.write.data)
            except (ConnectionLostError, RedisRefusedError):
                self.broken = True
            except BaseException:
                # An interrupt may have come in the middle of a write: the connection is of no use any more.
                self.broken = True
                self._hand_over()
                raise
            if self.broken or self.outbox.has_more:
                self._hand_over()

    def _refuse_late(self) -> None:
        """A task was queued while the session ended: nobody else will settle it."""
        self.inbox.end_all(list(self.unfinished.values()))
        raise ClientClosedError(self.refusal or CLOSED_TEXT)

    def hand_over(self) -> None:
        """Let the I/O thread see to the outbox. Takes no lock: the garbage collector and signal handlers call it too,
        perhaps while their own thread has the lock.
        """
        self.handed_over = True  # before the wake-up: whoever reads that sees this
        self.courier.wake()

    def take_over(self) -> None:
        """Somebody has handed over (I/O thread)."""
        self.handed_over = False
        with self.lock:
            if self.state is IDLE or self.state is LONE:
                self.state = BUSY

    def _hand_over(self) -> None:
        if self.state is IDLE or self.state is LONE:
            self.state = BUSY
        self.courier.wake()

    def _wait_for_room(self) -> None:
        if self.courier.is_this_thread():
            return  # if it waited, nobody would make room
        outbox = self.outbox
        with self.progress:
            while self.state is BUSY and (
                len(outbox.waiting) > WAITING_TASKS // 2 or outbox.large_waiting > WAITING_BYTES // 2
            ):
                if outbox.intake != OPEN and not self.wait_when_full:
                    return  # this task is queued; the next `submit` raises
                self.progress.wait(1.0)

    def read_replies(self) -> None:
        """Read what the last write is answered, and what that says. Called by whoever has the command connection."""
        write, self.write = self.write, None
        assert write is not None
        read = self.commands.read
        refused: ReplyError | None = None
        replies = []
        for _ in range(write.replies):
            reply = read()
            if isinstance(reply, ReplyError):
                refused = refused or reply
            replies.append(reply)
        if write.asked and not isinstance(replies[-2], ReplyError):
            self.outbox.intake = replies[-2] or OPEN  # also when the rest was refused: whoever waits for room must know
        if refused is not None:
            self.outbox.full = refused.code == "OOM"
            if self.outbox.full and not self.wait_when_full:
                self.outbox.refused += refused_tasks(write, replies)
            raise refused
        self.outbox.full = False
        if self.outbox.unanswered:
            self.outbox.unanswered.clear()
        for call in write.large:
            call.data = None
        if write.asked:
            self.take_record(replies[-1])
        if write.batch > self.acknowledged:
            self.acknowledged = write.batch

    def take_record(self, record: list[bytes | None]) -> None:
        """Note how far the record has come; raises RecordLostError when it is not this registration's."""
        registration, batch, ended = record
        if registration is None or ended is not None or int(registration) != self.outbox.registration:
            raise RecordLostError("the client's record is gone from Redis, or is not its own")
        self.outbox.applied = int(batch or 0)

    # --- waiting ------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None) -> bool:
        """Wait until Redis has answered for everything submitted so far. Answers False when it has not in time."""
        self.check_fork()
        last = self._newest()
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.lock:
            self._hand_over()

        def answered() -> bool:
            nonlocal last
            while last is not None and last.done():
                # It may have ended before it left; then the newest one before it decides.
                before = reversed(list(self.unfinished.values()))
                last = next((future for future in before if future._number < last._number), None)
            return last is None or (last._batch not in (0, ASKED) and self.acknowledged >= last._batch)

        with self.progress:
            while not answered() and self.state is not CLOSED:
                left = 1.0 if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                self.progress.wait(min(left, 1.0))
        return True

    def _newest(self) -> Future | None:
        while True:
            try:
                return next(reversed(self.unfinished.values()), None)
            except RuntimeError:  # another thread has just added one, or taken one out
                pass

    def note_trouble(self, error: Exception) -> None:
        """Why the client connects anew, or cannot, for those who wait."""
        self.trouble = Trouble(time.monotonic(), str(error))

    def cancel(self, futures: list[Future]) -> None:
        """Ask for tasks to be cancelled; does not wait for the answer."""
        self.check_fork()
        graphs = {graph for future in futures if (graph := getattr(future, "_graph", None)) is not None}
        if graphs:  # a graph is cancelled as a whole
            futures = list(dict.fromkeys([*futures, *(other for graph in graphs for other in graph.unfinished())]))
        for future in futures:
            future._cancel_asked = True
            if future._id:  # of another client, or of an earlier life of this one
                self.watching.cancel(future._id)
            else:
                self.outbox.cancels.append(future)
        self.hand_over()

    @property
    def is_waiting(self) -> bool:
        """Whether an outcome is still to come."""
        return bool(self.unfinished or self.watching.futures)

    def before_wait(self, future: Future, timeout: float | None) -> bool:
        """A thread is about to wait for a future. Inside a task it waits in its own way, and the answer is True."""
        self.check_fork()
        if gristmill.client.waits is None:
            return False
        nested.wait_for(future, timeout)
        return True

    def fetch(self, payload: LargeValue) -> bytearray:
        """The bytes of a large value or failure; raises MissingObjectError or ConnectionLostError."""
        return self._fetcher.fetch(payload)

    def upload(self, leaves: Iterable[Leaf]) -> None:
        """See to it that Redis has these objects; raises ConnectionLostError or RedisRefusedError."""
        for leaf in leaves:
            self._uploader.upload(leaf)

    def forget_objects(self) -> None:
        """Release what no unfinished task uses: references stand for nothing any more."""
        for reference in list(self.references):
            reference.clear()
        self.references.clear()
        self.outbox.functions.clear()
        self.hand_over()

    # --- the end ------------------------------------------------------------------------------------------

    def check_fork(self) -> None:
        """Raise ClientClosedError in a forked process."""
        if self.forked:
            raise ClientClosedError(self.refusal)

    def disconnect(self, why: str = CLOSED_TEXT) -> None:
        """Leave: unfinished tasks are cancelled, objects freed. Harmless when it has left already."""
        if self.forked:
            return
        if self.refusal is None:
            self.refusal = why
        self.stopping.set()
        self.courier.wake()
        deadline = time.monotonic() + DISCONNECT_SECONDS
        self.courier.join(DISCONNECT_SECONDS)
        self.callbacks.join(max(0.0, deadline - time.monotonic()))
        self.lookout.join(max(0.0, deadline - time.monotonic()))

    def abandon(self) -> None:
        """Nobody holds the client any more: leave when nothing is left to come; does not wait."""
        if not self.forked and not self.stopping.is_set():
            self.owner_gone = True
            self.courier.wake()

    def end(self) -> None:
        """The I/O thread has left: whoever waits is told."""
        with self.lock:
            self.state = CLOSED
            if self.refusal is None:
                self.refusal = CLOSED_TEXT
            self.progress.notify_all()
        self.close_connections()
        self.watching.end(ClientClosedError(self.refusal))
        self.printing.show_overdue()
        self.inbox.end_all(list(self.unfinished.values()))
        _open_sessions.discard(self)

    def close_connections(self) -> None:
        """Close all of them."""
        self.commands.close()
        self.reading.close()
        self._fetcher.close()
        self._uploader.close()

    def facts(self) -> dict[str, object]:
        """What a registration says about this client."""
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
            "release": __version__,
            "lease_ms": round(self.lease_seconds * 1000),
            "name": self.name,
            "parent": self.parent[0] if self.parent else None,
            "parent_attempt": self.parent[1] if self.parent else 0,
        }


_open_sessions: set[Session] = set()


def _leave_all() -> None:
    """At the end of the program: say goodbye, so that nothing is left over until a lease ends."""
    for session in list(_open_sessions):
        session.disconnect()


def _after_fork() -> None:
    """In the forked process: threads are gone, sockets are shared with the parent, locks may be held by nobody."""
    for session in list(_open_sessions):
        session.forked = True
        session.refusal = (
            f"this client belongs to process {os.getppid()}, from which this one was forked: make a new client here"
        )
    _open_sessions.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
