"""The scheduler's loop: read requests, apply each as one script, run the duties that are due.

One connection and one thread. Each turn sends the scripts for what the last read brought together with the next
blocking read, so a turn costs one write and one wait:

    send  EVALSHA a · EVALSHA b · XREADGROUP BLOCK          (Redis runs a and b, then waits for requests)
    read  word of a · word of b · new entries

Whatever fails, the entry is either still pending, and then this replica or another reads it again, or it has been
applied: the script takes it off its stream as its first write.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from gristmill.errors import ConnectionLostError
from gristmill.health import Health
from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import VERSION
from gristmill.scheduler import (
    balance,
    clients,
    graphs,
    housekeeping,
    information,
    leases,
    objects,
    scaling,
    suspects,
    tasks,
    workers,
)
from gristmill.scheduler.controller import Controller, Duty, Replica
from gristmill.scheduler.reading import Entry, Reader
from gristmill.scheduler.refusals import is_full, is_refusal
from gristmill.settings import SchedulerSettings
from gristmill.store.connection import BLOCK_MILLISECONDS, Connection, ReplyError, backoff
from gristmill.transitions import EARLY, NEWER, Scripts

log = logging.getLogger(__name__)

EARLY_MS = 2
"""How soon a request that came too early is tried again."""
INTAKE_BYTES = 4 << 20
"""After so many bytes of tasks this replica looks at Redis's memory at once: a client brings 40 MB a second."""
LEAST_ROW_BYTES = 8
"""Fewer than a task has in its batch."""
DUTY_PATIENCE_SECONDS = 0.1
"""While there are requests, duties wait so long at most."""
STABLE_SECONDS = 1.0
"""A Redis that has been used for so long is back."""


def controllers(settings: SchedulerSettings) -> list[Controller]:
    """Every controller, in the order in which duties are run."""
    return [
        clients.controller(),
        objects.controller(),
        graphs.controller(),
        tasks.controller(settings.sweep_seconds),
        workers.controller(),
        suspects.controller(settings.sweep_seconds),
        leases.controller(settings.sweep_seconds),
        balance.controller(),
        information.controller(),
        housekeeping.controller(),
        scaling.controller(scaling.NullPolicy()),
    ]


def replica_id(name: str) -> str:
    """host|pid|name|random: unique however often a process is started."""
    host = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())
    return "|".join(part for part in (host, str(os.getpid()), name, secrets.token_hex(3)) if part)


