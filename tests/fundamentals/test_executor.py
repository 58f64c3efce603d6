"""`client.executor()` keeps every promise of `concurrent.futures.Executor` that a process-like executor can keep."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gristmill import CancelledError, Client, ClientClosedError, Future, LocalCluster
from gristmill.client.executor import Executor
from support import tasks
from support.waiting import wait_until


@pytest.fixture
def executor(client: Client) -> Iterator[Executor]:
    with client.executor() as executor:
        yield executor


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file for which tasks of the test wait; it is there at the latest when the test ends."""
    gate = tmp_path / "gate"
    yield gate
    gate.touch()


def held_back(executor: Executor, gate: Path) -> Future:
    return executor.submit(tasks.wait_for_file, str(gate.with_name("started")), str(gate))


class Thing:
    """A value to which weak references are possible."""


def await_gone(seen: weakref.ref[Any]) -> None:
    """The client's I/O thread may still be busy with the message by which a value came, and hold its future."""
    wait_until(lambda: seen() is None, "the value is let go")


class FalseError(Exception):
    """An exception that is false, and has no length."""

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0


def raise_false_error() -> None:
    raise FalseError


def keywords(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return args, kwargs


def note_and_return(log: str, line: str, size: int) -> bytes:
    tasks.note_start(log, line)
    return bytes(size)


class TestSubmit:
    def test_it_is_an_executor(self, executor: Executor) -> None:
        assert isinstance(executor, concurrent.futures.Executor)

    def test_it_returns_a_future(self, executor: Executor) -> None:
        future = executor.submit(pow, 2, 8)

        assert isinstance(future, concurrent.futures.Future)
        assert future.result() == 256

    def test_keywords_may_have_any_name(self, executor: Executor) -> None:
        future = executor.submit(keywords, 1, self=2, fn=3, timeout=4, function=5)

        assert future.result() == ((1,), {"self": 2, "fn": 3, "timeout": 4, "function": 5})

    def test_without_a_function_it_is_refused(self, executor: Executor) -> None:
        with pytest.raises(TypeError):
            executor.submit()  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            executor.submit(arg=1)  # type: ignore[call-arg]

    def test_an_exception_that_is_false_is_raised_too(self, executor: Executor) -> None:
        error = executor.submit(raise_false_error).exception()

        assert "FalseError" in f"{type(error)} {error}"

    def test_arguments_are_let_go_when_the_call_has_ended(self, executor: Executor) -> None:
        thing = Thing()
        seen = weakref.ref(thing)
        future = executor.submit(id, thing)
        del thing
        future.result()
        gc.collect()

        await_gone(seen)

    def test_calls_may_be_made_from_many_threads(self, executor: Executor) -> None:
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            futures = list(threads.map(lambda number: executor.submit(abs, -number), range(200)))

        assert [future.result() for future in futures] == list(range(200))


class TestMap:
    def test_values_come_in_order(self, executor: Executor) -> None:
        assert list(executor.map(pow, range(10), range(10))) == [number**number for number in range(10)]

    @pytest.mark.parametrize("chunksize", [1, 3, 100])
    def test_the_chunksize_changes_nothing(self, executor: Executor, chunksize: int) -> None:
        assert list(executor.map(pow, range(40), range(40), chunksize=chunksize)) == list(
            map(pow, range(40), range(40))
        )

    @pytest.mark.parametrize("chunksize", [0, -1])
    def test_an_odd_chunksize_is_refused(self, executor: Executor, chunksize: int) -> None:
        with pytest.raises(ValueError, match="chunksize"):
            executor.map(abs, [1], chunksize=chunksize)

    def test_without_iterables_there_is_nothing(self, executor: Executor) -> None:
        assert list(executor.map(abs)) == []

    def test_calls_are_made_without_iterating(self, executor: Executor, tmp_path: Path) -> None:
        log = str(tmp_path / "log")
        executor.map(tasks.note_start, [log] * 3, ["a", "b", "c"])
        executor.shutdown(wait=True)

        assert sorted(tasks.started_lines(log)) == ["a", "b", "c"]

    @pytest.mark.parametrize("chunksize", [1, 4])
    def test_an_exception_comes_at_its_place_and_ends_the_iterator(self, executor: Executor, chunksize: int) -> None:
        values = executor.map(divmod, [1, 1, 1, 1], [2, 3, 0, 5], chunksize=chunksize)

        assert next(values) == (0, 1)
        assert next(values) == (0, 1)
        with pytest.raises(ZeroDivisionError):
            next(values)
        with pytest.raises(StopIteration):
            next(values)

    def test_the_time_is_counted_from_the_call(self, executor: Executor, gate: Path) -> None:
        started = str(gate.with_name("started"))
        values = executor.map(tasks.wait_for_file, [started], [str(gate)], timeout=0.2)
        time.sleep(0.25)
        began = time.monotonic()
        with pytest.raises(concurrent.futures.TimeoutError):
            next(values)

        assert time.monotonic() - began < 60  # the task itself gives up after three minutes, with the same class

    def test_closing_the_iterator_cancels_what_has_not_run(self, executor: Executor, gate: Path) -> None:
        values: Any = executor.map(tasks.wait_for_file, [str(gate.with_name("started"))] * 8, [str(gate)] * 8)
        future = next(iter(executor._futures))
        wait_until(gate.with_name("started").exists, "the first executes")
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(timeout=0)
        threading.Timer(0.05, gate.touch).start()
        next(values)
        values.close()

        wait_until(lambda: all(future.done() for future in executor._futures), "the others end")

    @pytest.mark.parametrize("chunksize", [1, 5])
    def test_values_that_were_handed_out_are_let_go(self, executor: Executor, chunksize: int) -> None:
        for value in executor.map(lambda _: Thing(), range(10), chunksize=chunksize):
            seen = weakref.ref(value)
            del value
            await_gone(seen)

    def test_a_buffer_bounds_how_far_the_iterable_is_read(self, executor: Executor) -> None:
        read = itertools.count()
        values = executor.map(tasks.double, read, buffersize=10)

        assert [next(values) for _ in range(100)] == list(range(0, 200, 2))
        assert next(read) <= 110
        values.close()  # type: ignore[attr-defined]

    @pytest.mark.parametrize("buffersize", [0, -1, "5"])
    def test_an_odd_buffer_is_refused(self, executor: Executor, buffersize: Any) -> None:
        with pytest.raises(ValueError, match="buffersize"):
            executor.map(abs, [1], buffersize=buffersize)

    def test_a_buffered_map_ends_and_raises_as_any_other(self, executor: Executor) -> None:
        assert list(executor.map(abs, [-1, -2], buffersize=1)) == [1, 2]
        values = executor.map(divmod, [1, 1], [0, 1], buffersize=4)
        with pytest.raises(ZeroDivisionError):
            next(values)
        assert list(values) == []


class TestShutdown:
    def test_afterwards_nothing_is_taken(self, executor: Executor) -> None:
        executor.shutdown()

        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(abs, 1)
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.map(abs, [1])

    def test_it_may_be_shut_down_twice(self, executor: Executor) -> None:
        executor.shutdown()
        executor.shutdown()

    def test_it_waits_for_what_was_submitted(self, client: Client) -> None:
        with client.executor() as executor:
            futures = [executor.submit(tasks.sleep_long, 0.05) for _ in range(6)]

        assert all(future.done() for future in futures)

    def test_it_need_not_wait(self, client: Client, gate: Path) -> None:
        executor = client.executor()
        future = held_back(executor, gate)
        executor.shutdown(wait=False)
        assert not future.done()
        gate.touch()

        assert isinstance(future.result(timeout=60), int)

    def test_it_may_cancel_what_has_not_run(self, client: Client, gate: Path) -> None:
        executor = client.executor()
        done = executor.submit(abs, -1)
        done.result()
        futures = [held_back(executor, gate) for _ in range(20)]
        executor.shutdown(wait=True, cancel_futures=True)

        assert all(future.cancelled() for future in futures)
        assert done.result() == 1

    def test_it_waits_for_items_that_chunks_leave_over(self, client: Client, tmp_path: Path) -> None:
        log = str(tmp_path / "log")
        with client.executor() as executor:
            executor.map(tasks.note_start_and_work, [log] * 60, map(str, range(60)), [0.01] * 60, chunksize=30)

        assert sorted(map(int, tasks.started_lines(log))) == list(range(60))

    def test_it_waits_for_items_that_are_left_over_because_values_are_large(
        self, client: Client, tmp_path: Path
    ) -> None:
        log = str(tmp_path / "log")
        with client.executor() as executor:
            executor.map(note_and_return, [log] * 12, map(str, range(12)), [400_000] * 12, chunksize=12)

        assert sorted(map(int, tasks.started_lines(log))) == list(range(12))

    def test_it_waits_for_what_a_buffered_map_has_on_its_way(self, client: Client, tmp_path: Path) -> None:
        log = str(tmp_path / "log")
        with client.executor() as executor:
            values = executor.map(
                tasks.note_start_and_work, [log] * 9, map(str, range(9)), [0.1] * 9, chunksize=1, buffersize=6
            )

        assert len(tasks.started_lines(log)) == 6
        values.close()  # type: ignore[attr-defined]

    def test_it_may_cancel_what_chunks_leave_over(self, client: Client, tmp_path: Path) -> None:
        log = str(tmp_path / "log")
        executor = client.executor()
        # Only the first ones end by themselves: however late the end of it all is asked for, most have not run.
        seconds = [0.2] * 3 + [tasks.GIVE_UP_SECONDS] * 97
        values = executor.map(tasks.note_start_and_work, [log] * 100, map(str, range(100)), seconds, chunksize=100)
        wait_until(lambda: len(tasks.started_lines(log)) > 2, "what the chunk left over has begun")
        executor.shutdown(cancel_futures=True)

        assert len(tasks.started_lines(log)) < 100
        with pytest.raises(CancelledError):
            list(values)

    def test_it_leaves_its_client_open(self, client: Client) -> None:
        client.executor().shutdown()

        assert client.submit(abs, -1).result() == 1

    def test_with_a_closed_client_it_takes_nothing(self, cluster: LocalCluster) -> None:
        with Client(cluster) as client:
            executor = client.executor()

        with pytest.raises(RuntimeError, match="closed") as caught:
            executor.submit(abs, 1)
        assert isinstance(caught.value.__cause__, ClientClosedError)

    def test_several_may_share_a_client(self, client: Client) -> None:
        with client.executor() as first, client.executor() as second:
            first.submit(abs, -1)
            first.shutdown()

            assert second.submit(abs, -2).result() == 2

    def test_options_hold_for_its_calls(self, client: Client) -> None:
        from gristmill import TaskTimeoutError

        with client.options(timeout=0.2).executor() as executor, pytest.raises(TaskTimeoutError):
            executor.submit(tasks.sleep_long, 60).result()


class TestEventLoops:
    def test_a_loop_may_run_calls_in_it(self, executor: Executor) -> None:
        async def run() -> list[int]:
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*(loop.run_in_executor(executor, abs, -number) for number in range(20)))

        assert asyncio.run(run()) == list(range(20))

    def test_a_loop_that_gives_up_is_not_held_up(self, executor: Executor, gate: Path) -> None:
        async def give_up() -> tuple[Future, float]:
            began = time.monotonic()
            running = asyncio.get_running_loop().run_in_executor(
                executor, tasks.wait_for_file, str(gate.with_name("started")), str(gate)
            )
            (future,) = executor._futures  # nobody else holds it once it is cancelled
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(running, 0.1)
            return future, time.monotonic() - began

        future, seconds = asyncio.run(give_up())
        assert seconds < 30
        wait_until(future.cancelled, "the task is cancelled")


