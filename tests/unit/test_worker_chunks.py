"""A chunk: each item has an outcome of its own, and none waits behind one that took long."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

from gristmill.errors import DeserializationError, ResultSerializationError
from gristmill.protocol.chunks import SLICE_NS, VALUE_BYTES, ChunkOutcome, columns_of, dump_calls, dump_columns
from gristmill.protocol.payloads import dump_call, load_failure, load_value
from gristmill_worker import chunks
from gristmill_worker.board import CANCEL, INTERRUPT, REASON, AgentBoard, ProcessorBoard, row_text
from gristmill_worker.chunks import execute_chunk
from gristmill_worker.execution import Outcome, Place
from gristmill_worker.functions import Function
from gristmill_worker.interrupts import Interrupts
from support import tasks


@pytest.fixture
def board() -> Iterator[ProcessorBoard]:
    """A board in which one row executes."""
    agent = AgentBoard()
    board = ProcessorBoard(os.dup(agent.descriptor))
    board.hold([row_text(b"a", b"1", b"1-1", b'"f"')])
    yield board
    board.close()
    agent.close()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Time stands still unless a test moves it: how busy the machine is changes nothing."""
    now = [0]
    monkeypatch.setattr(chunks, "clock_ns", lambda: now[0])
    return now


@pytest.fixture
def run(board: ProcessorBoard) -> Iterator[Callable[..., Outcome | None]]:
    former = signal.getsignal(signal.SIGINT)
    interrupts = Interrupts(board)

    def run(function: Any, items: list[tuple[Any, ...]] | bytes) -> Outcome | None:
        if isinstance(items, list):
            columns = columns_of(items)
            items = dump_columns(columns) if columns else dump_calls([dump_call(item, {}) for item in items])
        data = function if isinstance(function, bytes) else cloudpickle.dumps(function)
        start = board.start(0, 1)
        return execute_chunk(Function(data), b"name", items, start, interrupts, Place("host|1|worker|abcd", "host"))

    yield run
    signal.signal(signal.SIGINT, former)


def outcome_of(outcome: Outcome | None) -> ChunkOutcome:
    assert outcome is not None
    assert outcome.status == b"success"
    return ChunkOutcome(*pickle.loads(outcome.joined))


class TestColumns:
    def test_plain_arguments_make_columns(self) -> None:
        assert columns_of([(1, "a"), (2, "b")]) == [(1, 2), ("a", "b")]

    @pytest.mark.parametrize("items", [[(1,), (1, 2)], [([1],), ([2],)], [(True,), ((),)], [(), ()]])
    def test_others_do_not(self, items: list[tuple[Any, ...]]) -> None:
        assert columns_of(items) is None


def test_each_item_has_its_value(run: Callable[..., Outcome]) -> None:
    outcome = outcome_of(run(tasks.add, [(1, 2), (3, 4)]))

    assert outcome.values == [3, 7]
    assert outcome.failures == {}


