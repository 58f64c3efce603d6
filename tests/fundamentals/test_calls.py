"""Calling a function somewhere else."""

from __future__ import annotations

import concurrent.futures
import operator
import os
import threading

import pytest

from gristmill import Client, as_completed, wait
from support import tasks


def test_a_call_returns_what_the_function_returns(client: Client) -> None:
    assert client.submit(pow, 2, 10).result() == 1024


def test_a_call_takes_keyword_arguments(client: Client) -> None:
    assert client.submit(int, "ff", base=16).result() == 255


def test_the_function_runs_in_another_process(client: Client) -> None:
    assert client.submit(os.getpid).result() != os.getpid()


def test_none_is_a_value(client: Client) -> None:
    assert client.submit(tasks.nothing).result() is None


def test_values_of_any_kind_go_there_and_back(client: Client) -> None:
    value = {"text": "ä\x00", "bytes": bytes(range(256)), "nested": [(1, 2.5), {3, None}], "big": 2**200}

    assert client.submit(tasks.echo, value).result() == value


def test_equal_calls_are_separate_tasks(client: Client) -> None:
    futures = [client.submit(os.urandom, 8) for _ in range(20)]

    assert len({future.result() for future in futures}) == 20


def test_a_thousand_calls_each_have_their_own_value(client: Client) -> None:
    futures = [client.submit(operator.mul, number, 2) for number in range(1000)]

    assert [future.result() for future in futures] == list(range(0, 2000, 2))


def test_map_returns_the_values_in_order(client: Client) -> None:
    assert client.map(pow, [2, 3, 4], [2, 2, 2]) == [4, 9, 16]


def test_map_ends_with_the_shortest_of_its_iterables(client: Client) -> None:
    assert client.map(operator.add, range(100), [1, 2, 3]) == [1, 3, 5]


def test_map_over_nothing_is_nothing(client: Client) -> None:
    assert client.map(abs, []) == []


def test_starmap_takes_the_arguments_from_tuples(client: Client) -> None:
    assert client.starmap(pow, [(2, 3), (3, 2), (5, 3, 7)]) == [8, 9, 6]


def test_map_raises_the_first_exception_in_order(client: Client) -> None:
    with pytest.raises(ZeroDivisionError):
        client.map(lambda number: 1 / number, [1, 0, 2])


def test_map_gives_up_after_its_timeout(client: Client) -> None:
    with pytest.raises(concurrent.futures.TimeoutError):
        client.map(tasks.sleep_long, [60, 60], timeout=0.2)


def test_gather_collects_the_values_of_futures(client: Client) -> None:
    assert client.gather([client.submit(abs, -1), client.submit(abs, -2)]) == [1, 2]


def test_a_future_is_one_of_the_standard_library(client: Client) -> None:
    assert isinstance(client.submit(abs, -1), concurrent.futures.Future)


def test_a_future_is_done_when_its_value_is_there(client: Client) -> None:
    future = client.submit(abs, -1)
    future.result()

    assert future.done()
    assert not future.cancelled()
    assert future.exception() is None


def test_waiting_for_a_value_may_end_before_it_comes(client: Client) -> None:
    future = client.submit(tasks.sleep_long, 60)

    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(timeout=0.1)
    assert not future.done()
    future.cancel()


def test_wait_returns_when_all_are_done(client: Client) -> None:
    futures = [client.submit(abs, number) for number in range(10)]
    done, pending = wait(futures, timeout=30)

    assert (len(done), len(pending)) == (10, 0)


def test_as_completed_yields_each_future_once(client: Client) -> None:
    futures = [client.submit(abs, number) for number in range(10)]

    assert {future.result() for future in as_completed(futures, timeout=30)} == set(range(10))


def test_a_callback_is_called_with_the_future(client: Client) -> None:
    called = threading.Event()
    future = client.submit(abs, -1)
    future.add_done_callback(lambda done: called.set() if done is future else None)

    assert called.wait(30)


def test_a_callback_added_late_is_called_at_once(client: Client) -> None:
    future = client.submit(abs, -1)
    future.result()
    seen: list[object] = []
    future.add_done_callback(seen.append)

    assert seen == [future]


def test_threads_may_share_a_client(client: Client) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        values = list(threads.map(lambda number: client.submit(abs, -number).result(), range(200)))

    assert values == list(range(200))


def test_a_future_knows_what_its_task_took(client: Client) -> None:
    future = client.submit(tasks.sleep_long, 0.05)
    future.result()
    profile = future.profiling_info()

    assert profile.duration_s >= 0.05
    assert profile.attempt == 1
    assert profile.worker == future.worker != ""


def test_flush_returns_when_redis_has_taken_everything(client: Client) -> None:
    futures = [client.submit(abs, number) for number in range(500)]
    client.flush(timeout=30)

    assert client.gather(futures) == list(range(500))
