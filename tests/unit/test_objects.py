"""Objects go to Redis and come back chunk by chunk, over a real connection."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gristmill.errors import MissingObjectError
from gristmill.protocol.keys import CHUNK_BYTES, Keys
from gristmill.protocol.kinds import OBJECT_LIFETIME_SECONDS
from gristmill.protocol.payloads import object_id
from gristmill.store.connection import Connection, ReplyError
from gristmill.store.objects import read_object, write_object
from support.database import Database
from support.server import RedisServer


@pytest.fixture
def connection(server: RedisServer) -> Iterator[Connection]:
    connection = Connection(server.address)
    connection.connect()
    yield connection
    connection.close()


@pytest.mark.parametrize("size", [0, 1, 20_000, CHUNK_BYTES, CHUNK_BYTES + 1, 20 * CHUNK_BYTES + 7])
def test_what_was_written_is_read(connection: Connection, keys: Keys, size: int) -> None:
    data = os.urandom(size)
    name = object_id("abc.o1", size)
    write_object(connection, keys, name, [data[:10], data[10:11], memoryview(data)[11:]])

    assert read_object(connection, keys, name) == data
    assert read_object(connection, keys, name, size) == data
    assert connection.request("PING") == b"PONG"


def test_it_lives_for_a_day_and_is_not_written_over(connection: Connection, keys: Keys, database: Database) -> None:
    write_object(connection, keys, "abc.o1-1", [b"first"])
    write_object(connection, keys, "abc.o1-1", [b"other"])

    assert read_object(connection, keys, "abc.o1-1") == b"first"
    assert 0 < database.lifetime_ms(keys.object("abc.o1-1")) <= OBJECT_LIFETIME_SECONDS * 1000


@pytest.mark.parametrize("chunk", ["", "1", "11"])
def test_one_of_which_a_chunk_is_gone_is_missing(
    connection: Connection, keys: Keys, database: Database, chunk: str
) -> None:
    size = 11 * CHUNK_BYTES + 5
    name = object_id("abc.o1", size)
    write_object(connection, keys, name, [bytes(size)])
    database.run("DEL", keys.object_chunk(name, chunk) if chunk else keys.object(name))

    for known in (None, size):
        with pytest.raises(MissingObjectError, match=r"abc\.o1-12"):
            read_object(connection, keys, name, known)
    assert connection.request("PING") == b"PONG"


def test_what_redis_refuses_is_said_when_all_replies_are_read(
    connection: Connection, keys: Keys, database: Database
) -> None:
    database.run("LPUSH", keys.object("abc.o1-2"), "a list")

    with pytest.raises(ReplyError, match="WRONGTYPE"):
        read_object(connection, keys, "abc.o1-2", CHUNK_BYTES + 1)
    assert connection.request("PING") == b"PONG"


def test_one_that_has_another_size_than_was_said_is_missing(connection: Connection, keys: Keys) -> None:
    write_object(connection, keys, "abc.o1-1", [bytes(1000)])
    for size in (5, 1001):
        with pytest.raises(MissingObjectError):
            read_object(connection, keys, "abc.o1-1", size)
    assert connection.request("PING") == b"PONG"