def test_an_item_that_fails_fails_alone(run: Callable[..., Outcome]) -> None:
    outcome = outcome_of(run(lambda number: 1 // number, [(1,), (0,), (-1,)]))

    assert outcome.values == [1, None, -1]
    error = load_failure(outcome.failures.pop(1))
    assert isinstance(error, ZeroDivisionError)
    assert "in <lambda>" in str(error.__cause__)
    assert "gristmill_worker" not in str(error.__cause__)
    assert outcome.failures == {}


def test_what_ends_programs_ends_one_item(run: Callable[..., Outcome]) -> None:
    outcome = outcome_of(run(tasks.raise_system_exit, [(1,), (2,)]))

    assert "SystemExit" in str(load_failure(outcome.failures[0]))
    assert set(outcome.failures) == {0, 1}


def test_values_that_can_change_travel_apart(run: Callable[..., Outcome]) -> None:
    shared: list[int] = []
    outcome = outcome_of(run(lambda _, shared=shared: shared, [(1,), (2,)]))

    assert outcome.pickled == [0, 1]
    first, second = (load_value(value) for value in outcome.values)
    assert first is not second


def test_no_item_sees_what_another_did_to_its_arguments(run: Callable[..., Outcome]) -> None:
    shared: list[int] = []

    def length_after(numbers: list[int]) -> int:
        numbers.append(1)
        return len(numbers)

    assert outcome_of(run(length_after, [(shared,), (shared,)])).values == [1, 1]


def test_no_item_sees_what_another_did_to_the_function(run: Callable[..., Outcome]) -> None:
    def count(_: int, seen: list[int] = []) -> int:  # noqa: B006 - that is the point
        seen.append(1)
        return len(seen)

    assert outcome_of(run(count, [(1,), (2,), (3,)])).values == [1, 1, 1]


def test_a_value_that_cannot_be_pickled_fails_its_item(run: Callable[..., Outcome]) -> None:
    outcome = outcome_of(run(lambda number: tasks.return_a_lock() if number else 5, [(0,), (1,), (0,)]))

    assert outcome.values == [5, None, 5]
    assert isinstance(load_failure(outcome.failures[1]), ResultSerializationError)


def test_an_argument_that_cannot_be_loaded_fails_its_item(run: Callable[..., Outcome]) -> None:
    items = dump_calls([dump_call((1,), {}), b"rubbish", dump_call((3,), {})])
    outcome = outcome_of(run(tasks.double, items))

    assert outcome.values == [2, None, 6]
    assert isinstance(load_failure(outcome.failures[1]), DeserializationError)


def test_a_function_that_cannot_be_loaded_fails_the_chunk(run: Callable[..., Outcome]) -> None:
    outcome = run(b"rubbish", [(1,), (2,)])

    assert outcome.status != b"success"
    assert isinstance(load_failure(outcome.joined), DeserializationError)


def test_after_a_long_item_the_others_are_left(board: ProcessorBoard, clock: list[int]) -> None:
    former = signal.getsignal(signal.SIGINT)

    def take(nanoseconds: int) -> None:
        clock[0] += nanoseconds

    function = Function(b"")
    function._plain = take  # it acts on the test's clock, so it does not travel
    try:
        items = dump_columns([(0, SLICE_NS, 1, 0, 0)])
        outcome = outcome_of(
            execute_chunk(
                function, b"name", items, board.start(0, 1), Interrupts(board), Place("host|1|w|abcd", "host")
            )
        )
    finally:
        signal.signal(signal.SIGINT, former)

    assert len(outcome.values) == 3
    assert outcome.total_ns == SLICE_NS + 1
    assert outcome.squares_ns2 == float(SLICE_NS) ** 2 + 1
    assert outcome.longest_ns == SLICE_NS


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_after_many_bytes_of_values_the_others_are_left(run: Callable[..., Outcome], kind: type) -> None:
    outcome = outcome_of(run(kind, [(VALUE_BYTES + 1,), (1,)]))

    assert len(outcome.values) == 1


@pytest.mark.parametrize("meant", ["the chunk", "a task below"])
def test_a_cancel_ends_the_chunk_and_no_item_is_blamed(board: ProcessorBoard, meant: str) -> None:
    former = signal.getsignal(signal.SIGINT)
    start = board.start(0, 1)
    interrupts = Interrupts(board)
    below = start + 1
    interrupts.below.append(below)
    ran: list[int] = []

    def cancel_me(number: int) -> None:
        ran.append(number)
        board.words[REASON] = CANCEL
        board.words[INTERRUPT] = start if meant == "the chunk" else below
        os.kill(os.getpid(), signal.SIGINT)

    function = Function(b"")
    function._plain = cancel_me  # it acts on this process's board, so it does not travel
    try:
        place = Place("host|1|worker|abcd", "host")
        outcome = execute_chunk(function, b"name", dump_columns([(1, 2, 3)]), start, interrupts, place)
    finally:
        signal.signal(signal.SIGINT, former)

    assert outcome is None
    assert ran == [1]
