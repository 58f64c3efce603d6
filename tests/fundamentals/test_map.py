"""`map`: how items travel changes nothing about what comes back."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from itertools import repeat
from pathlib import Path

import pytest

from gristmill import Client, Future, ProcessorDiedError, ResultSerializationError, SerializationError, TaskTimeoutError
from support import tasks


def tasks_of(client: Client) -> int:
    """How many tasks the client has made so far."""
    return next(client._session.numbers)


@pytest.fixture
def sent(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items each task has that the client sends.

    When the machine stalls for 20 ms in the middle of a chunk, it ends there, and its rest is a task more.
    """
    counts: list[int] = []
    enqueue = client._session.enqueue

    def noted(future: Future) -> None:
        counts.append((future._options or {}).get("run", {}).get("chunk", 1))
        enqueue(future)

    monkeypatch.setattr(client._session, "enqueue", noted)
    return counts


def test_short_items_travel_together(client: Client) -> None:
    assert client.map(tasks.double, range(20_000)) == list(range(0, 40_000, 2))
    assert tasks_of(client) < 10_000


def test_short_items_travel_together_although_the_first_take_long(client: Client) -> None:
    seconds = [0.3, 0.3] + [0.0] * 20_000

    assert client.map(tasks.sleep_long, seconds) == seconds
    assert tasks_of(client) < 10_000


def test_long_items_are_tasks_of_their_own(client: Client) -> None:
    assert client.map(tasks.sleep_long, [0.03] * 40) == [0.03] * 40
    assert tasks_of(client) == 40


def test_a_chunksize_says_how_many_travel_together(client: Client, sent: list[int]) -> None:
    assert client.map(tasks.double, range(100), chunksize=10) == list(range(0, 200, 2))
    assert (max(sent), sent.count(10)) == (10, 10)


def test_with_a_chunksize_of_one_each_is_a_task_of_its_own(client: Client) -> None:
    assert client.map(tasks.double, range(300), chunksize=1) == list(range(0, 600, 2))
    assert tasks_of(client) == 300


@pytest.mark.parametrize("chunksize", [0, -1, 2.5, True, "many", None])
def test_an_odd_chunksize_is_refused(client: Client, chunksize: object) -> None:
    with pytest.raises(ValueError, match="chunksize"):
        client.map(abs, [1], chunksize=chunksize)  # type: ignore[arg-type]


def test_the_first_exception_in_order_is_raised_with_its_traceback(client: Client) -> None:
    def fail_twice(number: int) -> int:
        if number in (470, 480):
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match="470") as caught:
        client.map(fail_twice, range(500), chunksize=50)
    assert "in fail_twice" in str(caught.value.__cause__)


def test_starmap_groups_too(client: Client, sent: list[int]) -> None:
    pairs = [(number, 2) for number in range(200)]

    assert client.starmap(tasks.add, pairs, chunksize=20) == list(range(2, 202))
    assert (max(sent), sent.count(20)) == (20, 10)


def test_items_with_unequal_numbers_of_arguments_are_grouped(client: Client) -> None:
    assert client.starmap(pow, [(2, 3), (2, 3, 5)] * 50, chunksize=20) == [8, 3] * 50


def test_no_item_sees_what_another_did_to_their_common_argument(client: Client) -> None:
    def lengthen(numbers: list[int], number: int) -> int:
        numbers.append(number)
        return len(numbers)

    assert client.map(lengthen, repeat([]), range(50), chunksize=25) == [1] * 50


def test_values_that_can_change_are_separate_objects(client: Client) -> None:
    first, second = client.map(lambda _, common=[]: common, range(2), chunksize=2)

    assert first is not second


def test_an_item_that_does_not_fit_is_named(client: Client) -> None:
    items: list[object] = [[number] for number in range(1000)]
    items[500] = threading.Lock()

    with pytest.raises(SerializationError, match=r"item 500 .*lock"):
        client.map(tasks.echo, items)
    with pytest.raises(SerializationError, match=r"item 500 .*lock"):
        client.map(tasks.echo, items, chunksize=100)


def test_an_item_with_too_many_arguments_is_named(client: Client) -> None:
    with pytest.raises(TypeError, match=r"item 3 .*add"):
        client.starmap(tasks.add, [(1, 2), (1, 2), (1, 2), (1, 2, 3)], chunksize=4)


def test_a_value_that_cannot_be_pickled_fails_its_item_alone(client: Client) -> None:
    def lock_at_three(number: int) -> object:
        return tasks.return_a_lock() if number == 3 else number

    with pytest.raises(ResultSerializationError, match="lock"):
        client.map(lock_at_three, range(5), chunksize=5)


