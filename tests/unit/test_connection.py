"""The connection of the hot loops, against a real server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest
import redis

from gristmill.errors import AddressError, ConnectionLostError
from gristmill.store import addresses
from gristmill.store import connection as module
from gristmill.store.connection import (
    Connection,
    ReplyError,
    check_address,
    connect,
    connect_patiently,
    hide_password,
    is_open_to_others,
    pack,
)
from support.database import Database
from support.server import RedisServer
from support.waiting import wait_until


@pytest.fixture
def connection(server: RedisServer) -> Iterator[Connection]:
    connection = Connection(server.address, name="gristmill-test")
    connection.connect()
    yield connection
    connection.close()


def test_a_request_is_answered_in_bytes(connection: Connection) -> None:
    assert connection.request("SET", "key", b"\x00\xff\r\n") == b"OK"
    assert connection.request("GET", "key") == b"\x00\xff\r\n"


def test_numbers_are_packed_as_they_read(connection: Connection) -> None:
    connection.request("RPUSH", "key", 7, 0.5, "seven", b"7")

    assert connection.request("LRANGE", "key", 0, -1) == [b"7", b"0.5", b"seven", b"7"]


def test_several_commands_sent_at_once_are_answered_one_by_one(connection: Connection) -> None:
    connection.send(pack(("SET", "key", "1")), pack(("INCR", "key")), pack(("GET", "key")))

    assert [connection.read() for _ in range(3)] == [b"OK", 2, b"2"]


def test_replies_that_came_along_wait_in_the_buffer(connection: Connection) -> None:
    connection.send(pack(("ECHO", "one")) + pack(("ECHO", "two")))

    assert connection.read() == b"one"
    wait_until(lambda: connection.buffered or connection.fileno() >= 0, "the second reply waits")
    assert connection.read() == b"two"
    assert not connection.buffered


def test_a_large_value_goes_there_and_back(connection: Connection) -> None:
    large = os.urandom(3 << 20)
    connection.request("SET", "key", large)

    assert connection.request("GET", "key") == large


def test_an_error_reply_is_raised_by_request_with_its_code(connection: Connection) -> None:
    with pytest.raises(ReplyError, match="WRONGTYPE") as caught:
        connection.request("LPUSH", connection.request("SET", "key", 1) and "key", 1)

    assert caught.value.code == "WRONGTYPE"


def test_an_error_reply_is_returned_by_read_and_spoils_nothing(connection: Connection) -> None:
    connection.send(pack(("NONSENSE",)), pack(("PING",)))

    assert isinstance(connection.read(), ReplyError)
    assert connection.read() == b"PONG"


def test_a_connection_carries_its_name(connection: Connection) -> None:
    assert connection.request("CLIENT", "GETNAME") == b"gristmill-test"


def test_a_connection_knows_which_server_it_talks_to(connection: Connection) -> None:
    assert f"run_id:{connection.run_id}".encode() in connection.request("INFO", "server")
    assert len(connection.run_id) == 40


def test_another_server_has_another_run_id(own_server: RedisServer) -> None:
    connection = Connection(own_server.address)
    connection.connect()
    before = connection.run_id
    own_server.restart()
    connection.connect()

    assert connection.run_id not in ("", before)
    connection.close()


def test_a_killed_connection_is_a_lost_one_and_can_be_made_again(connection: Connection, database: Database) -> None:
    number = connection.request("CLIENT", "ID")
    database.run("CLIENT", "KILL", "ID", number)

    with pytest.raises(ConnectionLostError, match="lost Redis at unix://"):
        connection.request("PING")
    assert not connection.connected

    connection.connect()
    assert connection.request("PING") == b"PONG"


def test_a_blocked_read_ends_when_the_connection_is_killed(connection: Connection, database: Database) -> None:
    number = connection.request("CLIENT", "ID")
    connection.send(pack(("BLPOP", "nothing", 0)))

    def is_blocked() -> bool:
        return b"cmd=blpop" in database.run("CLIENT", "LIST")

    wait_until(is_blocked, "the connection is blocked")
    database.run("CLIENT", "KILL", "ID", number)

    with pytest.raises(ConnectionLostError, match="the server closed the connection"):
        connection.read()


def test_a_server_that_does_not_answer_is_a_lost_connection(server: RedisServer) -> None:
    connection = Connection(server.address, reply_timeout=0.05)
    connect_patiently(connection, 60.0)  # the answers to its own greeting may be as late

    with pytest.raises(ConnectionLostError, match="timed out"):
        connection.request("BLPOP", "nothing", 0)
    assert not connection.connected


def test_a_client_for_commands_now_and_then_does_not_hang_on_a_frozen_server(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(addresses, "RETRIES", 0)
    client = connect(own_server.address)

    def answers() -> bool:
        with contextlib.suppress(redis.TimeoutError):  # this machine may stall for as long
            return bool(client.ping())
        return False

    wait_until(answers, "the server answers while it is not frozen")
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(redis.TimeoutError):
            client.ping()
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
        client.connection_pool.disconnect()


def test_a_closed_connection_says_that_it_is_not_connected(server: RedisServer) -> None:
    connection = Connection(server.address)
    connection.close()

    with pytest.raises(ConnectionLostError, match="not connected to Redis at unix://"):
        connection.request("PING")


def test_no_server_is_a_lost_connection_that_names_the_address(own_server: RedisServer) -> None:
    own_server.stop()

    with pytest.raises(ConnectionLostError, match=f"cannot reach Redis at {own_server.address}"):
        Connection(own_server.address).connect()


def test_patience_ends(own_server: RedisServer) -> None:
    own_server.stop()

    with pytest.raises(ConnectionLostError):
        connect_patiently(Connection(own_server.address), give_up_after=0.2)


def test_patience_is_rewarded_when_the_server_comes(own_server: RedisServer) -> None:
    own_server.stop()
    connection = Connection(own_server.address)
    waiting = threading.Thread(target=connect_patiently, args=(connection, 30.0))
    waiting.start()
    own_server.start()
    waiting.join(timeout=60)

    assert connection.request("PING") == b"PONG"
    connection.close()


def test_a_wrong_password_is_refused_without_being_repeated(own_server: RedisServer) -> None:
    own_server.command("CONFIG", "SET", "requirepass", "right")
    address = own_server.address.replace("unix://", "unix://:wr0ng@")

    with pytest.raises((ConnectionLostError, ReplyError), match=r"WRONGPASS|AUTH|password") as caught:
        Connection(address).connect()
    assert "wr0ng" not in str(caught.value)


def test_a_password_with_special_characters_goes_percent_encoded(own_server: RedisServer) -> None:
    own_server.command("CONFIG", "SET", "requirepass", "#/+=%@:")
    connection = Connection(own_server.address.replace("unix://", "unix://:%23%2F%2B%3D%25%40%3A@"))
    connection.connect()

    assert connection.request("PING") == b"PONG"
    connection.close()


def test_a_connection_over_tcp_does_not_wait_to_fill_packets(own_server: RedisServer) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        own_server.command("CONFIG", "SET", "port", str(port))
    except redis.ResponseError:  # Redis 6.2 starts with its ports
        pytest.skip("this server cannot open a port while it runs")
    connection = Connection(f"redis://127.0.0.1:{port}/0")
    connection.connect()
    duplicate = socket.socket(fileno=os.dup(connection.fileno()))

    with duplicate:
        assert duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    connection.close()


@pytest.mark.parametrize("query", ["decode_responses=True", "protocol=3", "socket_timeout=0.01", "encoding=latin-1"])
def test_options_of_the_address_change_nothing_that_we_rely_on(server: RedisServer, query: str) -> None:
    connection = Connection(f"{server.address}?{query}")
    connection.connect()
    connection.request("HSET", "key", "field", b"\xff")

    assert connection.request("HGETALL", "key") == [b"field", b"\xff"]
    assert connection.request("BLPOP", "nothing", 0.05) is None
    connection.close()

    with connect(f"{server.address}?{query}") as client:
        assert client.hgetall("key") == {b"field": b"\xff"}


def test_the_database_number_of_the_address_counts(server: RedisServer, database: Database) -> None:
    connection = Connection(f"{server.address}?db=3")
    connection.connect()
    connection.request("SET", "key", 1)

    assert database.keys() == []
    connection.close()


@pytest.mark.parametrize(
    "address", ["", "localhost:6379", "http://localhost", "redis:/localhost", "redis://localhost:port"]
)
def test_an_address_that_is_none_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(AddressError, match="redis://localhost:6379/0"):
        Connection(address)


@pytest.mark.parametrize("address", ["http://user:s3cret@host:1/0", "redis://user:s3cret@host:port/0"])
def test_a_refused_address_does_not_show_its_password(address: str) -> None:
    with pytest.raises(AddressError) as caught:
        Connection(address)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:s3cret@localhost/0", "redis://:***@localhost/0"),
        ("rediss://me:s3cret@localhost/0", "rediss://me:***@localhost/0"),
        ("unix://me:s3cret@/run/redis.sock", "unix://me:***@/run/redis.sock"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert module.hide_password(address) == shown


@pytest.mark.parametrize("address", ["redis+sentinel://a:26379/main", "redis+sentinel://:pw@a:1,b:2,c/main/3"])
def test_a_sentinel_address_may_name_several_hosts(address: str) -> None:
    assert module.check_address(address) == address


def test_an_unknown_option_of_the_address_is_named(server: RedisServer) -> None:
    with pytest.raises(AddressError, match="nonsense"):
        Connection(f"{server.address}?nonsense=1").connect()


def test_a_sentinel_address_needs_the_name_of_the_service() -> None:
    with pytest.raises(AddressError, match="got no service name"):
        Connection("redis+sentinel://localhost:26379").connect()


def test_back_off_grows_and_stays_bounded() -> None:
    pauses = [module.backoff(failures) for failures in range(1, 20)]

    assert pauses == sorted(pauses)
    assert pauses[0] <= 0.1
    assert pauses[-1] == 2.0


def test_a_block_ends_well_before_the_reply_is_given_up() -> None:
    assert module.BLOCK_MILLISECONDS / 1000 < module.REPLY_TIMEOUT_SECONDS / 2


def test_a_connection_can_be_made_again_hundreds_of_times(connection: Connection) -> None:
    for _ in range(300):
        connection.connect()

    assert connection.request("PING") == b"PONG"


@pytest.mark.parametrize(
    "address",
    [
        "user:s3cret@host:6379",
        "redis:/user:s3cret@host",
        "redis://:1234/s3cret@host:6379/0",
        "redis://user:s3cret@host:notaport/0",
        "http://user:s3cret@host",
    ],
)
def test_a_wrong_address_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(AddressError) as caught:
        check_address(address)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("redis://user:s3cret@host:6379/0", "redis://user:***@host:6379/0"),
        ("redis://:s3c@ret@host", "redis://:***@host"),
        ("unix:///run/x.sock?db=1&password=s3cret", "unix:///run/x.sock?db=1&password=***"),
        ("redis://host/0", "redis://host/0"),
        ("s3cret@host", "(an address that begins with none of these)"),
    ],
)
def test_an_address_of_any_form_is_shown_without_its_password(address: str, shown: str) -> None:
    assert hide_password(address) == shown


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("redis://queue.example:6379/0", True),
        ("redis://miller@queue.example", True),
        ("rediss://192.0.2.7", True),
        ("redis+sentinel://127.0.0.1:26379,192.0.2.7/mill", True),
        ("redis://:word@queue.example", False),
        ("redis://queue.example/0?password=word", False),
        ("redis://localhost:6379", False),
        ("redis://127.0.0.1", False),
        ("redis://[::1]:6379", False),
        ("unix:///run/redis.sock", False),
    ],
)
def test_a_redis_elsewhere_without_a_password_is_open_to_others(address: str, is_open: bool) -> None:
    assert is_open_to_others(address) == is_open
