"""What a processor says to Redis: outcomes out and tasks in, in one write; objects when a task needs them.

After a lost connection it first reads what was delivered to it but never arrived (architecture §2, rule 12): entries
after the last one that it got. What it has finished stays in the board until Redis has taken it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson

from gristmill.errors import ConnectionLostError
from gristmill.protocol import kinds
from gristmill.protocol.buffers import Buffer
from gristmill.protocol.keys import GROUP_PROCESSORS, Keys
from gristmill.store import objects
from gristmill.store.connection import BLOCK_MILLISECONDS, ELSEWHERE, Connection, ReplyError, backoff, pack
from gristmill_worker.board import CONNECTION, LEAVING, SERVER, ProcessorBoard, server_word

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

Entry = tuple[bytes, dict[bytes, bytes]]
"""An entry of the worker's stream: its id and its fields."""

NEW = ">"


SETTLE_SECONDS = 5.0
"""After so long the processor looks again where the address leads."""
LONGEST_ENTRY = 16_384
"""Bytes of an entry's first field: a call in it has 4 KiB at most, in base64."""
_TASK = re.compile(rb"[A-Za-z0-9_.|-]{1,200}\Z")


class GroupLostError(Exception):
    """Redis does not know this worker's stream or group (any more)."""


class Link:
    """One dedicated connection, which comes back by itself."""

    def __init__(
        self,
        address: str,
        keys: Keys,
        worker: str,
        processor: str,
        board: ProcessorBoard,
        before_connect: Callable[[], None],
    ) -> None:
        self._before_connect = before_connect
        self._keys = keys
        self._board = board
        self._connection = Connection(address, name=f"{worker}/{processor}")
        self._results = keys.results()
        self._tasks = keys.worker_tasks(worker)
        self._processor = processor
        self._worker = worker.encode()
        self._head = b'{"version":%d,"worker":"%b","outcomes":[' % (kinds.VERSION, worker.encode())
        self._last = "0"
        self._from = NEW
        self._server = ""
        self.server = 0
        """The server that it reads from, as the board names it."""
        self.caught_up = False
        """Whether the last read was answered, and nothing that was delivered before it is still to be read."""
        self._refusals = 0
        self._reads: dict[int, bytes] = {}

    def connect(self) -> None:
        """Connect, however long it takes; ends what may be left of the former connection."""
        failures = 0
        while True:
            try:
                self._connect_once()
                break
            except (ConnectionLostError, ReplyError) as error:
                self._connection.close()
                failures += 1
                if failures == 1:
                    # The agent, which reaches for the same Redis, tells people.
                    logger.debug("cannot reach Redis", extra={"cause": str(error), "processor": self._processor})
                time.sleep(backoff(failures))

    def _connect_once(self) -> None:
        connection, former = self._connection, self._board.words[CONNECTION]
        self._before_connect()
        connection.connect()
        if self._server:
            self._from = self._last
            if self._server == connection.run_id:
                # Half open, the former connection could still be handed tasks, which nobody would read.
                connection.send(pack(("CLIENT", "KILL", "ID", former)))
                connection.read()
        self._board.words[CONNECTION] = connection.request("CLIENT", "ID")
        self._server, self.server = connection.run_id, server_word(connection.run_id)
        self._wait_until_settled()

    def _wait_until_settled(self) -> None:
        """Another server than before may deliver again what this worker has had: the agent puts it right first."""
        words, server = self._board.words, self.server
        give_up = time.monotonic() + SETTLE_SECONDS
        while words[SERVER] not in (0, server) and not words[LEAVING]:
            if time.monotonic() > give_up:
                raise ConnectionLostError("the agent talks to another server")
            time.sleep(0.005)

    def exchange(self, count: int, meanwhile: Callable[[], None]) -> list[Entry]:
        """Send the outcomes that are due and read up to `count` tasks, waiting for the first for a while.

        `meanwhile` is called when they are on their way: somebody waits for them.
        Raises GroupLostError. The list is empty when there was nothing, or after trouble; outcomes that Redis has
        not taken are still due.
        """
        connection, unsent = self._connection, self._board.unsent()
        self.caught_up = False
        read = (self._reads.get(count) if self._from is NEW else None) or self._read_command(count)
        try:
            if unsent:
                connection.send(self._outcomes_command(unsent), read)
                meanwhile()
                if not isinstance(connection.read(), ReplyError):
                    self._board.sent()
            else:
                connection.send(read)
                meanwhile()
            reply = connection.read()
        except ConnectionLostError:
            meanwhile()
            self.connect()
            return []
        if isinstance(reply, ReplyError):
            if reply.code == "NOGROUP":
                raise GroupLostError(str(reply))
            self._refused(reply)
            return []
        entries = self._entries(reply) if reply or self._from is not NEW else []
        self.caught_up = self._from is NEW
        return entries

    def flush(self) -> None:
        """Send the outcomes that are due; returns when Redis has taken them."""
        unsent = self._board.unsent()
        if unsent:
            command = self._outcomes_command(unsent)
            self._insist(lambda: self._request(command))
            self._board.sent()

    def read_object(self, name: str, size: int | None = None) -> bytearray:
        """The bytes of an object, whose size may be known; raises MissingObjectError."""
        return self._insist(lambda: objects.read_object(self._connection, self._keys, name, size))

    def read_into(self, name: str, target: memoryview) -> None:
        """Read an object into a buffer of its size; raises MissingObjectError."""
        self._insist(lambda: objects.read_object_into(self._connection, self._keys, name, target))

    def read_values(self, tasks: list[str]) -> list[bytes | None]:
        """The payloads (JSON) of finished tasks; None for one that is gone."""
        names = [self._keys.value(task) for task in tasks]
        found: list[bytes | None] = self._insist(lambda: self._connection.request("MGET", *names))
        return found

    def write_object(self, name: str, pieces: Sequence[Buffer]) -> None:
        """Write an object, before the outcome that names it; returns when Redis has it."""
        self._insist(lambda: objects.write_object(self._connection, self._keys, name, pieces))

    def give_back(self, task: bytes, attempt: bytes) -> None:
        """A task that was stopped in order to end one below it on the stack runs elsewhere, or nowhere."""
        body = b'{"version":%d,"worker":"%b","tasks":[["%b",%b]]}' % (kinds.VERSION, self._worker, task, attempt)
        command = pack(("XADD", self._results, "*", "returned", body))
        self._insist(lambda: self._request(command))

    def send_output(self, task: str, attempt: int, lines: list[tuple[str, str]], dropped: int, number: int) -> None:
        """Send what a task has printed; returns when Redis has it, so that its outcome comes behind it."""
        message = {"version": kinds.VERSION, "task": task, "attempt": attempt, "number": number}
        body = orjson.dumps({**message, "lines": lines, "dropped": dropped})
        command = pack(("XADD", self._results, "*", kinds.Request.OUTPUT.value, body))
        self._insist(lambda: self._request(command))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _insist(self, operation: Callable[[], Answer]) -> Answer:
        """Repeat it until Redis has answered: losing the connection, and a Redis that is full or loading, pass."""
        while True:
            try:
                answer = operation()
            except ConnectionLostError:
                self.connect()
            except ReplyError as error:
                self._refused(error)
            else:
                if self._refusals:
                    self._refusals = 0
                    logger.info("Redis accepts again", extra={"processor": self._processor})
                return answer

    def _refused(self, error: ReplyError) -> None:
        self._refusals += 1
        if self._refusals == 1:
            logger.warning("Redis refuses; trying again", extra={"cause": str(error), "processor": self._processor})
        time.sleep(backoff(self._refusals))
        if error.code in ELSEWHERE:
            self.connect()

    def _request(self, command: bytes) -> Any:
        self._connection.send(command)
        reply = self._connection.read()
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def _outcomes_command(self, rows: bytes) -> bytes:
        return pack(("XADD", self._results, "*", "outcomes", b"%b%b]}" % (self._head, rows)))

    def _read_command(self, count: int) -> bytes:
        how = ("GROUP", GROUP_PROCESSORS, self._processor, "COUNT", count, "BLOCK", BLOCK_MILLISECONDS)
        command = pack(("XREADGROUP", *how, "STREAMS", self._tasks, self._from))
        if self._from is NEW:
            self._reads[count] = command
        return command

    def _entries(self, reply: Any) -> list[Entry]:
        rows = reply[0][1] if reply else []
        if self._from is not NEW:
            # Delivered earlier, but the reply was lost: until there are none left.
            self._from = rows[-1][0].decode() if rows else NEW
        if not rows:
            return []
        self._last = rows[-1][0].decode()
        entries = []
        for entry, flat in rows:
            if flat is None:
                continue  # deleted after it was delivered
            try:
                entries.append((entry, unpack_entry(flat)))
            except (ValueError, IndexError):
                logger.exception("an entry of the task stream cannot be read", extra={"entry": entry.decode()})
        return entries


def unpack_entry(flat: list[bytes]) -> dict[bytes, bytes]:
    """The fields of an entry, one fact each; packed as `protocol.records` says. ValueError when it is not."""
    task, attempt, call, function, name = flat[1].split(b" ", 4)
    if not (attempt.isdigit() and len(flat[1]) <= LONGEST_ENTRY and _TASK.match(task)):
        # Only who can write to Redis can bring this; it must not reach the board, which the agent reads.
        raise ValueError("expected an entry of <id> <attempt> <call> <function> <name>")
    fields = {b"task": task, b"attempt": attempt, b"function": function, b"name": name}
    if call != b"-":
        fields[b"call"] = call
    if len(flat) > 2:
        fields.update(zip(flat[2::2], flat[3::2], strict=True))
    return fields