def test_behind_an_item_that_takes_long_nobody_waits(client: Client) -> None:
    seconds = [0.0] * 100
    seconds[10] = 0.1

    assert client.map(tasks.sleep_long, seconds, chunksize=100) == seconds
    assert tasks_of(client) > 1  # what was behind it was sent again


def test_what_a_dead_processor_leaves_is_run_item_by_item(client: Client, sent: list[int], tmp_path: Path) -> None:
    log = str(tmp_path / "log")

    def die_at_seven(number: int) -> int:
        import os

        from support import tasks

        tasks.note_start(log, str(number))
        if number == 7:
            os._exit(3)
        return number

    with pytest.raises(ProcessorDiedError):
        client.map(die_at_seven, range(20), chunksize=20)
    assert tasks.started_lines(log)[:8] == [str(number) for number in range(8)]
    chunks = [count for count in sent if count > 1]
    assert chunks[0] == 20
    assert sent.count(1) == chunks[-1]


def test_values_of_many_bytes_come_in_several_tasks(client: Client) -> None:
    values = client.map(bytes, [400_000] * 12, chunksize=12)

    assert values == [bytes(400_000)] * 12
    assert tasks_of(client) > 1


def test_items_with_large_arguments_travel_alone(client: Client) -> None:
    items = [bytes(100_000) + bytes([number]) for number in range(5)]

    assert client.map(len, [bytearray(item) for item in items], chunksize=5) == [100_001] * 5
    assert tasks_of(client) == 5


def test_large_plain_arguments_are_grouped_as_far_as_they_fit(client: Client, sent: list[int]) -> None:
    assert client.map(len, [str(number) * 20_000 for number in range(10)], chunksize=10) == [20_000] * 10
    assert 1 < max(sent) < 10


def test_futures_among_the_arguments_are_waited_for(client: Client) -> None:
    futures = [client.submit(tasks.double, number) for number in range(20)]

    assert client.map(tasks.add, futures, range(20), chunksize=10) == [3 * number for number in range(20)]


def test_a_time_limit_is_one_for_each_item(client: Client, sent: list[int]) -> None:
    limited = client.options(timeout=30.0)

    assert limited.map(tasks.sleep_long, [0.01] * 24, chunksize=24) == [0.01] * 24
    assert sent == [1] * 24  # each is a task of its own, which the limit is for
    with pytest.raises(TaskTimeoutError):
        client.options(timeout=0.2).map(tasks.sleep_long, [0.0, 60.0, 0.0], chunksize=3)


def test_retries_are_for_each_item(client: Client, tmp_path: Path) -> None:
    folder = str(tmp_path)

    def fail_first(number: int) -> int:
        from support import tasks

        log = f"{folder}/{number}"
        tasks.note_start(log, "start")
        if len(tasks.started_lines(log)) == 1:
            raise ValueError(number)
        return number

    assert client.options(retries=1).map(fail_first, range(6), chunksize=6) == list(range(6))


def test_after_its_time_map_raises_and_stops_what_runs(client: Client) -> None:
    began = time.monotonic()

    with pytest.raises(concurrent.futures.TimeoutError):
        client.map(tasks.sleep_long, [60.0] * 10, chunksize=5, timeout=0.3)
    assert time.monotonic() - began < 30
    assert client.map(abs, [-1, -2]) == [1, 2]


def test_what_the_source_raises_is_raised(client: Client) -> None:
    def numbers() -> object:
        yield from range(200)
        raise LookupError("the source is broken")

    with pytest.raises(LookupError, match="the source"):
        client.map(abs, numbers())  # type: ignore[arg-type]


def test_after_the_first_failure_the_rest_of_the_source_is_not_read(client: Client) -> None:
    read: list[int] = []

    def numbers() -> object:
        for number in range(20_000):
            if number > 2000:
                time.sleep(0.005)  # so that reading all of them takes far longer than any outcome
            read.append(number)
            yield number

    with pytest.raises(ZeroDivisionError):
        client.map(lambda number: 1 // (number - 5), numbers())  # type: ignore[arg-type]
    assert len(read) < 20_000


def test_a_callback_may_map(client: Client) -> None:
    mapped: list[object] = []
    done = threading.Event()

    def map_on(_: object) -> None:
        mapped.append(client.map(tasks.double, range(3000)))
        done.set()

    client.submit(abs, -1).add_done_callback(map_on)

    assert done.wait(60)
    assert mapped == [list(range(0, 6000, 2))]
