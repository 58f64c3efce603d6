"""`imap`: values as they come, of iterables that may be endless."""

from __future__ import annotations

import concurrent.futures
import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from gristmill import Client, ConnectionLostError, Future, MissingObjectError, ProcessorDiedError
from gristmill.client.mapping import Mapped
from support import tasks
from support.waiting import wait_until


def cannot_fetch(error: type[Exception]) -> Callable[[object], NoReturn]:
    def fetch(_: object) -> NoReturn:
        raise error

    return fetch


class Counted(Iterator[int]):
    """Numbers without an end, and how many were read."""

    def __init__(self) -> None:
        self.read = 0

    def __next__(self) -> int:
        self.read += 1
        return self.read - 1


def test_values_come_in_order(client: Client) -> None:
    assert list(client.imap(tasks.double, range(5000))) == list(range(0, 10_000, 2))


def test_over_nothing_there_is_nothing(client: Client) -> None:
    assert list(client.imap(abs, [])) == []
    assert list(client.imap_unordered(abs, [])) == []


def test_endless_items_are_read_only_so_far_ahead(client: Client) -> None:
    numbers = Counted()
    values = client.imap(tasks.double, numbers, window=100)

    for at in range(1000):
        assert next(values) == 2 * at
        assert numbers.read <= at + 1 + 100
    values.close()
    assert list(values) == []


def test_endless_items_in_any_order_are_read_only_so_far_ahead(client: Client) -> None:
    numbers = Counted()
    values = client.imap_unordered(tasks.double, numbers, window=100)

    seen = [next(values) for _ in range(1000)]
    assert len(set(seen)) == 1000
    assert numbers.read <= 1100
    values.close()


def test_items_of_several_iterables_go_together(client: Client) -> None:
    assert list(client.imap(pow, [2, 3], itertools.repeat(2))) == [4, 9]


