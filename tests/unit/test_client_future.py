"""Futures: what `concurrent.futures` promises, although the Condition is made only when somebody needs it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
import threading
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, CancelledError, InvalidStateError, as_completed, wait
from types import SimpleNamespace
from typing import Any

import pytest

from gristmill.client.future import CANCELLED, FINISHED, Future
from gristmill.client.gate import Gate
from gristmill.errors import DeserializationError, ProcessorDiedError, RemoteError, SerializationError
from gristmill.protocol import payloads
from support.waiting import wait_until

ROUNDS = 300


def succeed(future: Future, value: Any = None) -> None:
    """What the I/O thread does with the outcome of a task."""
    future._row = [0, 1, "success", payloads.text_of(payloads.dump_value(value)), 1_500_000, 20, 30, 40]
    if future._settle(FINISHED):
        future.run_callbacks()


def fail(future: Future, error: BaseException) -> None:
    future._row = [0, 1, "failed", payloads.text_of(payloads.dump_failure(error)), 1, 2, 3, 4]
    future._failed = True
    if future._settle(FINISHED):
        future.run_callbacks()


def cancel(future: Future) -> None:
    if future._settle(CANCELLED):
        future.run_callbacks()


def succeed_all(futures: list[Future]) -> None:
    for future in futures:
        succeed(future)


def thread(target: Any, *args: Any) -> threading.Thread:
    started = threading.Thread(target=target, args=args)
    started.start()
    return started


def test_a_future_is_running_from_the_start_and_done_with_its_outcome() -> None:
    future = Future()

    assert (future.running(), future.done(), future.cancelled()) == (True, False, False)
    succeed(future, 7)

    assert (future.running(), future.done(), future.cancelled()) == (False, True, False)
    assert future.result() == 7
    assert future.exception() is None


def test_a_future_that_is_done_before_anybody_waits_never_gets_a_condition() -> None:
    future = Future()
    succeed(future, 1)

    assert future.result() == 1
    assert wait([future]).done == {future}
    completed: list[Any] = list(as_completed([future]))
    assert completed == [future]
    assert future._gate is None


def test_a_future_that_is_waited_for_gets_one_condition_for_all() -> None:
    future = Future()
    first = future._condition

    assert isinstance(first, Gate)
    assert future._condition is first
    succeed(future)
    assert future._condition is first


def test_what_the_library_asks_of_a_future_that_is_done_does_nothing() -> None:
    future = Future()
    succeed(future)

    waiters: list[Any] = future._waiters
    with future._condition:
        waiters.append(object())
        waiters.remove(object())
    assert future._condition.acquire()
    future._condition.release()
    assert not future._waiters


def test_result_waits_for_the_outcome() -> None:
    future = Future()
    found: list[Any] = []
    waiting = thread(lambda: found.append(future.result()))
    wait_until(lambda: future._gate is not None, "the thread waits")
    succeed(future, "value")
    waiting.join()

    assert found == ["value"]


def test_a_wait_that_takes_too_long_raises_and_the_future_goes_on() -> None:
    future = Future()

    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(timeout=0)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.exception(timeout=0.001)
    succeed(future, 3)
    assert future.result(timeout=0) == 3


def test_the_io_thread_never_waits_it_has_worked_meanwhile() -> None:
    session: Any = SimpleNamespace(
        client_id="abc", before_wait=lambda *_: True, lookout=SimpleNamespace(reason=lambda _: "no worker is there")
    )
    future = Future(session, 1)

    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(timeout=None)
    assert future._gate is None


def test_the_tasks_exception_is_raised_with_the_remote_traceback_as_its_cause() -> None:
    future = Future()
    try:
        raise KeyError("where")
    except KeyError as error:
        fail(future, error)

    with pytest.raises(KeyError, match="where") as caught:
        future.result()
    assert isinstance(caught.value.__cause__, payloads.RemoteTraceback)
    assert 'raise KeyError("where")' in str(caught.value.__cause__)
    assert future.exception() is caught.value


def test_the_value_is_unpickled_once_and_the_same_object_for_all() -> None:
    future = Future()
    succeed(future, [1, 2])

    assert future.result() is future.result()
    assert future._row is not None
    assert future._row[3] is None


def test_a_value_that_cannot_be_loaded_here_says_why() -> None:
    future = Future()
    future._row = [0, 1, "success", payloads.text_of(b"cno_such_module\nthing\n."), 0, 0, 0, 0]
    future._settle(FINISHED)

    with pytest.raises(DeserializationError, match="no_such_module"):
        future.result()
    assert isinstance(future.exception(), DeserializationError)


def test_an_error_that_travels_by_name_is_raised_as_what_it_is() -> None:
    future = Future()
    future._failed = True
    future._row = [0, 1, "failed", {"error": "ProcessorDiedError", "message": "killed by signal 9"}, 0, 0, 0, 0]
    future._settle(FINISHED)

    with pytest.raises(ProcessorDiedError, match="killed by signal 9"):
        future.result()


def test_a_dependent_fails_with_the_exception_of_its_dependency() -> None:
    dependency, dependent = Future(), Future()
    fail(dependency, ValueError("first"))
    dependent._failed = True
    dependent._source = dependency
    dependent._settle(FINISHED)

    assert dependent.exception() is dependency.exception()


def test_a_cancelled_future_raises_cancelled_error() -> None:
    future = Future()
    cancel(future)

    assert future.cancelled()
    assert future.done()
    with pytest.raises(CancelledError):
        future.result()
    with pytest.raises(CancelledError):
        future.exception()


def test_callbacks_are_called_once_in_order_and_at_once_when_done() -> None:
    future = Future()
    called: list[Any] = []
    future.add_done_callback(lambda done: called.append(("first", done)))
    future.add_done_callback(lambda done: called.append(("second", done)))
    succeed(future)
    future.add_done_callback(lambda done: called.append(("late", done)))

    assert called == [("first", future), ("second", future), ("late", future)]


def test_a_callback_that_raises_does_not_keep_the_others_from_being_called(caplog: pytest.LogCaptureFixture) -> None:
    future = Future()
    called: list[Any] = []
    future.add_done_callback(lambda done: 1 // 0)
    future.add_done_callback(called.append)
    succeed(future)

    assert called == [future]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("finish", [succeed, cancel])
def test_a_callback_is_called_once_however_it_races_with_the_outcome(finish: Any) -> None:
    for _ in range(ROUNDS):
        future = Future()
        called: list[Any] = []
        start = threading.Barrier(2)

        def outcome(future: Future = future, start: threading.Barrier = start) -> None:
            start.wait()
            finish(future)

        racing = thread(outcome)
        start.wait()
        future.add_done_callback(called.append)
        racing.join()

        assert called == [future]


def test_nobody_who_waits_misses_an_outcome_that_comes_at_the_same_moment() -> None:
    for number in range(ROUNDS):
        future = Future()
        found: list[Any] = []
        start = threading.Barrier(3)

        def ask(future: Future = future, start: threading.Barrier = start, found: list[Any] = found) -> None:
            start.wait()
            found.append(future.result(timeout=30))

        asking = [thread(ask), thread(ask)]
        start.wait()
        succeed(future, number)
        for waiting in asking:
            waiting.join()

        assert found == [number, number]


def test_wait_for_all_never_returns_early_while_outcomes_come() -> None:
    for _ in range(ROUNDS // 3):
        futures = [Future() for _ in range(40)]
        finishing = thread(succeed_all, futures)
        done, not_done = wait(futures, timeout=30)
        finishing.join()

        assert not not_done
        assert len(done) == 40
        assert all(future.done() for future in done)


def test_as_completed_gives_each_once_while_outcomes_come() -> None:
    for _ in range(ROUNDS // 3):
        futures = [Future() for _ in range(40)]

        def finish(futures: list[Future] = futures) -> None:
            for at, future in enumerate(futures):
                (cancel if at % 7 == 0 else succeed)(future)

        finishing = thread(finish)
        seen: list[Any] = list(as_completed([*futures, futures[0]], timeout=30))
        finishing.join()

        assert len(seen) == 40
        assert set(seen) == set(futures)


def test_wait_returns_with_the_first_and_with_the_first_exception() -> None:
    first, failing, never = Future(), Future(), Future()
    succeed(first, 1)

    assert wait([first, never], return_when=FIRST_COMPLETED).done == {first}
    finishing = thread(fail, failing, ValueError("no"))
    done, not_done = wait([first, failing, never], return_when=FIRST_EXCEPTION, timeout=30)
    finishing.join()
    assert failing in done
    assert not_done == {never}


def test_an_outcome_cannot_be_set_twice() -> None:
    future = Future()
    future.set_result(1)

    with pytest.raises(InvalidStateError):
        future.set_result(2)
    with pytest.raises(InvalidStateError):
        future.set_exception(ValueError())
    assert future.result() == 1


def test_a_future_without_a_client_can_be_cancelled_once() -> None:
    future = Future()

    assert future.cancel()
    assert future.cancel()
    with pytest.raises(InvalidStateError):
        future.set_result(1)
    done = Future()
    done.set_result(1)
    assert not done.cancel()


def test_a_future_without_a_client_can_be_awaited() -> None:
    future = Future()

    async def value() -> Any:
        return await future

    async def set_meanwhile() -> Any:
        awaiting = asyncio.create_task(value())
        await asyncio.sleep(0)  # it begins
        assert future._gate is not None
        future.set_result(5)
        return await asyncio.wait_for(awaiting, 60)

    assert asyncio.run(set_meanwhile()) == 5


def test_a_future_that_is_done_travels_with_its_outcome() -> None:
    value, error, gone = Future(), Future(), Future()
    succeed(value, {"a": 1})
    fail(error, ValueError("no"))
    cancel(gone)

    assert pickle.loads(pickle.dumps(value)).result() == {"a": 1}
    assert isinstance(pickle.loads(pickle.dumps(error)).exception(), ValueError)
    assert pickle.loads(pickle.dumps(gone)).cancelled()


def test_a_future_that_is_not_done_travels_only_as_an_argument() -> None:
    with pytest.raises(SerializationError, match="pass it to the task as an argument"):
        pickle.dumps(Future())


def test_profiling_info_tells_what_the_task_took() -> None:
    future = Future()
    with pytest.raises(ValueError, match="not done"):
        future.profiling_info()
    future._worker = "host|1|w|x"
    succeed(future)

    profile = future.profiling_info()
    assert profile == (1.5, 20e-6, 30, 0.04, "host|1|w|x", 1)
    assert profile.memory_peak == 30


class NeedsTwoError(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__(one)


class CannotBeShownError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class HoldsALockError(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NeedsTwoError(1, 2), "NeedsTwoError: 1"),
        (HoldsALockError(), "HoldsALockError: holds a lock"),
        (SystemExit(3), "builtins.SystemExit: 3"),
        (KeyboardInterrupt(), "builtins.KeyboardInterrupt"),
    ],
)
def test_what_cannot_be_rebuilt_or_would_end_the_program_is_a_remote_error(error: BaseException, text: str) -> None:
    future = Future()
    fail(future, error)

    found = future.exception()
    assert isinstance(found, RemoteError)
    assert text in str(found)


def test_an_exception_whose_text_cannot_be_shown_still_arrives() -> None:
    future = Future()
    fail(future, CannotBeShownError())

    assert isinstance(future.exception(), CannotBeShownError)
    assert "CannotBeShownError" in str(future.exception().__cause__)  # type: ignore[union-attr]
