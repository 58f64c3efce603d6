"""Futures: what callbacks, event loops and the standard library may do with them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gristmill import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Client,
    Future,
    LocalCluster,
    as_completed,
    gather,
    wait,
)
from gristmill.client.future import CANCEL_SECONDS
from support import tasks
from support.waiting import wait_until


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A file for which tasks of the test wait; it is there at the latest when the test ends."""
    gate = tmp_path / "gate"
    yield gate
    gate.touch()


def held_back(client: Client, gate: Path) -> Future:
    """A task that ends when the gate is there."""
    return client.submit(tasks.wait_for_file, str(gate.with_name("started")), str(gate))


def in_callback(client: Client, act: Any) -> Any:
    """What `act` returns, called in a callback."""
    found: list[Any] = []
    done = threading.Event()

    def callback(_: object) -> None:
        try:
            found.append(act())
        finally:
            done.set()

    with tempfile.TemporaryDirectory() as folder:
        gate = Path(folder, "gate")
        held_back(client, gate).add_done_callback(callback)
        gate.touch()  # not before: of a future that is done, the callback is called where it is added
        assert done.wait(60), "the callback never ended"
    return found[0]


class TestCallbacks:
    def test_a_callback_may_wait_for_futures(self, client: Client) -> None:
        def act() -> int:
            return len(wait([client.submit(abs, number) for number in range(20)]).done)

        assert in_callback(client, act) == 20

    def test_a_callback_may_take_futures_as_they_complete(self, client: Client) -> None:
        def act() -> list[int]:
            return sorted(future.result() for future in as_completed([client.submit(abs, -n) for n in range(20)]))

        assert in_callback(client, act) == list(range(20))

    def test_a_callback_may_wait_for_what_has_nothing_to_do_with_futures(self, client: Client, gate: Path) -> None:
        entered, released = threading.Event(), threading.Event()

        def callback(_: object) -> None:
            entered.set()
            released.wait(120)

        held_back(client, gate).add_done_callback(callback)
        gate.touch()
        assert entered.wait(60)

        assert client.submit(abs, -2).result(timeout=60) == 2  # the client goes on meanwhile
        released.set()

    def test_a_callback_may_submit_and_gather(self, client: Client) -> None:
        assert in_callback(client, lambda: client.gather([client.submit(abs, -3)])) == [3]

    def test_a_callback_may_cancel(self, client: Client, gate: Path) -> None:
        future = held_back(client, gate)

        assert in_callback(client, future.cancel)
        assert future.cancelled()

    def test_a_callback_may_disconnect_its_client(self, cluster: LocalCluster, gate: Path) -> None:
        client = Client(cluster)
        left = threading.Event()

        def leave(_: object) -> None:
            client.disconnect()
            left.set()

        held_back(client, gate).add_done_callback(leave)
        gate.touch()

        assert left.wait(60)
        assert client.closed

    def test_callbacks_are_called_in_the_order_in_which_they_were_added(self, client: Client, gate: Path) -> None:
        called: list[int] = []
        future = held_back(client, gate)
        for number in range(5):
            future.add_done_callback(lambda _, number=number: called.append(number))  # type: ignore[misc]
        gate.touch()

        wait_until(lambda: len(called) == 5, "all are called")
        assert called == list(range(5))

    def test_a_callback_that_raises_is_logged_and_the_next_is_called(
        self, client: Client, gate: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        called = threading.Event()

        def fail(_: object) -> None:
            raise LookupError("the callback's own fault")

        future = held_back(client, gate)
        future.add_done_callback(fail)
        future.add_done_callback(lambda _: called.set())
        gate.touch()

        assert called.wait(30)
        assert "the callback's own fault" in caplog.text

    def test_a_callback_that_exits_ends_no_thread(self, client: Client, gate: Path) -> None:
        def leave(_: object) -> None:
            raise SystemExit

        future = held_back(client, gate)
        future.add_done_callback(leave)
        gate.touch()
        future.result(timeout=30)

        assert in_callback(client, lambda: "goes on") == "goes on"

    def test_leaving_a_client_calls_the_callbacks_of_what_it_cancels(self, cluster: LocalCluster, gate: Path) -> None:
        called: list[bool] = []
        with Client(cluster) as client:
            held_back(client, gate).add_done_callback(lambda future: called.append(future.cancelled()))

        wait_until(lambda: called, "the callback is called")  # leaving waits for it, but not for ever
        assert called == [True]

    def test_a_client_with_callbacks_leaves_no_thread_behind(self, cluster: LocalCluster) -> None:
        before = set(threading.enumerate())
        with Client(cluster) as client:
            in_callback(client, lambda: None)

        wait_until(lambda: set(threading.enumerate()) <= before, "no thread is left")


class TestAwait:
    def test_a_future_may_be_awaited(self, client: Client) -> None:
        async def both() -> list[int]:
            first, second = client.submit(abs, -1), client.submit(abs, -2)
            return [await second, await first, await first]

        assert asyncio.run(both()) == [2, 1, 1]

    def test_awaiting_raises_what_the_task_raised(self, client: Client) -> None:
        async def fail() -> None:
            await client.submit(tasks.raise_value_error, "from far away")

        with pytest.raises(ValueError, match="from far away"):
            asyncio.run(fail())

    def test_a_cancelled_task_raises_what_asyncio_raises(self, client: Client, gate: Path) -> None:
        async def awaited() -> str:
            future = held_back(client, gate)
            client._session.cancel([future])
            try:
                await future
            except asyncio.CancelledError:
                return "cancelled"
            return "not cancelled"

        assert asyncio.run(awaited()) == "cancelled"

    def test_a_large_value_does_not_block_the_event_loop(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        threads: list[threading.Thread] = []
        fetch = client._session.fetch

        def noted(value: Any) -> bytearray:
            threads.append(threading.current_thread())
            return fetch(value)

        monkeypatch.setattr(client._session, "fetch", noted)

        async def size() -> int:
            return len(await client.submit(bytes, 3_000_000))

        assert asyncio.run(size()) == 3_000_000
        assert threads
        assert threading.main_thread() not in threads

    def test_giving_up_awaiting_cancels_the_task(self, client: Client, gate: Path) -> None:
        async def give_up() -> Future:
            future = held_back(client, gate)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(future, 0.1)
            return future

        future = asyncio.run(give_up())
        wait_until(future.cancelled, "the task is cancelled")

    def test_in_an_event_loop_a_cancel_does_not_wait(self, client: Client, tmp_path: Path) -> None:
        started = tmp_path / "started"

        async def cancel() -> Future:
            future = client.submit(tasks.hang_stubbornly, str(started))
            wait_until(started.exists, "the task executes")
            # No answer comes while the worker is frozen; else it would after two seconds, when the task is killed.
            worker = psutil.Process(int(started.read_text())).parent()
            assert worker is not None
            worker.suspend()
            try:
                began = time.monotonic()
                future.cancel()
                assert time.monotonic() - began < CANCEL_SECONDS / 2
                assert not future.done()
            finally:
                worker.resume()
            return future

        future = asyncio.run(cancel())
        wait_until(future.cancelled, "the task is cancelled")

    def test_asyncio_may_wrap_a_future(self, client: Client) -> None:
        async def wrapped() -> int:
            return int(await asyncio.wrap_future(client.submit(abs, -5)))

        assert asyncio.run(wrapped()) == 5


class TestRemoteTraceback:
    def test_it_is_the_text_of_the_process_that_ran_the_task(self, client: Client) -> None:
        text = client.submit(tasks.raise_while_handling).traceback()

        assert text is not None
        assert "KeyError: 'first'" in text
        assert "ValueError: second" in text

    def test_there_is_none_of_a_task_that_succeeded(self, client: Client) -> None:
        assert client.submit(abs, -1).traceback() is None


class TestWaiting:
    """`wait` and `as_completed` with whatever futures there are."""

    def test_nothing_is_done_at_once(self) -> None:
        assert wait([]) == (set(), set())
        assert list(as_completed([])) == []

    def test_a_future_that_is_listed_twice_is_reported_once(self, client: Client) -> None:
        future = client.submit(abs, -1)

        assert list(as_completed([future, future], timeout=30)) == [future]
        assert wait([future, future], timeout=30).done == {future}
        assert client.gather([future, future]) == [1, 1]

    def test_late_futures_are_reported_too(self, client: Client, gate: Path) -> None:
        early = client.submit(abs, -1)
        early.result()
        late = held_back(client, gate)
        completed = as_completed([late, early], timeout=60)

        assert next(completed) is early
        gate.touch()
        assert list(completed) == [late]

    def test_a_cancelled_one_wakes_whoever_waits(self, client: Client, gate: Path) -> None:
        future = held_back(client, gate)
        woken: list[Future] = []
        waiting = threading.Thread(target=lambda: woken.extend(as_completed([future], timeout=60)))  # type: ignore[arg-type]
        waiting.start()
        assert future.cancel()
        waiting.join(60)

        assert woken == [future]
        with pytest.raises(CancelledError):
            client.gather([future])

    def test_first_completed_returns_with_the_first(self, client: Client, gate: Path) -> None:
        future, quick = held_back(client, gate), client.submit(abs, -1)
        done, pending = wait([future, quick], timeout=60, return_when=FIRST_COMPLETED)

        assert (done, pending) == ({quick}, {future})

    def test_first_exception_returns_with_the_first_failure(self, client: Client, gate: Path) -> None:
        future, failing = held_back(client, gate), client.submit(tasks.raise_value_error, "no")
        done, pending = wait([future, failing], timeout=60, return_when=FIRST_EXCEPTION)

        assert (done, pending) == ({failing}, {future})

    def test_a_time_out_returns_what_is_done(self, client: Client, gate: Path) -> None:
        future, quick = held_back(client, gate), client.submit(abs, -1)
        quick.result()

        assert wait([future, quick], timeout=0, return_when=ALL_COMPLETED) == ({quick}, {future})
        with pytest.raises(concurrent.futures.TimeoutError):
            list(as_completed([future, quick], timeout=0))

    def test_whatever_happens_to_them_each_is_reported_once(self, client: Client) -> None:
        """Some finish, some fail, some are cancelled at random moments, and one is listed twice."""
        dice = random.Random(74)
        for _ in range(40):
            futures = [client.submit(dice.choice([tasks.nothing, tasks.raise_keyboard_interrupt])) for _ in range(10)]
            futures += [client.submit(tasks.sleep_long, 0.001 * dice.random()) for _ in range(5)]
            asked = dice.sample(futures, 5)
            cancelling = threading.Thread(target=client.cancel, args=(asked,))
            cancelling.start()
            seen = list(as_completed([*futures, futures[0]], timeout=60))
            cancelling.join(60)

            assert sorted(map(id, seen)) == sorted(map(id, futures))
            assert wait(futures, timeout=60).not_done == set()


def test_a_task_whose_future_nobody_holds_runs(client: Client, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    for number in range(100):
        client.submit(tasks.note_start, log, str(number))
    gc.collect()

    wait_until(lambda: len(tasks.started_lines(log)) == 100, "all hundred have run")


def test_gather_of_nothing_is_nothing(client: Client) -> None:
    assert client.gather([]) == gather([]) == []


def test_gather_may_end_before_all_are_done(client: Client, gate: Path) -> None:
    with pytest.raises(concurrent.futures.TimeoutError):
        client.gather([client.submit(abs, -1), held_back(client, gate)], timeout=0.2)


def test_a_cancel_may_be_asked_for_without_waiting(client: Client, gate: Path) -> None:
    future = held_back(client, gate)
    future.cancel(timeout=0)

    wait_until(future.cancelled, "the task is cancelled")