def is_newer(entry: Entry) -> bool:
    """Whether the message is of a version that only a newer scheduler understands."""
    try:
        version = orjson.loads(entry.body)["version"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False
    return isinstance(version, int) and version > VERSION


def may_be_early(entry: Entry) -> bool:
    """Whether its script may answer that something must be applied first: then the read must not block for long."""
    if entry.kind == b"tasks":
        return b'"after":' in entry.body or b'"others":' in entry.body
    return entry.kind in (b"cancel", b"claim", b"depend", b"release", b"disconnect", b"watch", b"end_worker", b"held")


STUCK_SECONDS = 30.0
"""A turn takes two seconds at most, and the time-out of a reply when Redis does not answer."""


class Loop:
    """One scheduler replica."""

    def __init__(self, settings: SchedulerSettings) -> None:
        keys = Keys(settings.namespace)
        self.stopping = False
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        name = replica_id(settings.name)
        self.replica = Replica(
            name, settings, keys, Scripts(keys), Connection(settings.address, name=f"gristmill-scheduler-{os.getpid()}")
        )
        self._reader = Reader(keys, name)
        self._next_duty = 0.0
        """When the first duty is due."""
        self._duties: list[tuple[float, Duty]] = []
        for controller in controllers(settings):
            self._duties += [(0.0, duty) for duty in controller.duties]
        self._duties.append((0.0, Duty("takeover", settings.takeover_seconds / 2, self._take_over)))
        self._put_off: dict[str, str] = {}
        """Duties that could not be done when they were last due, and why."""
        self._todo: dict[tuple[bytes, bytes], Entry] = {}
        """What was read and is not applied, in order."""
        self._aside: list[bytes] = []
        # With a limit the intake is looked at several times before so many tasks have come.
        self._intake_bytes = min(INTAKE_BYTES, LEAST_ROW_BYTES * settings.max_tasks_waiting or INTAKE_BYTES)
        self.health = Health(stuck_seconds=STUCK_SECONDS)
        self._read_pending = True
        self._poll = select.poll()
        """Wakes for a reply, and when the loop is to stop."""

    # --- life -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End after the current turn; safe in a signal handler."""
        self.stopping = True
        os.write(self._wake, b"x")

    def run(self) -> None:
        """Run until stopped. Redis may come and go; nothing here gives up."""
        failures = 0
        with self._wakeups():
            while not self.stopping:
                try:
                    self._connect()
                    connected = time.monotonic()
                    if failures <= 1:
                        log.info("scheduler connected", extra={"scheduler": self.replica.id})
                    self.health.ready = True
                    while not self.stopping:
                        self.health.beat()
                        self._turn()
                        # One that answers and refuses, by turns, is not back yet.
                        if failures and time.monotonic() - connected > STABLE_SECONDS:
                            log.info("Redis is back")
                            failures = 0
                except (ConnectionLostError, ReplyError) as error:
                    self.replica.connection.close()
                    self.health.ready = False
                    self.health.beat()
                    self._todo, self._aside = {}, []
                    if isinstance(error, ReplyError) and error.code == "NOSCRIPT":
                        continue
                    failures += 1
                    if failures == 1:
                        log.warning("waiting for Redis", extra={"reason": str(error)})
                    self._pause(backoff(failures))
        self._end()

    def _end(self) -> None:
        connection = self.replica.connection
        try:
            connection.connect()
            information.withdraw(self.replica)
            for stream in self._reader.streams:
                command = self.replica.scripts.request_duty("remove_consumer", stream.decode(), self.replica.id, 0)
                self.replica.scripts.apply(connection, command)
        except (ConnectionLostError, ReplyError):
            pass  # best effort: the other replicas clear up after this one
        connection.close()
        os.close(self._woken)
        os.close(self._wake)
        log.info("scheduler stopped", extra={"scheduler": self.replica.id})

    @contextmanager
    def _wakeups(self) -> Iterator[None]:
        before = signal.set_wakeup_fd(self._wake)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)

    def _connect(self) -> None:
        self.replica.connection.connect()
        information.check_version(self.replica)
        self.replica.scripts.load(self.replica.connection)
        self._reader.create_groups(self.replica.connection)
        self._poll = select.poll()
        for descriptor in (self.replica.connection.fileno(), self._woken):
            self._poll.register(descriptor, select.POLLIN)
        self._read_pending = True
        self._reader.pending_from_the_start()
        self._duties = [(0.0, duty) for _, duty in self._duties]
        self._next_duty = 0.0

    def _pause(self, seconds: float) -> None:
        select.select([self._woken], [], [], seconds)

    # --- one turn -------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Apply what the last read brought, and read on."""
        connection = self.replica.connection
        aside, self._aside = self._aside, []
        entries, commands = self._commands()
        self._todo = {}
        pending = self._read_pending
        block_ms = EARLY_MS if any(map(may_be_early, entries)) else self._milliseconds_to_next_duty()
        connection.send(*aside, *commands, self._reader.pending() if pending else self._reader.new(block_ms))
        for _ in aside:
            refusal = connection.read()
            if isinstance(refusal, ReplyError):
                raise refusal
        for entry in entries:
            self._applied(entry, connection.read())
        if not connection.buffered:
            self._poll.poll(connection.reply_timeout * 1000)
            if self.stopping:
                # What this read is given after all stays pending, and another replica takes it over.
                connection.close()
                return
            connection.receive()
        reply = connection.read()
        if isinstance(reply, ReplyError):
            if reply.code != "NOGROUP":
                raise reply
            self._reader.create_groups(connection, insist=True)
            log.warning("the request streams were gone; they were made anew")
        else:
            self._add(self._reader.entries(reply))
            self._read_pending = pending and self._reader.note_pending(reply)
        if self.replica.bytes_taken > self._intake_bytes:
            information.watch_intake(self.replica)
        # What was just read would wait for all duties, and what other replicas read meanwhile overtake it.
        if time.monotonic() >= self._next_duty + (DUTY_PATIENCE_SECONDS if self._todo else 0.0):
            self._run_duties()

    def _add(self, entries: list[Entry]) -> int:
        """Put entries on the list; one may come twice, by a read and by a claim. Answers how many are new."""
        before = len(self._todo)
        for entry in entries:
            self._todo.setdefault((entry.stream, entry.id), entry)
        return len(self._todo) - before

    def _commands(self) -> tuple[list[Entry], list[bytes]]:
        """The scripts for what is on the list. A kind that nobody here knows is set aside, unless it is a newer one."""
        entries, commands = [], []
        for entry in self._todo.values():
            command = self.replica.scripts.request(entry.stream, entry.kind, entry.id, entry.body)
            if command is None:
                if is_newer(entry):
                    continue
                command = self._set_aside(entry, "expected a kind of request that this release knows")
            entries.append(entry)
            commands.append(command)
        return entries, commands

    def _applied(self, entry: Entry, reply: object) -> None:
        """Note what became of an entry: applied, to be tried again, left pending, or set aside."""
        replica = self.replica
        if isinstance(reply, ReplyError):
            if is_refusal(reply):
                raise reply
            self._aside.append(self._set_aside(entry, f"the script failed: {reply}"))
        elif reply == EARLY:
            self._add([entry])
        elif reply != NEWER:  # a newer one stays pending, for a newer replica
            if entry.kind == b"tasks":
                replica.bytes_taken += len(entry.body)
            kind = entry.kind.decode("utf-8", "replace")
            replica.scripts_run += 1
            replica.requests[kind] = replica.requests.get(kind, 0) + 1

    def _set_aside(self, entry: Entry, reason: str) -> bytes:
        """The command that puts an entry into the quarantine, so that the loop goes on."""
        where = {"stream": entry.stream.decode(), "entry": entry.id.decode()}
        log.error("request set aside", extra={**where, "reason": reason})
        return self.replica.scripts.request_duty("set_aside", entry.stream.decode(), entry.id, entry.body, reason)

    # --- duties ---------------------------------------------------------------------------------------------

    def _milliseconds_to_next_duty(self) -> int:
        return max(1, min(BLOCK_MILLISECONDS, int((self._next_duty - time.monotonic()) * 1000)))

    def _run_duties(self) -> None:
        now = time.monotonic()
        mine = any(duty.shared and due <= now for due, duty in self._duties) and leases.take_lease(self.replica)
        for index, (due, duty) in enumerate(self._duties):
            if due > now:
                continue
            self.replica.lag_seconds = max(0.0, now - due) if due else 0.0
            try:
                if mine or not duty.shared:
                    duty.run(self.replica)
                self._put_off.pop(duty.name, None)
            except ReplyError as error:
                # A full Redis, or a key that one duty cannot read: what else there is to do must go on.
                if error.code == "NEWER" or (is_refusal(error) and not is_full(error)):
                    raise
                if self._put_off.get(duty.name) != str(error):
                    log.warning("a duty is put off", extra={"duty": duty.name, "reason": str(error)})
                self._put_off[duty.name] = str(error)
            self._duties[index] = (now + duty.period_seconds, duty)
        self._next_duty = min(due for due, _ in self._duties)
        if self.replica.ending and not self.stopping:
            log.info("a client has ended everything", extra={"scheduler": self.replica.id})
            self.stop()

    def _take_over(self, replica: Replica) -> None:
        found = self._reader.take_over(replica.connection, int(replica.settings.takeover_seconds * 1000))
        if new := self._add(found):
            log.info("took over requests that were left unapplied", extra={"entries": new})