class TestWaiting:
    """What `wait` and `as_completed` promise, with the futures of an executor."""

    def test_they_take_futures_of_several_executors(self, client: Client) -> None:
        with client.executor() as ours, concurrent.futures.ThreadPoolExecutor(2) as theirs:
            futures: list[Any] = [ours.submit(abs, -1), theirs.submit(abs, -2)]

            assert concurrent.futures.wait(futures, timeout=30).done == set(futures)
            assert {future.result() for future in concurrent.futures.as_completed(futures)} == {1, 2}

    def test_all_that_were_pending_complete_while_others_are_made(self, executor: Executor) -> None:
        """Calls that end while their futures are just being waited for are not missed."""
        barrier = [executor.submit(tasks.sleep_long, 0.0) for _ in range(100)]
        done, pending = concurrent.futures.wait(barrier, timeout=60)

        assert (len(done), len(pending)) == (100, 0)

    @pytest.mark.parametrize(
        ("when", "act"),
        [(concurrent.futures.FIRST_EXCEPTION, tasks.raise_value_error), (concurrent.futures.FIRST_COMPLETED, str)],
    )
    def test_one_that_is_done_already_is_enough(
        self, executor: Executor, gate: Path, when: str, act: Callable[..., Any]
    ) -> None:
        first = executor.submit(act, "text")
        concurrent.futures.wait([first], timeout=30)
        slow = held_back(executor, gate)
        done, pending = concurrent.futures.wait([first, slow], timeout=30, return_when=when)

        assert (done, pending) == ({first}, {slow})

    def test_a_cancelled_one_counts_as_completed(self, executor: Executor, gate: Path) -> None:
        future = held_back(executor, gate)
        assert future.cancel()

        assert concurrent.futures.wait([future], timeout=30).done == {future}
        with pytest.raises(CancelledError):
            future.result()
        with pytest.raises(CancelledError):
            future.exception()

    def test_as_completed_says_how_many_are_left(self, executor: Executor, gate: Path) -> None:
        done, slow = executor.submit(abs, -1), held_back(executor, gate)
        done.result()

        with pytest.raises(concurrent.futures.TimeoutError, match=r"1 \(of 2\) futures unfinished"):
            list(concurrent.futures.as_completed([done, slow], timeout=0.1))
