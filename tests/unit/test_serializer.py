"""Calls: plain arguments by pickle alone, others by cloudpickle, futures as dependencies."""

from __future__ import annotations

import collections
import io
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gristmill.client.future import CANCELLED, FINISHED, Future
from gristmill.client.leaves import Leaves
from gristmill.client.serializer import (
    LargeCall,
    call_with_values,
    dump_call,
    is_plain,
)
from gristmill.client.serializing import DependencyFailedError
from gristmill.errors import MissingObjectError, ResultSerializationError, SerializationError
from gristmill.protocol import messages, payloads
from gristmill.protocol.keys import CHUNK_BYTES, Keys
from gristmill.protocol.kinds import OBJECT_LIFETIME_SECONDS
from gristmill.store.objects import object_writes

SESSION: Any = SimpleNamespace(
    client_id="abc",
    serializer=None,
    shares_tasks_with=lambda other: False,
    outbox=SimpleNamespace(leaves=Leaves(collections.deque())),
)


def future_of(number: int, session: Any = SESSION) -> Future:
    return Future(session, number)


def succeeded(number: int, value: Any) -> Future:
    future = future_of(number)
    future._row = [number, 1, "success", payloads.text_of(payloads.dump_value(value)), 0, 0, 0, 0]
    future._settle(FINISHED)
    return future


def dump(*args: Any, **kwargs: Any) -> tuple[bytes, tuple[Future, ...]]:
    data, beside = dump_call(SESSION, "task", args, kwargs)
    return data, beside.dependencies if beside else ()


@pytest.mark.parametrize(
    "value",
    [1, 2.5, "text", b"bytes", None, True, 1j, [1, "a"], (1, 2), {1, 2}, frozenset({1}), {"a": 1}, range(3), [[1]]],
)
def test_what_goes_in_comes_out(value: Any) -> None:
    data, dependencies = dump(value, name=value)

    assert payloads.load_call(data) == ((value,), {"name": value})
    assert dependencies == ()


def test_plain_is_what_pickle_alone_does_right() -> None:
    assert is_plain([1, "a", b"b", None, 2.0, [1, 2], {"a": 1}, (1,)])
    assert not is_plain([object()])
    assert not is_plain([[[1]]])
    assert not is_plain([collections.OrderedDict()])
    assert not is_plain([{"a": object()}])
    assert not is_plain([lambda: 1])


def test_lambdas_and_local_classes_travel_by_value() -> None:
    class Local:
        number = 3

    data, _ = dump(lambda: 4, Local())

    (function, instance), _ = payloads.load_call(data)
    assert function() == 4
    assert instance.number == 3


def test_unfinished_futures_are_dependencies_wherever_they_are() -> None:
    first, second = future_of(1), future_of(2)
    data, dependencies = dump(first, [second, {"again": first}], key=SimpleNamespace(inner=second))

    assert dependencies == (first, second)
    args, kwargs = payloads.load_call(data, {"abc.0000001": "one", "abc.0000002": "two"}.__getitem__)
    assert args == ("one", ["two", {"again": "one"}])
    assert kwargs["key"].inner == "two"


def test_a_future_that_is_done_is_its_value() -> None:
    data, dependencies = dump([succeeded(1, {"a": 1})])

    assert dependencies == ()
    assert payloads.load_call(data) == (([{"a": 1}],), {})


def test_a_future_of_another_installation_is_waited_for() -> None:
    other = future_of(1, SimpleNamespace(client_id="other", before_wait=lambda *_: None, flush=lambda _: True))
    other._row = [1, 1, "success", payloads.text_of(payloads.dump_value(5)), 0, 0, 0, 0]
    threading.Timer(0.01, other._settle, (FINISHED,)).start()

    data, dependencies = dump(other)

    assert payloads.load_call(data) == ((5,), {})
    assert dependencies == ()


@pytest.mark.parametrize("state", [FINISHED, CANCELLED])
def test_a_future_without_a_value_decides_the_task(state: str) -> None:
    future = future_of(1)
    future._failed = state is FINISHED
    future._row = [1, 1, "failed", payloads.text_of(payloads.dump_failure(ValueError("no"))), 0, 0, 0, 0]
    future._settle(state)

    with pytest.raises(DependencyFailedError) as caught:
        dump([future])
    assert caught.value.future is future


