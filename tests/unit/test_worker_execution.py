"""One task from bytes to bytes: whatever user code does, there is an outcome, and it says what happened."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import orjson
import pytest

from gristmill.errors import (
    DeserializationError,
    MissingObjectError,
    ProcessorDiedError,
    ResultSerializationError,
    TaskTimeoutError,
)
from gristmill.protocol.payloads import dump_call, dump_value, load_failure, load_value
from gristmill_worker.board import CANCEL, INTERRUPT, REASON, TIME_LIMIT, AgentBoard, ProcessorBoard, row_text
from gristmill_worker.execution import Outcome, Place, error_line, execute, wants_retry
from gristmill_worker.functions import Function
from gristmill_worker.interrupts import Interrupts, TaskCancelled
from support import tasks

PLACE = Place("host|1|worker|abcd", "host")


@pytest.fixture
def board() -> Iterator[ProcessorBoard]:
    """A board in which one row executes."""
    agent = AgentBoard()
    board = ProcessorBoard(os.dup(agent.descriptor))
    board.hold([row_text(b"a", b"1", b"1-1", b'"f"')])
    yield board
    board.close()
    agent.close()


@pytest.fixture
def interrupts(board: ProcessorBoard) -> Iterator[Interrupts]:
    former = signal.getsignal(signal.SIGINT)
    yield Interrupts(board)
    signal.signal(signal.SIGINT, former)


@pytest.fixture
def run(board: ProcessorBoard, interrupts: Interrupts) -> Callable[..., Outcome | None]:
    def run(function: Any, *args: Any, options: Any = None, values: Any = None, call: bytes = b"") -> Outcome | None:
        start = board.start(0, 1)
        data = function if isinstance(function, bytes) else cloudpickle.dumps(function)
        return execute(
            Function(data), b"name", call or dump_call(args, {}), values, options or {}, start, interrupts, PLACE
        )

    return run


def error_of(outcome: Outcome | None) -> Exception:
    assert outcome is not None
    assert outcome.status != b"success"
    return load_failure(outcome.joined)


def value_of(outcome: Outcome | None) -> Any:
    assert outcome is not None
    return load_value(outcome.joined)


class TestValues:
    def test_a_value_is_pickled(self, run: Callable[..., Outcome]) -> None:
        outcome = run(tasks.add, 1, 2)

        assert outcome.status == b"success"
        assert value_of(outcome) == 3
        assert outcome.error == b"null"

    def test_values_of_dependencies_take_their_places_and_keep_their_identity(
        self, run: Callable[..., Outcome]
    ) -> None:
        import io

        class Pickler(pickle.Pickler):
            def persistent_id(self, obj: Any) -> Any:
                return ("task", "t.1") if obj is Ellipsis else None

        buffer = io.BytesIO()
        Pickler(buffer, 5).dump((([..., ...],), {}))

        def same(pair: list[list[int]]) -> bool:
            return pair[0] is pair[1] and pair[0] == [7]

        outcome = run(same, call=buffer.getvalue(), values={"t.1": dump_value([7])})

        assert value_of(outcome) is True

    def test_a_dependency_without_a_value_is_named(self, run: Callable[..., Outcome]) -> None:
        import io

        class Pickler(pickle.Pickler):
            def persistent_id(self, obj: Any) -> Any:
                return ("task", "t.1") if obj is Ellipsis else None

        buffer = io.BytesIO()
        Pickler(buffer, 5).dump(((...,), {}))

        error = error_of(run(tasks.echo, call=buffer.getvalue(), values={}))

        assert isinstance(error, MissingObjectError)
        assert "t.1" in str(error)


class Odd(BaseException):
    pass


class WorseThanNothing:
    def __reduce__(self) -> Any:
        raise ValueError("not me")


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text either")


class TestFailures:
    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Odd("odd"), GeneratorExit()])
    def test_what_is_no_ordinary_exception_is_a_failure_too(
        self, run: Callable[..., Outcome], error: BaseException
    ) -> None:
        def fail() -> None:
            raise error

        outcome = run(fail)

        assert outcome.status == b"failed"
        assert type(error).__name__ in str(error_of(outcome))

    def test_the_line_for_people_is_short_and_one(self, run: Callable[..., Outcome]) -> None:
        outcome = run(tasks.raise_value_error, "one\ntwo \ud800 " + 1000 * "x")

        line, _ = orjson.loads(b"[%b]" % outcome.error)
        assert line.startswith("ValueError: one two \\ud800 xxx")
        assert len(line) == 300
        assert "\n" not in line

    def test_the_traceback_for_people_keeps_its_head_and_its_end(self, run: Callable[..., Outcome]) -> None:
        short = run(tasks.raise_value_error, "why")
        long = run(tasks.raise_value_error, "start" + 9000 * "x" + "end")

        _, text = orjson.loads(b"[%b]" % short.error)
        assert text.startswith("Traceback (most recent call last)")
        assert text.endswith("ValueError: why\n")
        _, text = orjson.loads(b"[%b]" % long.error)
        assert text.startswith("Traceback (most recent call last)")
        assert "characters left out" in text
        assert text.endswith("end\n")
        assert len(text) < 4100

    def test_an_exception_without_a_text_is_reported(self, run: Callable[..., Outcome]) -> None:
        def fail() -> None:
            raise SilentError

        assert b"SilentError" in run(fail).error

    def test_the_traceback_begins_with_the_users_code(self, run: Callable[..., Outcome]) -> None:
        text = str(error_of(run(tasks.raise_value_error, "no")).__cause__)

        assert "raise_value_error" in text
        assert "execution.py" not in text

    @pytest.mark.parametrize("value", [threading.Lock(), tasks.return_a_generator(), sys.stderr, WorseThanNothing()])
    def test_a_value_that_cannot_be_pickled_is_named(self, run: Callable[..., Outcome], value: Any) -> None:
        global _handed_out
        _handed_out = value
        data = pickle.dumps(hand_out)

        error = error_of(run(data))

        assert isinstance(error, ResultSerializationError)
        assert type(value).__name__ in str(error)

    def test_a_value_nested_too_deeply_is_a_failure(self, run: Callable[..., Outcome]) -> None:
        def deep() -> list[Any]:
            value: list[Any] = []
            for _ in range(100_000):
                value = [value]
            return value

        assert isinstance(error_of(run(deep)), ResultSerializationError)

    def test_a_coroutine_is_refused(self, run: Callable[..., Outcome]) -> None:
        async def later() -> None: ...

        error = error_of(run(later))

        assert isinstance(error, ResultSerializationError)
        assert "got a coroutine of the async function" in str(error)

    def test_a_function_that_cannot_be_loaded_is_named(self, run: Callable[..., Outcome]) -> None:
        error = error_of(run(b"not a pickle"))

        assert isinstance(error, DeserializationError)
        assert "name cannot be loaded on worker host|1|worker|abcd on host host" in str(error)

    def test_an_argument_that_cannot_be_loaded_is_told_apart(self, run: Callable[..., Outcome]) -> None:
        call = dump_call((1,), {}).replace(b"K\x01", b"\xff\x01")

        error = error_of(run(tasks.echo, call=call))

        assert isinstance(error, DeserializationError)
        assert str(error).startswith("an argument of name cannot be loaded")


_handed_out: Any = None


def hand_out() -> Any:
    return _handed_out


class TestInterrupts:
    def arm(self, board: ProcessorBoard, start: int, reason: int) -> None:
        board.words[REASON] = reason
        board.words[INTERRUPT] = start

    def test_a_cancelled_task_has_no_outcome(self, run: Callable[..., Any], board: ProcessorBoard) -> None:
        def interrupt_myself() -> None:
            self.arm(board, 1 << 16 | 1, CANCEL)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

        assert run(pickle_by_reference(interrupt_myself)) is None

    def test_a_task_that_turns_the_interrupt_into_another_error_is_cancelled_all_the_same(
        self, run: Callable[..., Any], board: ProcessorBoard
    ) -> None:
        def interrupt_myself() -> None:
            self.arm(board, 1 << 16 | 1, CANCEL)
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(10)
            except TaskCancelled:
                raise ValueError("cleaned up") from None

        assert run(pickle_by_reference(interrupt_myself)) is None

    def test_a_value_that_is_returned_in_spite_of_it_counts(
        self, run: Callable[..., Outcome], board: ProcessorBoard
    ) -> None:
        def interrupt_myself() -> str:
            self.arm(board, 1 << 16 | 1, CANCEL)
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(10)
            except BaseException as error:
                return type(error).__name__
            return "nothing came"

        assert value_of(run(pickle_by_reference(interrupt_myself))) == "TaskCancelled"

    def test_a_task_whose_time_is_over_fails_by_name(self, run: Callable[..., Outcome], board: ProcessorBoard) -> None:
        def interrupt_myself() -> None:
            self.arm(board, 1 << 16 | 1, TIME_LIMIT)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

        error = error_of(run(pickle_by_reference(interrupt_myself), options={"timeout_ms": 1500}))

        assert isinstance(error, TaskTimeoutError)
        assert "expected the task to end within 1.5 s" in str(error)
        assert "interrupt_myself" in str(error.__cause__)

    def test_one_that_came_before_the_user_code_began_is_not_lost(
        self, run: Callable[..., Any], board: ProcessorBoard
    ) -> None:
        self.arm(board, 1 << 16 | 1, CANCEL)

        assert run(tasks.add, 1, 2) is None

    def test_one_that_is_meant_for_another_start_does_nothing(
        self, run: Callable[..., Outcome], board: ProcessorBoard
    ) -> None:
        def interrupt_myself() -> str:
            self.arm(board, 77 << 16 | 1, CANCEL)
            os.kill(os.getpid(), signal.SIGINT)
            return "went on"

        assert value_of(run(pickle_by_reference(interrupt_myself))) == "went on"

    def test_one_outside_user_code_does_nothing(self, board: ProcessorBoard, interrupts: Interrupts) -> None:
        self.arm(board, board.start(0, 1), CANCEL)
        os.kill(os.getpid(), signal.SIGINT)

        assert interrupts.delivered == 0

    def test_the_handler_comes_back_after_a_task_that_replaced_it(self, interrupts: Interrupts) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

        interrupts.install()

        assert signal.getsignal(signal.SIGINT) == interrupts._on_signal


def pickle_by_reference(function: Callable[..., Any]) -> bytes:
    """A pickle that gives this very function, not a copy."""
    global _handed_out
    _handed_out = function
    return pickle.dumps(Handle())


class Handle:
    def __reduce__(self) -> Any:
        return (hand_out, ())


class TestRetries:
    @pytest.mark.parametrize(
        ("run", "kind", "wanted"),
        [
            ({}, ValueError, True),
            ({}, ProcessorDiedError, True),
            ({}, SystemExit, False),
            ({"retry_on": []}, ValueError, False),
            ({"retry_on": ["builtins.LookupError"]}, KeyError, True),
            ({"retry_on": ["builtins.KeyError"]}, LookupError, False),
            ({"retry_on": ["builtins.SystemExit"]}, SystemExit, True),
            ({"retry_on": ["gristmill.errors.TaskError"]}, TaskTimeoutError, True),
        ],
    )
    def test_base_classes_match(self, run: dict[str, Any], kind: type[BaseException], wanted: bool) -> None:
        assert wants_retry(run, kind) is wanted


def test_an_error_line_is_cut_in_the_open() -> None:
    assert orjson.loads(error_line("x" * 400)) == "x" * 297 + "..."


def test_nothing_here_talks_to_redis() -> None:
    source = (Path(__file__).parent.parent.parent / "worker/gristmill_worker/execution.py").read_text()

    assert "store" not in source
