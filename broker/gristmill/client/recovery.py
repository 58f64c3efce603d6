"""How a client comes to its record in Redis: the first time, and after every loss.

- The connection was lost, the record is there: what later batches carried than the record knows is sent again, in the
  same batches. The script passes over a number that it has applied, so nothing is lost and nothing runs twice; and
  when Redis itself lost the last seconds of its history, the record says so by its number.
- The record is gone, or of an earlier registration (Redis lost its data, or its last seconds): the client registers
  anew, batches count from 1, and it asks which of its unfinished tasks there are. Those that are lost are sent again
  under their ids.
- The record has ended (the lease ran out while this process was suspended, or the parent task is over): the tasks
  were cancelled. The client goes on under a new id, unless it belongs to a task.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from gristmill.client import batches
from gristmill.errors import ClientClosedError, ConnectionLostError, RedisRefusedError, TaskLostError
from gristmill.store.connection import PASSING, ReplyError, backoff, connect_patiently, hide_password, pack

if TYPE_CHECKING:
    from gristmill.client.session import Session

logger = logging.getLogger(__name__)

CLIENT_ID_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
CLIENT_ID_LENGTH = 10
NO_SCHEDULER_SECONDS = 3.0
"""After this time without an answer the log says that no scheduler runs."""
REPEAT_SECONDS = 10.0
"""A registration without an answer is sent again this often: Redis may have lost it."""
QUIET_SECONDS = 5.0
"""A recovery sooner than this after the last one waits longer and longer."""


class _Ended(Exception):  # noqa: N818 - not an error: what the record says
    """The record has ended."""


def new_client_id() -> str:
    """10 random characters; from the system, so that forked processes differ."""
    return "".join(CLIENT_ID_CHARACTERS[byte % len(CLIENT_ID_CHARACTERS)] for byte in os.urandom(CLIENT_ID_LENGTH))


def establish(session: Session, timeout: float) -> None:
    """Connect and register for the first time, within `timeout` seconds.

    Raises ConnectionLostError (Redis cannot be reached, or no scheduler answers), RedisRefusedError (Redis says why),
    ClientClosedError (the parent task is over).
    """
    deadline = time.monotonic() + timeout
    failures = 0
    while True:
        for connection in (session.commands, session.reading):
            connect_patiently(connection, max(0.0, deadline - time.monotonic()))
        try:
            return _register(session, deadline)
        except _Ended as ended:
            raise ClientClosedError(f"the client was refused: {ended}") from None
        except (ConnectionLostError, ReplyError) as error:
            # Redis went, or came back, while the client registered: asking again is harmless, if there is time for it.
            if isinstance(error, ReplyError) and error.code not in PASSING:
                raise
            failures += 1
            if time.monotonic() + backoff(failures) > deadline:
                raise
            time.sleep(backoff(failures))


def is_hasty(session: Session) -> bool:
    """Whether the last recovery was only just now."""
    return time.monotonic() - session.recovered < QUIET_SECONDS


def recover(session: Session) -> None:
    """Connect again, for as long as it takes, and put right what was lost; returns when done or stopping."""
    failures = 0
    if is_hasty(session):
        session.hasty_recoveries += 1
        session.stopping.wait(backoff(session.hasty_recoveries))
    else:
        session.hasty_recoveries = 0
    while not session.stopping.is_set():
        try:
            session.commands.connect()
            session.reading.connect()
            _put_right(session)
            session.watching.ask_again()
            session.recovered = time.monotonic()
            return
        except Exception as error:
            failures += 1
            session.note_trouble(error)
            level = logging.WARNING if failures in (1, 5) or failures % 60 == 0 else logging.DEBUG
            unforeseen = not isinstance(error, (ConnectionLostError, RedisRefusedError))
            about = {"client": session.client_id}
            logger.log(level, "the client cannot connect yet: %s", error, extra=about, exc_info=unforeseen)
            session.stopping.wait(backoff(failures))


def _put_right(session: Session) -> None:
    outbox, courier = session.outbox, session.courier
    record = session.commands.request("HMGET", session.keys.client(session.client_id), "registration", "batch", "ended")
    registration, batch, ended = record
    if ended is not None or session.inbox.ended:
        _start_over(session)
    elif registration is None or int(registration) != outbox.registration:
        logger.warning(
            "Redis lost the client's record: it registers anew and asks for its %d unfinished tasks",
            len(session.unfinished),
            extra={"client": session.client_id},
        )
        outbox.registration = max(outbox.registration, int(registration or 0))
        try:
            _register(session, None)
        except _Ended:
            _start_over(session)
    else:
        outbox.resume(int(batch or 0), session.unfinished)
        # Replies may be lost: what the record says has been answered.
        with session.lock:
            session.acknowledged = max(session.acknowledged, outbox.applied)
            session.progress.notify_all()
        courier.begin_inbox()


def _start_over(session: Session) -> None:
    """The record has ended, and with it the tasks. A client of its own goes on under a new id."""
    if session.parent is not None:
        session.refusal = "the task that this client belongs to is over: it cannot be used any more"
        session.stopping.set()
        return
    logger.warning(
        "the client's lease has ended: its %d unfinished tasks were cancelled",
        len(session.unfinished),
        extra={"client": session.client_id},
    )
    for future in list(session.unfinished.values()):
        session.inbox.fail(
            future,
            TaskLostError(
                f"task {future.task_id} was cancelled, because nothing was heard of its client for longer than its "
                f"lease of {session.lease_seconds:g} s: submit it again"
            ),
        )
    session.client_id = new_client_id()
    session.inbox.ended = ""
    try:
        _register(session, None)
    except _Ended as ended:
        raise RedisRefusedError(f"the client was refused: {ended}") from None


def _register(session: Session, deadline: float | None) -> None:
    """Send a registration and wait until a scheduler has answered it."""
    outbox, inbox, courier = session.outbox, session.inbox, session.courier
    registration = outbox.registration + 1
    body = batches.body(client=session.client_id, registration=registration, **session.facts())
    request = pack(("XADD", session.keys.submit(), "*", "client", body))
    inbox.registered = 0
    begun = sent = time.monotonic()
    told = False
    _ask(session, request)
    courier.begin_inbox()
    while inbox.registered != registration:
        if session.stopping.is_set():
            raise ConnectionLostError("the client stops")
        try:
            courier.read_inbox_within(0.25)
        except RedisRefusedError:
            if inbox.ended:
                raise _Ended(inbox.ended) from None
            raise
        now = time.monotonic()
        if deadline is not None and now > deadline and inbox.registered != registration:
            raise ConnectionLostError(
                f"Redis at {hide_password(session.address)} answers, but no scheduler is running for the namespace "
                f"{session.keys.namespace!r}: none has registered this client within {now - begun:.0f} s; "
                "start one with `gristmill scheduler`, or everything with `gristmill up`"
            )
        if now - begun > NO_SCHEDULER_SECONDS and not told:
            told = True
            logger.warning("no scheduler is running for the namespace %s: waiting for one", session.keys.namespace)
        if now - sent > REPEAT_SECONDS:
            sent = now
            _ask(session, request)
    outbox.begin(session.client_id, registration, session.unfinished)
    session.acknowledged = 0


def _ask(session: Session, request: bytes) -> None:
    session.commands.send(request)
    reply = session.commands.read()
    if isinstance(reply, ReplyError):
        raise reply
