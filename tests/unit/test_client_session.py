"""A client against a real cluster: what callbacks may do, what Ctrl-C leaves behind, and when the I/O thread ends."""

from __future__ import annotations

import concurrent.futures
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from gristmill import Client, LocalCluster
from gristmill.client import recovery
from gristmill.client.callbacks import Callbacks
from gristmill.client.courier import Courier
from gristmill.client.future import Future
from gristmill.client.session import Session
from gristmill.errors import ClientClosedError, SettingError
from support.server import require_server_binary
from support.waiting import wait_until

HELD = 4000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    require_server_binary()
    with LocalCluster(workers=1, schedulers=1) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client


def never(client: Client) -> Future:
    """A task that no worker takes."""
    return client.options(capabilities=["nobody-has-this"]).submit(abs, -1)


def raise_once(error: BaseException, then: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    """A function that raises when it is called first, and is `then` later."""
    errors = [error]

    def act(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return then(*args)

    return act


def start_others(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """Starts no thread for callbacks; others may want one at the same moment."""

    def act(thread: threading.Thread) -> None:
        if thread.name == "gristmill-callbacks":
            raise RuntimeError("can't start new thread")
        start(thread)

    return act


class InCallback:
    """Does something in a callback, on the I/O thread; `found` is what it returned or raised."""

    def __init__(self, client: Client, act: Callable[[], Any]) -> None:
        self.act = act
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.found: Any = None
        future = never(client)
        future.add_done_callback(self)
        client._session.cancel([future])

    def __call__(self, _: object) -> None:
        assert threading.current_thread().name == "gristmill-callbacks"
        self.begun.set()
        try:
            self.found = self.act()
        except BaseException as error:
            self.found = error
        self.ended.set()


def has_ended(session: Session) -> bool:
    return not session.courier._thread.is_alive()


# --- whoever has the lock ---------------------------------------------------------------------------------


def test_a_task_may_be_cancelled_while_its_own_thread_has_the_lock(client: Client) -> None:
    """As by the garbage collector, or a signal handler, in the middle of sending."""
    future = never(client)
    client.flush(60)
    session = client._session
    has_returned = threading.Event()

    def cancel() -> None:
        with session.lock:
            session.cancel([future])
        has_returned.set()

    threading.Thread(target=cancel, daemon=True).start()
    assert has_returned.wait(60)
    wait_until(future.cancelled, "the task is cancelled")


# --- errors of the client's own ---------------------------------------------------------------------------


def test_when_the_io_thread_fails_its_futures_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    future = never(client)
    monkeypatch.setattr(client._session.courier, "_look_after", raise_once(SystemExit()))
    client._session.courier.wake()

    with pytest.raises(CancelledError):
        future.result(timeout=60)
    with pytest.raises(ClientClosedError, match="error of its own"):
        client.submit(abs, -1)


def test_an_odd_error_while_connecting_anew_is_tried_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = raise_once(RuntimeError("odd"), recovery._put_right)
    monkeypatch.setattr(recovery, "_put_right", odd)
    client._session.broken = True
    client._session.courier.wake()
    wait_until(lambda: client._session.recovered, "the client has connected anew")

    assert client.submit(abs, -1).result(timeout=60) == 1


def test_a_callback_for_which_there_was_no_thread_is_called_later(monkeypatch: pytest.MonkeyPatch) -> None:
    callbacks = Callbacks()
    called: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_others(threading.Thread.start))
        callbacks.call(lambda: called.append(1))
    assert called == []
    callbacks.call(lambda: called.append(2))
    callbacks.stop()
    callbacks.join(60)

    assert called == [1, 2]


def test_a_callback_for_which_there_never_was_a_thread_is_called_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    callbacks = Callbacks()
    called: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_others(threading.Thread.start))
        callbacks.call(lambda: called.append(1))
    callbacks.stop()

    assert called == [1]


# --- callbacks --------------------------------------------------------------------------------------------


def test_a_client_that_leaves_cancels_what_a_callback_waits_for(client: Client) -> None:
    future = never(client)
    callback = InCallback(client, future.result)
    assert callback.begun.wait(60)
    client.disconnect()

    assert callback.ended.wait(60)
    assert isinstance(callback.found, CancelledError)
    assert future.cancelled()
    wait_until(lambda: has_ended(client._session), "the I/O thread has ended")


def test_a_callback_may_wait_for_a_while_and_the_client_goes_on(client: Client) -> None:
    future = never(client)
    callback = InCallback(client, lambda: future.result(timeout=0.1))
    assert callback.ended.wait(60)

    assert isinstance(callback.found, concurrent.futures.TimeoutError)
    assert not future.done()
    assert client.submit(abs, -1).result(timeout=60) == 1


def test_a_callback_may_submit_and_flush(client: Client) -> None:
    submitted: list[Future] = []

    def submit_and_flush() -> int:
        submitted.append(never(client))
        client.flush(timeout=60)
        return client._session.acknowledged

    callback = InCallback(client, submit_and_flush)
    assert callback.ended.wait(60)

    assert 0 < submitted[0]._batch <= callback.found
    assert client.submit(abs, -1).result(timeout=60) == 1


# --- gates that an interrupted `as_completed` has left locked -----------------------------------------------


def test_a_future_whose_gate_is_held_holds_up_no_other(client: Client) -> None:
    future = never(client)
    future._condition.acquire()
    client._session.cancel([future])
    wait_until(lambda: client._session.inbox.held, "the outcome is here and the gate is held")

    assert client.submit(abs, -1).result(timeout=60) == 1
    assert not future.done()
    future._condition.release()
    wait_until(future.cancelled, "the future is settled")


def test_whoever_holds_the_gate_for_good_can_still_wait_for_the_outcome(client: Client) -> None:
    future = never(client)
    future._condition.acquire()
    client._session.cancel([future])

    with pytest.raises(CancelledError):
        future.result(timeout=60)


def test_a_client_leaves_although_gates_are_held_for_good(client: Client) -> None:
    futures = [never(client) for _ in range(HELD)]
    for future in futures:
        future._condition.acquire()
    client._session.cancel(futures[: HELD // 2])
    wait_until(lambda: client._session.inbox.held, "outcomes are here and their gates are held")
    client.disconnect()

    wait_until(lambda: has_ended(client._session), "the I/O thread has ended")
    assert all(future.cancelled() for future in futures)


# --- large values -----------------------------------------------------------------------------------------


def test_a_large_value_outlives_its_client_until_it_is_looked_at(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[Courier] = []
    turn = Courier._turn

    def counted(courier: Courier, longest: float) -> None:
        turn(courier, longest)
        turns.append(courier)

    monkeypatch.setattr(Courier, "_turn", counted)
    future = Client(cluster).submit(bytes, 5_000_000)
    session = future._session
    assert session is not None
    assert session.owner_gone
    wait_until(future.done, "the outcome is here")
    for _ in range(2):  # the first may have begun before
        seen = len(turns)
        session.courier.wake()
        wait_until(lambda: len(turns) > seen or has_ended(session), "the I/O thread has looked round")  # noqa: B023

    assert not has_ended(session)
    assert future.result() == bytes(5_000_000)
    session.courier.wake()
    wait_until(lambda: has_ended(session), "the session ends when nobody needs it any more")


# --- settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 1e306, 1e8, 0, -1])
def test_a_lease_that_no_scheduler_would_take_is_refused_at_once(seconds: float) -> None:
    with pytest.raises(SettingError, match="expected lease_seconds to be a finite number from 1 to 10,000,000; got"):
        Client("unix:///nowhere/redis.sock", lease_seconds=seconds)


def test_a_client_may_have_any_name(cluster: LocalCluster) -> None:
    with Client(cluster, name="caf\udce9") as client:
        assert client.submit(abs, -1).result(timeout=60) == 1
