"""H57 to H65: what cannot be pickled, loaded, sent or told."""

from __future__ import annotations

import builtins
import functools
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gristmill import Client, LocalCluster, ResultSerializationError, SerializationError
from gristmill.protocol.keys import Keys
from support import tasks
from support.database import Database
from support.waiting import wait_until


def test_h57_a_result_that_cannot_be_pickled_fails_its_task_and_nothing_else(client: Client) -> None:
    """A lock, a generator, an open file and an object that refuses: each outcome names the type, and work goes on."""

    def open_file() -> object:
        return open("/dev/null", "wb")

    def unwilling() -> object:
        class Unwilling:
            def __reduce__(self) -> NoReturn:
                raise RuntimeError("never")

        return Unwilling()

    functions: dict[str, Callable[[], object]] = {
        "lock": tasks.return_a_lock,
        "generator": lambda: tasks.return_a_generator(),
        "BufferedWriter": open_file,
        "Unwilling": unwilling,
    }
    for name, function in functions.items():
        error = client.submit(function).exception(timeout=30)
        assert isinstance(error, ResultSerializationError)
        assert name in str(error)
        assert client.submit(abs, -1).result(timeout=30) == 1


def test_h58_an_exception_that_does_not_unpickle_arrives_by_name_with_its_traceback(client: Client) -> None:
    """Odd constructors, a lock inside, a message that cannot be shown: the class name and remote traceback arrive."""

    def keyword_only() -> NoReturn:
        class KeywordOnlyError(Exception):
            def __init__(self, *, code: int) -> None:
                super().__init__(f"code {code}")

        raise KeywordOnlyError(code=7)

    def without_a_message() -> NoReturn:
        class SilentError(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no message")

        raise SilentError

    expected = {
        tasks.raise_two_arguments_error: ("TwoArgumentsError", "this and that"),
        keyword_only: ("KeywordOnlyError", "code 7"),
        tasks.raise_lock_holding_error: ("LockHoldingError", "holds a lock"),
        without_a_message: ("SilentError", ""),
    }
    for function, (name, message) in expected.items():
        future = client.submit(function)
        error = future.exception(timeout=30)
        assert error is not None
        shown = "".join(traceback.format_exception(error))
        assert name in shown
        assert message in shown
        assert f"in {function.__name__}" in shown
        with pytest.raises(type(error)):
            future.result()
    assert client.submit(abs, -1).result(timeout=30) == 1


def test_h59_payloads_above_the_servers_limit_for_one_string_work(client: Client, shared_database: Database) -> None:
    """With a limit of 2 MB for one string, 5 MB go there and 5 MB come back: large payloads travel in chunks."""
    (_, before) = shared_database.run("CONFIG", "GET", "proto-max-bulk-len")
    shared_database.run("CONFIG", "SET", "proto-max-bulk-len", 2_000_000)
    try:
        argument = client.submit(len, bytes(5_000_000))
        result = client.submit(bytes, 5_000_000)
        other = client.submit(abs, -1)
        assert argument.result(timeout=30) == 5_000_000
        assert result.result(timeout=30) == bytes(5_000_000)
        assert other.result(timeout=30) == 1
    finally:
        shared_database.run("CONFIG", "SET", "proto-max-bulk-len", before)


SIZE = 20_000_000


def used_memory(database: Database) -> int:
    return int(dict(line.split(":", 1) for line in database.info("memory"))["used_memory"])


def stored(database: Database, keys: Keys) -> int:
    """What the keys of a namespace take, without the buffers of connections, in which earlier tests leave something."""
    return sum(int(database.run("MEMORY", "USAGE", key, "SAMPLES", 0) or 0) for key in database.keys(keys.prefix))


def test_h60_what_a_function_holds_lies_in_redis_once_however_many_items_it_is_mapped_over(
    client: Client, shared_cluster: LocalCluster, shared_database: Database, tmp_path: Path
) -> None:
    """20 MB in a closure, mapped over 100 items: pickled once, in Redis once, and freed when the function is."""
    keys = shared_cluster.keys
    before, stored_before = used_memory(shared_database), stored(shared_database, keys)
    gate = tmp_path / "gate"

    def carrying(large: bytes) -> Callable[[str, int], int]:
        def look(gate: str, at: int) -> int:
            tasks.wait_for_file(f"{gate}.{at}", gate)
            return large[at]

        return look

    look = carrying(bytes(SIZE))
    waiting = [client.submit(look, str(gate), at) for at in range(100)]
    wait_until(lambda: list(tmp_path.glob("gate.*")), "a task executes", timeout=30)
    client.flush(timeout=60)
    wait_until(lambda: stored(shared_database, keys) - stored_before >= 0.9 * SIZE, "it lies in Redis")
    assert stored(shared_database, keys) - stored_before < 1.5 * SIZE, "it lies there once"
    # Until both workers have fetched it, parts of it lie in the buffers of their connections too.
    wait_until(lambda: used_memory(shared_database) - before < 1.5 * SIZE, "nothing else of Redis has it")
    gate.touch()
    assert client.gather(waiting, timeout=60) == [0] * 100

    del look, waiting
    wait_until(lambda: used_memory(shared_database) - before < SIZE / 4, "Redis has freed it")


def test_h60_map_serialises_its_function_once(client: Client) -> None:
    """What is serialised anew with each submit, because it may have changed, is serialised once for a whole map."""
    pickled = []

    class Table:
        """Something that may change, and notes when it is pickled."""

        def __getstate__(self) -> dict[str, Any]:
            pickled.append(1)
            return {}

    def look(table: object, number: int) -> int:
        return number

    assert client.map(functools.partial(look, Table()), range(300), timeout=60) == list(range(300))
    assert 1 <= len(pickled) <= 2


def test_h61_an_item_or_keyword_that_cannot_be_pickled_is_named_at_once(client: Client) -> None:
    """Number 500 of a map's items is a lock, a keyword argument a socket: both calls raise, and no task is left."""
    items: list[Any] = list(range(1000))
    items[500] = threading.Lock()
    with pytest.raises(SerializationError, match="item 500"):
        client.map(tasks.echo, items)
    with socket.socket() as connection, pytest.raises(SerializationError, match="value"):
        client.submit(tasks.echo, value=connection)
    assert client.submit(abs, -1).result(timeout=30) == 1


def test_h64_the_whole_chain_of_exceptions_arrives(client: Client) -> None:
    """Cause, context, group members, notes, and the user's own file and line are in the printed traceback."""

    def from_another() -> NoReturn:
        try:
            raise KeyError("A")
        except KeyError as error:
            raise ValueError("B") from error

    def while_handling() -> NoReturn:
        try:
            raise KeyError("A")
        except KeyError:
            raise ValueError("B")  # noqa: B904

    def printed(function: Callable[[], object]) -> str:
        error = client.submit(function).exception(timeout=30)
        assert error is not None
        return "".join(traceback.format_exception(error))

    for function in (from_another, while_handling):
        text = printed(function)
        assert "KeyError: 'A'" in text
        assert "ValueError: B" in text
        line = function.__code__.co_firstlineno + 4
        assert f'{Path(__file__).name}", line {line}' in text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has neither exception groups nor notes")
def test_h64_the_members_and_the_note_of_an_exception_group_arrive(client: Client) -> None:
    """A group of two with a note: both members and the note are printed."""

    def group() -> NoReturn:
        group_of = vars(builtins)["ExceptionGroup"]  # which mypy does not know: our floor is Python 3.10
        error = group_of("several", [ValueError("first member"), KeyError("second member")])
        error.add_note("mind the gap")
        raise error

    error = client.submit(group).exception(timeout=30)
    assert error is not None
    text = "".join(traceback.format_exception(error))
    assert all(part in text for part in ("several", "first member", "second member", "mind the gap"))


def test_h65_coroutine_and_generator_functions_are_refused_by_their_kind(client: Client) -> None:
    """An async function, a partial of it, and a generator function: `submit` says what each is."""

    async def coroutine(number: int) -> int:
        return number

    with pytest.raises(TypeError, match="coroutine"):
        client.submit(coroutine, 1)
    with pytest.raises(TypeError, match="coroutine"):
        client.submit(functools.partial(coroutine, 1))
    with pytest.raises(TypeError, match="generator"):
        client.submit(tasks.return_a_generator)
