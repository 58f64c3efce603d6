"""Reading, by hand, what lies in Redis: everything as text, every Redis type as a Python one."""

from __future__ import annotations

from typing import Any, NamedTuple

import redis

from gristmill.protocol.records import unpack_entry

ANSWER_SECONDS = 60
"""A server on a machine that is busy with other tests may take its time."""


class Entry(NamedTuple):
    """One entry of a stream."""

    id: str
    fields: dict[str, str]


class Pending(NamedTuple):
    """One entry that a group has delivered and nobody has acknowledged."""

    id: str
    consumer: str
    idle_ms: int
    deliveries: int


def _text(value: Any) -> str:
    # Bytes that are no characters stay what they are when they are encoded again.
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


class Database:
    """A connection of the tests' own; it comes back by itself when the server was restarted."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._redis = redis.Redis.from_url(address, protocol=2, socket_timeout=ANSWER_SECONDS)

    def close(self) -> None:
        self._redis.close()

    def run(self, *words: Any) -> Any:
        """Any command; the reply as Redis gives it (bytes, ints and lists); sent again when the connection was lost."""
        connection = self._redis.connection_pool.get_connection()
        try:
            for attempt in (1, 2):
                try:
                    connection.send_command(*words)  # type: ignore[no-untyped-call]
                    return connection.read_response()
                except redis.ConnectionError:
                    connection.disconnect()  # type: ignore[no-untyped-call]
                    if attempt == 2:
                        raise
        finally:
            self._redis.connection_pool.release(connection)

    def keys(self, prefix: str = "") -> list[str]:
        """Every key that begins with the prefix, in order."""
        found: list[str] = []
        cursor: Any = b"0"
        while True:
            cursor, page = self.run("SCAN", cursor, "COUNT", 1000)
            found += (_text(key) for key in page)
            if cursor == b"0":
                return sorted({key for key in found if key.startswith(prefix)})

    def info(self, section: str) -> list[str]:
        """The lines of a section of INFO, each `name:value`."""
        return [line for line in _text(self.run("INFO", section)).splitlines() if ":" in line]

    def exists(self, key: str) -> bool:
        return bool(self.run("EXISTS", key))

    def type(self, key: str) -> str:
        return _text(self.run("TYPE", key))

    def lifetime_ms(self, key: str) -> int:
        """Milliseconds; -1 when it never expires, -2 when it does not exist."""
        return int(self.run("PTTL", key))

    def string(self, key: str) -> str | None:
        value = self.run("GET", key)
        return None if value is None else _text(value)

    def hash(self, key: str) -> dict[str, str]:
        flat = [_text(item) for item in self.run("HGETALL", key)]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def set(self, key: str) -> set[str]:
        return {_text(member) for member in self.run("SMEMBERS", key)}

    def zset(self, key: str) -> dict[str, float]:
        """Member to score, lowest first."""
        flat = self.run("ZRANGE", key, 0, -1, "WITHSCORES")
        return {_text(member): float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)}

    def length(self, stream: str) -> int:
        return int(self.run("XLEN", stream))

    def stream(self, stream: str) -> list[Entry]:
        return [entry_of(reply) for reply in self.run("XRANGE", stream, "-", "+")]

    def groups(self, stream: str) -> list[str]:
        """Names of the groups; none when the stream does not exist."""
        try:
            rows = self.run("XINFO", "GROUPS", stream)
        except redis.ResponseError as error:
            if "no such key" not in str(error):
                raise
            return []
        names = []
        for flat in rows:
            words = [_text(item) for item in flat]
            names.append(words[words.index("name") + 1])
        return names

    def pending(self, stream: str, group: str) -> list[Pending]:
        """What the group has delivered and nobody has acknowledged; none when there is no such group."""
        try:
            rows = self.run("XPENDING", stream, group, "-", "+", 100_000)
        except redis.ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            return []
        return [Pending(_text(row[0]), _text(row[1]), int(row[2]), int(row[3])) for row in rows]


def entry_of(reply: Any) -> Entry:
    """One entry out of the reply of XRANGE or XREADGROUP."""
    identity, flat = reply
    words = [_text(item) for item in flat or ()]
    fields = dict(zip(words[::2], words[1::2], strict=True))
    return Entry(_text(identity), unpack_entry(fields) if "task" in fields else fields)