def test_the_argument_that_cannot_be_serialised_is_named() -> None:
    lock = threading.Lock()

    with pytest.raises(SerializationError, match=r"positional argument 2 of task, of type _thread.lock,"):
        dump(1, lock)
    with pytest.raises(SerializationError, match=r"keyword argument 'lock' of task, of type _thread.lock,"):
        dump(1, lock=lock)
    with pytest.raises(SerializationError, match=r"positional argument 1 of task, of type builtins.list,.*lock"):
        dump([lock])


def test_an_argument_nested_too_deeply_is_refused_as_such() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(SerializationError, match="nested too deeply"):
        dump(deep)


def test_a_call_is_sent_again_with_values_in_it() -> None:
    first, second = future_of(1), future_of(2)
    call, dependencies = dump(first, [second, first])
    for future, value in ((first, [1]), (second, "two")):
        future._row = [0, 1, "success", payloads.text_of(payloads.dump_value(value)), 0, 0, 0, 0]
        future._settle(FINISHED)

    args, _ = payloads.load_call(call_with_values(call, dependencies))
    assert args == ([1], ["two", [1]])
    assert args[0] is args[1][1]


def test_values_that_come_with_a_call_go_before_those_that_lie_in_redis() -> None:
    first, second = future_of(1), future_of(2)
    call, _ = dump(first, second)
    first._row = [0, 1, "success", payloads.text_of(payloads.dump_value("with it")), 0, 0, 0, 0]
    first._settle(FINISHED)

    data = call_with_values(call, [first])
    assert payloads.load_call(data, lambda task: f"from Redis: {task}")[0] == ("with it", "from Redis: abc.0000002")
    with pytest.raises(MissingObjectError, match=r"abc\.0000002"):
        payloads.load_call(data)


def test_a_large_call_is_serialised_again_from_its_arguments() -> None:
    argument = list(range(10_000))
    data, _ = dump(argument)
    call = LargeCall(data, (argument,), {}, keep=False)
    call.data = None

    assert call.bytes_again(SESSION) == data
    argument[5] = -1
    assert call.bytes_again(SESSION) is None


def test_a_value_that_cannot_be_serialised_says_its_type_and_why() -> None:
    with pytest.raises(ResultSerializationError, match=r"of type _thread.lock, cannot be serialised: TypeError"):
        payloads.dump_value(threading.Lock())
    assert payloads.load_value(payloads.dump_value(lambda: 3))() == 3


def test_a_failure_can_be_read_without_unpickling() -> None:
    def inner() -> None:
        raise ValueError("inner")

    try:
        try:
            inner()
        except ValueError as first:
            raise KeyError("outer") from first
    except KeyError as error:
        data = payloads.dump_failure(error)

    failure = messages.Failure.model_validate_json(data)
    assert failure.type == "builtins.KeyError"
    assert failure.message == "'outer'"
    assert "ValueError: inner" in failure.traceback
    assert "direct cause" in failure.traceback


def test_text_that_is_not_utf8_does_not_stop_a_failure() -> None:
    error = payloads.load_failure(payloads.dump_failure(ValueError("\ud800")))

    assert isinstance(error, ValueError)
    assert "\\ud800" in str(error.__cause__)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"type": 1}'])
def test_a_failure_that_cannot_be_read_is_still_an_exception(data: bytes) -> None:
    assert "cannot be read" in str(payloads.load_failure(data))


def test_the_id_of_an_object_ends_in_its_chunks() -> None:
    assert payloads.object_id("abc.f1", 0) == "abc.f1-1"
    assert payloads.object_id("abc.f1", CHUNK_BYTES) == "abc.f1-1"
    assert payloads.object_id("abc.f1", CHUNK_BYTES + 1) == "abc.f1-2"


def test_an_object_is_written_in_chunks() -> None:
    keys = Keys()
    data = bytes(range(256)) * 8192 + b"end"
    name = payloads.object_id("abc.f1", len(data))

    store: dict[bytes, bytes] = {}
    for command in object_writes(keys, name, data):
        _, key, piece, *rest = parse(command)
        assert rest == [b"NX", b"EX", str(OBJECT_LIFETIME_SECONDS).encode()]
        assert len(piece) <= CHUNK_BYTES
        store[key] = piece
    assert list(store) == [keys.object(name).encode()] + [keys.object_chunk(name, n).encode() for n in "12"]
    assert b"".join(store.values()) == data


def parse(command: bytes) -> list[bytes]:
    """A packed command as the server reads it."""
    stream = io.BytesIO(command)
    count = int(stream.readline()[1:])
    parts = []
    for _ in range(count):
        size = int(stream.readline()[1:])
        parts.append(stream.read(size))
        assert stream.read(2) == b"\r\n"
    return parts