@pytest.mark.parametrize("chunksize", [1, 4])
def test_the_iterator_goes_on_behind_an_item_that_failed(client: Client, chunksize: int) -> None:
    values = client.imap(lambda number: 12 // (number - 2), range(5), chunksize=chunksize)

    assert [next(values), next(values)] == [-6, -12]
    with pytest.raises(ZeroDivisionError):
        next(values)
    assert list(values) == [12, 6]


def test_each_item_of_a_chunk_whose_processor_died_has_its_own_outcome(client: Client) -> None:
    def die_at_two(number: int) -> int:
        import os

        if number == 2:
            os._exit(1)
        return number

    values = client.imap(die_at_two, range(5), chunksize=5)

    assert [next(values), next(values)] == [0, 1]
    with pytest.raises(ProcessorDiedError):
        next(values)
    assert list(values) == [3, 4]


def test_in_any_order_a_short_item_overtakes_a_long_one(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def wait_if_first(number: int, started: str, gate: str) -> int:
        from support import tasks

        if number == 0:
            tasks.wait_for_file(started, gate)
        return number

    values = client.imap_unordered(
        wait_if_first, range(3), itertools.repeat(str(tmp_path / "started")), itertools.repeat(str(gate))
    )
    first_two = {next(values), next(values)}
    gate.touch()

    assert first_two == {1, 2}
    assert list(values) == [0]


def test_in_any_order_every_value_comes_once(client: Client) -> None:
    values = list(client.imap_unordered(tasks.double, range(5000), chunksize=50))

    assert sorted(values) == list(range(0, 10_000, 2))


@pytest.mark.parametrize("unordered", [False, True])
def test_values_that_could_not_be_fetched_may_be_asked_for_again(
    client: Client, monkeypatch: pytest.MonkeyPatch, unordered: bool
) -> None:
    mapping = client.imap_unordered if unordered else client.imap
    with monkeypatch.context() as patch:
        patch.setattr(client._session, "fetch", cannot_fetch(ConnectionLostError))
        values = mapping(bytes, [300_000] * 3, chunksize=3, timeout=60)
        for _ in range(2):
            with pytest.raises(ConnectionLostError):
                next(values)

    assert list(values) == [bytes(300_000)] * 3


@pytest.mark.parametrize("unordered", [False, True])
def test_values_that_are_gone_for_good_fail_their_items(
    client: Client, monkeypatch: pytest.MonkeyPatch, unordered: bool
) -> None:
    mapping = client.imap_unordered if unordered else client.imap
    monkeypatch.setattr(client._session, "fetch", cannot_fetch(MissingObjectError))
    values = mapping(bytes, [300_000] * 3, chunksize=3, timeout=60)

    for _ in range(3):
        with pytest.raises(MissingObjectError):
            next(values)
    assert list(values) == []


def test_what_is_left_over_is_sent_without_the_lock_of_the_map(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending may wait for room, which the I/O thread makes once it has had the lock."""
    mapped = Mapped(client, tasks.sleep_long, iter([(0.05,)] * 4), 4)
    send = client._session.enqueue
    sent: list[Future] = []
    free: list[bool] = []

    def lock_is_free() -> bool:
        free = mapped._lock.acquire(timeout=30)
        if free:
            mapped._lock.release()
        return free

    def enqueue(future: Future) -> None:
        sent.append(future)
        if len(sent) == 1:
            send(future)
            return
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            free.append(other.submit(lock_is_free).result())

    monkeypatch.setattr(client._session, "enqueue", enqueue)
    mapped.send()
    wait_until(lambda: free, "something is left over")

    assert all(free)


@pytest.mark.parametrize("unordered", [False, True])
def test_a_value_that_takes_too_long_may_be_asked_for_again(client: Client, tmp_path: Path, unordered: bool) -> None:
    gate = tmp_path / "gate"
    mapping = client.imap_unordered if unordered else client.imap
    values = mapping(tasks.wait_for_file, [str(tmp_path / "started")], [str(gate)], timeout=0.3)

    with pytest.raises(concurrent.futures.TimeoutError):
        next(values)
    gate.touch()
    value = wait_until(lambda: _next_or_none(values), "the value comes once the gate is open")
    assert isinstance(value, int)


def _next_or_none(values: Iterator[object]) -> object:
    try:
        return next(values)
    except concurrent.futures.TimeoutError:
        return None


def test_dropping_the_iterator_cancels_what_is_on_its_way(client: Client, tmp_path: Path) -> None:
    started = tmp_path / "started"
    values = client.imap(tasks.hang_politely, [str(started)])
    values._fill()
    wait_until(started.exists, "the task has started")
    future = values._under_way[0].future
    del values
    gc.collect()

    assert future.await_end(60) == "CANCELLED_AND_NOTIFIED"


def test_a_callback_may_iterate(client: Client) -> None:
    collected: list[list[int]] = []
    done = threading.Event()

    def iterate(_: object) -> None:
        collected.append(list(client.imap(tasks.double, range(50))))
        collected.append(sorted(client.imap_unordered(tasks.double, range(50))))
        done.set()

    client.submit(abs, -1).add_done_callback(iterate)

    assert done.wait(60)
    assert collected == [list(range(0, 100, 2))] * 2


@pytest.mark.parametrize("window", [0, -1, 1.5, True])
def test_an_odd_window_is_refused(client: Client, window: object) -> None:
    with pytest.raises(ValueError, match="window"):
        client.imap(abs, [1], window=window)  # type: ignore[arg-type]


def test_imap_shows_how_far_it_is(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(client.imap(tasks.double, range(700), progress=True))) == 700
    assert "double: 700 of 700 items" in capsys.readouterr().err


def test_map_shows_how_far_it_is(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = [0.0] * 60
    seconds[20] = 0.05  # so that a part of a chunk is sent again, and is not counted twice
    client.map(tasks.sleep_long, seconds, chunksize=30, progress=True)
    client.map(tasks.double, iter(range(5)), progress=True)
    lines = capsys.readouterr().err.splitlines()
    # A map that takes long says how far it is meanwhile: the last line of each counts.
    slept, doubled = ([line for line in lines if line.startswith(name)][-1] for name in ("sleep_long: ", "double: "))

    assert slept.startswith("sleep_long: 60 of 60 items")
    assert doubled.startswith("double: 5 items")
