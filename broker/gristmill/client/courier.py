"""The I/O thread of a client: it polls both connections and the pipe by which callers wake it.

A turn reads what has come (outcomes first: somebody waits for them), sends what has collected, and sees to callbacks
at its end, when everything that came with their futures is settled. They are called in a thread of their own
(`callbacks`): a callback may use its future and the client, and wait for whatever it likes.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING

from gristmill.client import recovery
from gristmill.client.figures import Figures
from gristmill.client.outbox import OPEN
from gristmill.errors import ConnectionLostError, QueueFullError, RedisRefusedError, SerializationError, TaskLostError
from gristmill.store.connection import BLOCK_MILLISECONDS, REPLY_TIMEOUT_SECONDS, ReplyError, pack

if TYPE_CHECKING:
    from gristmill.client.session import Session

logger = logging.getLogger(__name__)

IDLE, LONE, BUSY, CLOSED = "idle", "lone", "busy", "closed"
"""Who uses the command connection: see `session`."""

LONE_SECONDS = 0.2
"""Replies to what a caller sent are read after this time at the latest, when the thread wakes for another reason."""
UNAPPLIED_POLL_SECONDS = 0.002
INTAKE_POLL_SECONDS = 0.1
"""How often the record is read while too many batches are unapplied, and the intake while it is closed."""
RECORD_SECONDS = 1.5
"""While tasks are unfinished and nothing comes, the record is looked at this often."""
HELD_SECONDS = 0.05
"""While somebody holds the gate of a future that is to be settled, it is tried this often."""
BEAT_SECONDS = 10.0
"""A beat renews the lease, which would need far fewer, and brings the figures that people look at."""
UNUSED_SECONDS = 1.0
"""Large arguments that the program has dropped are looked for this often."""
LONG_WRITE_BYTES = 8 << 20
INBOX_ENTRIES = 64
TRIM_WITH_WRITE = 16
TRIM_WITH_READ = 64
"""So many handled entries are removed with the next write, or with the next read; fewer when nothing comes any more."""

_POLLIN = select.POLLIN
_HANG_UP = getattr(select, "POLLRDHUP", 0)
_BROKEN = select.POLLHUP | select.POLLERR | select.POLLNVAL | _HANG_UP


class Courier:
    """The I/O thread of one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.last_entry = "0"
        """The inbox is read behind this entry."""
        self._inbox = ("", "")
        """Of which server and client the inbox is."""
        self._repeated = (0, 0)
        """Up to this entry all were handled before the inbox was read from its beginning again."""
        self._handled = ""
        """Entries before this one are handled."""
        self._untrimmed = 0
        self._trims = False
        """Whether the reply to a trim comes before that to the read."""
        self._asked_inbox = 0.0
        self._asked_record = 0.0
        self._dropped_leaves = 0.0
        self._beat_seconds = min(session.lease_seconds / 3, BEAT_SECONDS)
        self._figures = Figures()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._pipe_lock = threading.RLock()  # the garbage collector may wake the thread in the middle of a wake-up
        self._thread = threading.Thread(target=self._run, name="gristmill-client", daemon=True)

    # --- for other threads --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; the session is registered."""
        self._thread.start()

    def wake(self) -> None:
        """Let the thread look round."""
        with self._pipe_lock:
            try:
                os.write(self._wake_write, b".")
            except OSError:  # full, so it will wake anyhow; or closed, so there is nobody to wake
                pass

    def is_this_thread(self) -> bool:
        """Whether the caller is the I/O thread itself: it must not wait for anything."""
        return threading.get_ident() == self._thread.ident

    def join(self, timeout: float) -> None:
        """Wait for the end."""
        if self._thread.ident is not None and not self.is_this_thread():
            self._thread.join(timeout)

    def close(self) -> None:
        """Close the pipe."""
        with self._pipe_lock:  # the number may be that of another's file by the time that somebody writes to it
            write, self._wake_write = self._wake_write, -1
            if write >= 0:
                os.close(write)
                os.close(self._wake_read)

    # --- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        session = self.session
        try:
            self._take_turns()
            self._say_goodbye()
        except (ConnectionLostError, RedisRefusedError):
            pass  # its lease will end
        finally:
            session.end()
            self._run_callbacks()
            session.callbacks.stop()
            self.close()

    def _take_turns(self) -> None:
        session = self.session
        try:
            while not session.stopping.is_set():
                self._turn_safely(BLOCK_MILLISECONDS / 1000)
                if session.owner_gone and not (session.is_waiting or session.inbox.large_values):
                    break
        except BaseException:  # without this thread nobody would ever hear anything: better an end that is told
            logger.exception("the client ends after an error of its own", extra={"client": session.client_id})
            if session.refusal is None:
                session.refusal = "the client has ended after an error of its own, which the log shows: make a new one"

    def _say_goodbye(self) -> None:
        session = self.session
        with session.lock:
            session.state = CLOSED
        if session.commands.connected and not session.broken and session.outbox.registration:
            self._disconnect()

    def _disconnect(self) -> None:
        """Ask to be forgotten when the batches are applied that Redis has, or is just being given.

        At once, for Redis may be slow and this process in haste. But schedulers would wait a minute for a batch that
        Redis has refused: then it is asked again, without it.
        """
        session = self.session
        commands, write = session.commands, session.write
        under_way = write.batch if write is not None else 0
        commands.send(session.outbox.disconnect_request(max(session.acknowledged, under_way)))
        if write is not None:
            try:
                session.read_replies()
            except RedisRefusedError:
                commands.send(session.outbox.disconnect_request(session.acknowledged))
                commands.read()
        commands.read()

    def _turn_safely(self, longest: float) -> None:
        session = self.session
        try:
            self._turn(longest)
        except (ConnectionLostError, RedisRefusedError) as error:
            self._settle_unsent()  # what is refused for good must not be sent again
            if not session.stopping.is_set():
                # Soon after the last time it is the same trouble: said already.
                level = logging.DEBUG if recovery.is_hasty(session) else logging.WARNING
                logger.log(level, "the client connects anew: %s", error, extra={"client": session.client_id})
                session.note_trouble(error)
                self._recover()
        except Exception:
            logger.exception("the client connects anew after an error of its own", extra={"client": session.client_id})
            self._recover()
        self._run_callbacks()

    def _recover(self) -> None:
        session = self.session
        with session.lock:
            session.state = BUSY
            session.write = None
        session.outbox.repeat_unanswered()
        recovery.recover(session)
        session.broken = False

    def _run_callbacks(self) -> None:
        callbacks = self.session.inbox.callbacks
        while callbacks:
            future = callbacks.popleft()
            gate = future._gate
            assert gate is not None
            for watcher in gate.watchers:
                try:
                    watcher(future)
                except Exception:
                    logger.exception("what watches %r failed", future)
            if gate.callbacks:
                self.session.callbacks.call(future.run_callbacks)

    def _turn(self, longest: float) -> None:
        """Wait for something to do, at most `longest` seconds, and do it."""
        session = self.session
        if session.broken:
            raise ConnectionLostError("a request could not be sent")
        reading, commands = session.reading.fileno(), session.commands.fileno()
        expects_reply = session.state is BUSY and session.write is not None
        poll = select.poll()
        poll.register(self._wake_read, _POLLIN)
        poll.register(reading, _POLLIN)
        poll.register(commands, _POLLIN | _HANG_UP if expects_reply else _HANG_UP)
        replied = False
        for descriptor, events in poll.poll(self._patience(time.monotonic(), longest) * 1000):
            if descriptor == self._wake_read:
                os.read(self._wake_read, 4096)
            elif descriptor == reading:
                self.read_inbox()
            elif events & _POLLIN:
                replied = True
            elif events & _BROKEN:
                raise ConnectionLostError("the server closed the connection")
        now = time.monotonic()
        if session.handed_over:
            session.take_over()
        if session.state is BUSY:
            if replied and expects_reply:
                if session.write is not None:
                    self._figures.latency_seconds = now - session.write.sent
                session.read_replies()
                with session.lock:
                    session.progress.notify_all()
            if session.write is None:
                self._send(now)
        self._settle_unsent()
        session.inbox.settle_held()
        self._look_after(now)

    def _patience(self, now: float, longest: float) -> float:
        """How long the poll may wait, in seconds."""
        session = self.session
        outbox = session.outbox
        if session.state is BUSY and session.write is None:
            if outbox.waiting and not outbox.may_send_tasks and not outbox.urgent:
                return UNAPPLIED_POLL_SECONDS if outbox.intake == OPEN else INTAKE_POLL_SECONDS
            return 0.0
        if session.inbox.held:
            longest = min(longest, HELD_SECONDS)
        beat = outbox.last_beat + self._beat_seconds - now
        return max(0.0, min(longest, beat, session.printing.due - now))

    def _send(self, now: float) -> None:
        """Send what has collected; when nothing has, callers may send themselves again."""
        session = self.session
        outbox = session.outbox
        if outbox.waiting and not outbox.may_send_tasks:
            outbox.ask = True
        write = outbox.compose()
        if write is not None:
            session.write = write
            session.commands.send(write.data)
            if len(write.data) > LONG_WRITE_BYTES:  # it took its time: the reply has its own
                session.write = write._replace(sent=time.monotonic())
            return
        with session.lock:
            session.state = IDLE
            if outbox.has_more:
                session.state = BUSY

    def _settle_unsent(self) -> None:
        """Tasks that never left: cancelled before, or not the same any more when they had to be sent again."""
        session = self.session
        outbox = session.outbox
        while outbox.dropped:
            session.inbox.end_canceled(outbox.dropped.pop())
        while outbox.refused:
            future = session.unfinished.get(outbox.refused.pop())
            if future is not None:
                session.inbox.fail(future, QueueFullError("Redis is full: submit it again later"))
        while outbox.unsendable:
            future, problem = outbox.unsendable.pop()
            error = SerializationError(f"task {future.task_id} cannot be sent: {problem}")
            error.__cause__ = problem
            session.inbox.fail(future, error)
        while outbox.lost:
            future = outbox.lost.pop()
            session.inbox.fail(
                future,
                TaskLostError(
                    f"Redis lost task {future.task_id}, and its arguments have changed since it was submitted: "
                    "submit it again"
                ),
            )

    def _look_after(self, now: float) -> None:
        """What is due from time to time."""
        session = self.session
        outbox = session.outbox
        write = session.write
        if write is not None and now - write.sent > LONE_SECONDS:
            if session.state is LONE:
                with session.lock:
                    if session.state is LONE:
                        session.state = BUSY
            elif now - write.sent > REPLY_TIMEOUT_SECONDS:
                raise ConnectionLostError("no reply came")
        if now - self._asked_inbox > BLOCK_MILLISECONDS / 1000 + REPLY_TIMEOUT_SECONDS:
            raise ConnectionLostError("no reply came to the reading of the inbox")
        if now > session.lookout.next_check:
            session.lookout.check(now)
        if now > session.printing.due:
            session.printing.show_overdue(now)
        if outbox.leaves.kept and now - self._dropped_leaves > UNUSED_SECONDS:
            self._dropped_leaves = now
            outbox.leaves.drop_unused()
        if now - outbox.last_beat > self._beat_seconds:
            outbox.last_beat = now
            outbox.requests.append(outbox.beat(self._figures.take()))
            session.hand_over()
        elif outbox.functions.released and session.state is IDLE:
            session.hand_over()

    # --- the inbox ----------------------------------------------------------------------------------------

    def begin_inbox(self) -> None:
        """Read the inbox from its beginning, and remove nothing that another inbox of this name held."""
        session = self.session
        if self._inbox == (session.reading.run_id, session.client_id):
            self._repeated = max(self._repeated, _numbers(self.last_entry))
        else:
            self._inbox = (session.reading.run_id, session.client_id)
            self._repeated = (0, 0)
        self._handled = ""
        self._untrimmed = 0
        session.outbox.trim_from = ""
        self.last_entry = "0"
        self.ask_inbox()

    def ask_inbox(self) -> None:
        """Send the next read; the entries handled so far may be removed with it."""
        session = self.session
        key = session.keys.client_inbox(session.client_id)
        read = pack(("XREAD", "COUNT", INBOX_ENTRIES, "BLOCK", BLOCK_MILLISECONDS, "STREAMS", key, self.last_entry))
        self._trims = self._untrimmed >= TRIM_WITH_READ
        if self._trims:
            read = pack(("XTRIM", key, "MINID", self._handled)) + read
            self._untrimmed = 0
        self._asked_inbox = time.monotonic()
        session.reading.send(read)

    def read_inbox_within(self, seconds: float) -> None:
        """Read what comes within this time (before the thread has started, or during a recovery)."""
        poll = select.poll()
        poll.register(self.session.reading.fileno(), _POLLIN)
        if self.session.reading.buffered or poll.poll(seconds * 1000):
            self.read_inbox()

    def read_inbox(self) -> None:
        """Read what has come, handle it, and ask for more."""
        session = self.session
        session.reading.receive()
        if self._trims:
            self._trims = False
            if isinstance(reply := session.reading.read(), ReplyError):
                raise reply
            if not session.reading.buffered:
                return  # the reply to the read itself is still to come, perhaps in seconds
        reply = session.reading.read()
        if isinstance(reply, ReplyError):
            raise reply
        if not reply:
            self._nothing_came()
            self.ask_inbox()
            return
        entries = reply[0][1]
        self.last_entry = entries[-1][0].decode()
        for entry, fields in entries:
            if self._repeated > (0, 0) and self._is_shown(entry.decode(), fields[0]):
                continue
            session.inbox.handle(fields[0], fields[1])
        milliseconds, _, sequence = self.last_entry.partition("-")
        self._handled = f"{milliseconds}-{int(sequence) + 1}"
        self._untrimmed += len(entries)
        if self._untrimmed >= TRIM_WITH_WRITE and not session.outbox.trim_from:
            session.outbox.trim_from = self._handled
            self._untrimmed = 0
        if session.inbox.ended:
            raise RedisRefusedError(f"the client has ended: {session.inbox.ended}")
        self.ask_inbox()

    def _is_shown(self, entry: str, kind: bytes) -> bool:
        """Whether an entry is output that was handled before the inbox was read from its beginning again."""
        if _numbers(entry) > self._repeated:
            self._repeated = (0, 0)
        return kind == b"output" and self._repeated > (0, 0)

    def _nothing_came(self) -> None:
        """The read ran out of time. Is the record still there? If so, what was handled can be removed."""
        session = self.session
        if self._untrimmed:
            self._untrimmed = TRIM_WITH_READ
        now = time.monotonic()
        if session.is_waiting and session.outbox.registration and now - self._asked_record > RECORD_SECONDS:
            self._asked_record = now
            session.outbox.ask = True
            session.hand_over()


def _numbers(entry: str) -> tuple[int, int]:
    """The id of an entry as what can be compared."""
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence or 0)
