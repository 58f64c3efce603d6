"""Objects: bytes too long for a message, written and read chunk by chunk over one `Connection`.

Nothing is copied on the way: what is written goes from the caller's buffers to the socket, what is read goes from the
socket into the caller's buffer. So many chunks are on their way at a time as keep the socket busy and let others of
the same Redis through in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from gristmill.errors import MissingObjectError
from gristmill.protocol import signing
from gristmill.protocol.buffers import Buffer
from gristmill.protocol.keys import CHUNK_BYTES, Keys, object_chunks
from gristmill.protocol.kinds import OBJECT_LIFETIME_SECONDS
from gristmill.store.connection import Connection, ReplyError, pack

JOINED_BYTES = 16 * 1024
"""What is shorter goes with what follows it: copying costs less than another write."""
AHEAD = 8
"""Chunks on their way that are not yet answered."""

_TAIL = b"\r\n$2\r\nNX\r\n$2\r\nEX\r\n$%d\r\n%d\r\n" % (len(str(OBJECT_LIFETIME_SECONDS)), OBJECT_LIFETIME_SECONDS)


def chunk_key(keys: Keys, object_id: str, chunk: int) -> str:
    """The key of one chunk, counted from 0."""
    return keys.object_chunk(object_id, str(chunk)) if chunk else keys.object(object_id)


def object_writes(keys: Keys, object_id: str, data: Buffer) -> list[bytes]:
    """Packed commands that write an object; each gives one reply (OK, or nil when it is there already).

    For a pipeline with the entry that names it behind them: they copy the bytes.
    """
    commands = []
    for number, chunk in enumerate(_chunks([data])):
        key = chunk_key(keys, object_id, number).encode()
        commands.append(b"".join((_head(key, sum(map(len, chunk))), *chunk, _TAIL)))
    return commands


def write_object(connection: Connection, keys: Keys, object_id: str, pieces: Iterable[Buffer]) -> None:
    """Write an object, which consists of these pieces, and return when Redis has all of it.

    A chunk that is there already stays as it is: the same object may be written twice. It has a lifetime until a
    script accepts it. Raises ConnectionLostError, and ReplyError when Redis refuses.
    """
    unanswered = 0
    refusal: ReplyError | None = None
    for number, chunk in enumerate(_chunks(pieces)):
        key = chunk_key(keys, object_id, number).encode()
        connection.send(_head(key, sum(map(len, chunk))))
        for part in chunk[:-1]:
            connection.send_buffer(part)
        last = chunk[-1] if chunk else memoryview(b"")
        if len(last) > JOINED_BYTES:
            connection.send_buffer(last)
            last = memoryview(b"")
        connection.send(bytes(last) + _TAIL)
        unanswered += 1
        if unanswered >= AHEAD:
            refusal = _read_answer(connection, refusal)
            unanswered -= 1
    for _ in range(unanswered):
        refusal = _read_answer(connection, refusal)
    if refusal is not None:
        raise refusal


def _head(key: bytes, size: int) -> bytes:
    """SET key data NX EX lifetime, up to the data."""
    return b"*6\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(key), key, size)


def _read_answer(connection: Connection, refusal: ReplyError | None) -> ReplyError | None:
    reply = connection.read()
    return refusal or (reply if isinstance(reply, ReplyError) else None)


def _chunks(pieces: Iterable[Buffer]) -> Iterator[list[memoryview]]:
    """The pieces cut and joined into chunks; an object has one at least."""
    chunk: list[memoryview] = []
    room = CHUNK_BYTES
    any_chunk = False
    for piece in pieces:
        view = memoryview(piece)
        while len(view):
            part, view = view[:room], view[room:]
            chunk.append(part)
            room -= len(part)
            if not room:
                yield chunk
                any_chunk, chunk, room = True, [], CHUNK_BYTES
    if chunk or not any_chunk:
        yield chunk


def object_size(connection: Connection, keys: Keys, object_id: str) -> int:
    """The bytes of an object: all its chunks but the last are full. Raises MissingObjectError."""
    last = object_chunks(object_id) - 1
    length = connection.request("STRLEN", chunk_key(keys, object_id, last))
    if not length and not connection.request("EXISTS", chunk_key(keys, object_id, last)):
        raise _missing(object_id)
    return last * CHUNK_BYTES + int(length)


def read_object_into(connection: Connection, keys: Keys, object_id: str, target: memoryview) -> None:
    """Read an object into a buffer of exactly its size; raises MissingObjectError, ConnectionLostError, ReplyError."""
    count = object_chunks(object_id)
    waiting: deque[int] = deque()
    asked = 0
    whole = True
    refusal: Any = None
    while asked < count or waiting:
        while asked < count and len(waiting) < AHEAD and whole:
            connection.send(pack(("GET", chunk_key(keys, object_id, asked))))
            waiting.append(asked)
            asked += 1
        if not waiting:
            break
        begin = waiting.popleft() * CHUNK_BYTES
        part = target[begin : begin + CHUNK_BYTES]
        reply = connection.read_into(part)
        if reply != len(part):
            whole = False
            refusal = refusal or (reply if isinstance(reply, ReplyError) else None)
    if refusal is not None:
        raise refusal
    if not whole:
        raise _missing(object_id)
    if (signer := signing.signer(keys.namespace)) is not None:
        signer.check_object(object_id, target)


def read_object(connection: Connection, keys: Keys, object_id: str, size: int | None = None) -> bytearray:
    """The bytes of an object, whose size may be known; raises MissingObjectError, ConnectionLostError, ReplyError."""
    target = bytearray(object_size(connection, keys, object_id) if size is None else size)
    read_object_into(connection, keys, object_id, memoryview(target))
    return target


def _missing(object_id: str) -> MissingObjectError:
    return MissingObjectError(f"the object {object_id} is gone from Redis: it was released, or Redis lost its data")
