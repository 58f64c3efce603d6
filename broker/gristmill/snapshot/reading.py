"""Asking Redis: sections of a view are generators that yield commands; `together` runs them in as few round trips
as the longest of them needs.

    def read_intake(keys: Keys) -> Reading[Intake]:
        (reason,) = yield [("GET", keys.intake())]
        return Intake(...)
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any, TypeVar

from gristmill.errors import ConnectionLostError
from gristmill.store.connection import Connection, ReplyError, pack

Answer = TypeVar("Answer")
Command = tuple[Any, ...]
Reading = Generator[list[Command], list[Any], Answer]
"""Yields a list of commands, receives the list of their replies, returns what it made of them."""

REPLY_TIMEOUT_SECONDS = 5.0
IDLE_CONNECTIONS = 4
LONGEST_NAME = 200
LONGEST_TEXT = 1000
"""What is longer was not written by us, and is shown cut."""


class Reader:
    """Round trips to one Redis from any number of threads. Connections are opened when needed and kept for the next."""

    def __init__(self, address: str, *, name: str, reply_timeout: float = REPLY_TIMEOUT_SECONDS) -> None:
        self.address = address
        self._name = name
        self._reply_timeout = reply_timeout
        self._idle: list[Connection] = []
        self._closed = False
        self._lock = threading.Lock()

    def round_trip(self, commands: list[Command]) -> list[Any]:
        """The replies to `commands`, sent in one write; an error reply stands in its place as a ReplyError.

        Raises ConnectionLostError when Redis is away, RedisRefusedError when it does not let us in.
        """
        if not commands:
            return []
        connection = self._take()
        kept = connection.connected
        try:
            try:
                replies = self._send(connection, commands)
            except ConnectionLostError as error:
                # Redis may have been restarted since the connection was last used: everything here only reads, so
                # a second try changes nothing. One that was just opened says how things are, and so does silence.
                if not kept or isinstance(error.__cause__, TimeoutError):
                    raise
                replies = self._send(connection, commands)
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return replies

    @staticmethod
    def _send(connection: Connection, commands: list[Command]) -> list[Any]:
        if not connection.connected:
            connection.connect()
        connection.send(b"".join(pack(command) for command in commands))
        return [connection.read() for _ in commands]

    def _take(self) -> Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return Connection(self.address, name=self._name, reply_timeout=self._reply_timeout)

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections: one in use as soon as its reading is over, and none is kept any more."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def together(reader: Reader, *readings: Reading[Any]) -> list[Any]:
    """Run the readings side by side: the commands that they yield at the same step share one round trip."""
    answers: list[Any] = [None] * len(readings)
    waiting: list[tuple[int, Reading[Any], list[Command]]] = []
    for index, reading in enumerate(readings):
        _advance(index, reading, None, answers, waiting)
    while waiting:
        asked, waiting = waiting, []
        replies = reader.round_trip([command for _, _, commands in asked for command in commands])
        start = 0
        for index, reading, commands in asked:
            end = start + len(commands)
            _advance(index, reading, replies[start:end], answers, waiting)
            start = end
    return answers


def _advance(
    index: int,
    reading: Reading[Any],
    replies: list[Any] | None,
    answers: list[Any],
    waiting: list[tuple[int, Reading[Any], list[Command]]],
) -> None:
    try:
        commands = next(reading) if replies is None else reading.send(replies)
    except StopIteration as stop:
        answers[index] = stop.value
    else:
        waiting.append((index, reading, commands))


def sure(reply: Any) -> Any:
    """The reply, or the error that Redis answered with, raised."""
    if isinstance(reply, ReplyError):
        raise reply
    return reply


def or_else(reply: Any, default: Any, *codes: str) -> Any:
    """The reply, or `default` when Redis answered with one of these error codes."""
    if isinstance(reply, ReplyError) and reply.code in codes:
        return default
    return sure(reply)


def text(value: Any) -> str:
    """Text of a reply; bytes that are no UTF-8 are shown as escapes, None is empty."""
    if value is None:
        return ""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def short(value: Any) -> str:
    """A name out of a reply or a message, cut when nobody of ours can have given it."""
    return text(value)[:LONGEST_NAME]


def number(value: Any) -> int:
    """A whole number of a reply; 0 when it is absent or not a number."""
    try:
        return int(float(value)) if value else 0
    except (ValueError, OverflowError):
        return 0


def decimal(value: Any) -> float:
    """A number of a reply; 0 when it is absent or not a number."""
    try:
        found = float(value) if value else 0.0
    except ValueError:
        return 0.0
    return found if abs(found) < 1e15 else 0.0  # neither infinite nor NaN: both compare false or larger


def pairs(flat: Any) -> dict[str, Any]:
    """The reply of HGETALL: names as text, values as they came."""
    return {text(flat[at]): flat[at + 1] for at in range(0, len(flat), 2)}
