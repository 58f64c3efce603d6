"""The fault proxy does what a test asks of it, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gristmill.errors import ConnectionLostError
from gristmill.store.connection import Connection, pack
from support.database import Database
from support.leaks import Leaks
from support.proxy import PASS, Command, Fault, FaultProxy, Verdict, frame_end, words_of
from support.server import RedisServer
from support.waiting import wait_until


@pytest.fixture
def proxy(no_leaks: Leaks, server: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.socket) as proxy:
        yield proxy
    assert proxy.failure is None


def connected(address: str) -> Connection:
    connection = Connection(address, reply_timeout=60.0)
    connection.connect()
    return connection


INCREMENT = pack(("INCR", "n"))


@pytest.mark.parametrize("whole", [
    b"+OK\r\n", b"-ERR no\r\n", b":1\r\n", b"$-1\r\n", b"$0\r\n\r\n", b"$4\r\n\r\n\r\n\r\n", b"*-1\r\n", b"*0\r\n",
    b"*2\r\n*1\r\n$1\r\na\r\n:5\r\n", b"%1\r\n+a\r\n*1\r\n:1\r\n", b"_\r\n", b"|1\r\n+a\r\n:1\r\n+b\r\n",
])  # fmt: skip
def test_a_value_ends_where_it_ends_and_not_before_it_is_whole(whole: bytes) -> None:
    assert frame_end(whole + b"+more\r\n", 0) == len(whole)
    assert [frame_end(whole[:size], 0) for size in range(len(whole))] == [-1] * len(whole)


def test_words_are_what_was_packed() -> None:
    assert words_of(pack(("SET", "key", b"a\r\nb", 5))) == [b"SET", b"key", b"a\r\nb", b"5"]


@pytest.mark.parametrize("kind", ["address", "tcp_address"])
def test_without_faults_everything_passes(proxy: FaultProxy, kind: str) -> None:
    connection = connected(getattr(proxy, kind))
    value = os.urandom(300_000)

    assert connection.request("SET", "key", value) == b"OK"
    assert connection.request("GET", "key") == value
    connection.send(*[INCREMENT] * 500)
    assert [connection.read() for _ in range(500)] == list(range(1, 501))
    connection.close()


def test_exactly_one_reply_is_lost_and_its_command_is_applied(proxy: FaultProxy, database: Database) -> None:
    first, second = connected(proxy.address), connected(proxy.address)
    lost = proxy.lose_reply(lambda command: command.name == b"INCR")
    with pytest.raises(ConnectionLostError):
        first.request("INCR", "n")

    assert lost.is_set()
    assert database.string("n") == "1"
    assert second.request("INCR", "n") == 2, "the other connection goes on, and keeps its reply"
    second.close()


def test_exactly_one_command_is_refused_and_never_reaches_redis(proxy: FaultProxy, database: Database) -> None:
    connection = connected(proxy.address)
    refused = proxy.refuse(lambda command: command.name == b"INCR", b"LOADING the dataset")
    connection.send(pack(("SET", "a", 1)), INCREMENT, INCREMENT)

    assert connection.read() == b"OK"
    assert str(connection.read()) == "LOADING the dataset"
    assert connection.read() == 1
    assert refused.is_set()
    connection.close()


def test_a_cut_before_a_command_keeps_it_from_redis(proxy: FaultProxy, database: Database) -> None:
    connection = connected(proxy.address)
    proxy.on_command = lambda command: Verdict(Fault.CUT_BEFORE) if command.words[1:] == [b"n"] else PASS
    with pytest.raises(ConnectionLostError):
        connection.request("INCR", "n")

    assert database.string("n") is None


@pytest.mark.parametrize(
    ("fault", "applied", "heard"), [(Fault.CUT_BEFORE, 2, 2), (Fault.LOSE_REPLY, 3, 2), (Fault.CUT_AFTER, 3, 3)]
)
def test_a_pipeline_is_cut_at_the_very_command(
    proxy: FaultProxy, database: Database, fault: Fault, applied: int, heard: int
) -> None:
    connection = connected(proxy.address)
    before = proxy.counts[os.getpid()]
    happened = []

    def third(command: Command) -> Verdict:
        at = command.number == before + 3
        return Verdict(fault, lambda: happened.append(database.string("n"))) if at else PASS

    proxy.on_command = third
    connection.send(*[INCREMENT] * 5)

    assert [connection.read() for _ in range(heard)] == list(range(1, heard + 1))
    with pytest.raises(ConnectionLostError):
        connection.read()
    assert database.string("n") == str(applied)
    assert happened == [str(applied)], "what is done at that moment is done then, once"


def test_it_knows_which_process_sends(proxy: FaultProxy) -> None:
    connection = connected(proxy.address)

    assert proxy.connections(os.getpid()) == 1
    assert proxy.connections(1) == 0
    assert proxy.counts[os.getpid()] >= 1
    connection.close()
    wait_until(lambda: proxy.connections() == 0, "the proxy notices the end")


def test_a_cut_ends_what_is_there_and_welcomes_what_comes(proxy: FaultProxy) -> None:
    connection = connected(proxy.address)
    proxy.cut()
    with pytest.raises(ConnectionLostError):
        connection.request("PING")
    connection.connect()

    assert connection.request("PING") == b"PONG"
    connection.close()


@pytest.mark.parametrize("kind", ["address", "tcp_address"])
def test_half_open_nothing_passes_and_nothing_ends(proxy: FaultProxy, database: Database, kind: str) -> None:
    connection = connected(getattr(proxy, kind))
    connection._require().settimeout(0.3)  # only from here on: connecting may take longer
    proxy.go_silent()
    with pytest.raises(ConnectionLostError, match="timed out"):
        connection.request("INCR", "n")
    fresh = connected(proxy.address)

    assert fresh.request("INCR", "n") == 1
    assert database.string("n") == "1"
    fresh.close()


def test_what_is_held_passes_later(proxy: FaultProxy, database: Database) -> None:
    connection = connected(proxy.address)
    proxy.held = True
    connection.send(INCREMENT)
    database.run("PING")
    assert database.string("n") is None
    proxy.held = False

    assert connection.read() == 1
    connection.close()


def test_a_delay_keeps_the_order(proxy: FaultProxy) -> None:
    proxy.delay_seconds = 0.01
    connection = connected(proxy.address)
    connection.send(*[INCREMENT] * 50)

    assert [connection.read() for _ in range(50)] == list(range(1, 51))
    connection.close()


def test_while_redis_is_away_connections_end(no_leaks: Leaks, own_server: RedisServer) -> None:
    with FaultProxy(own_server.socket) as proxy:
        connection = connected(proxy.address)
        own_server.kill()
        with pytest.raises(ConnectionLostError):
            connection.request("PING")
        with pytest.raises(ConnectionLostError):
            connected(proxy.address)
        own_server.start()
        connection.connect()

        assert connection.request("PING") == b"PONG"
        connection.close()
