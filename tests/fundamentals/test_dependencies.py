"""Futures as arguments: a task that waits for tasks."""

from __future__ import annotations

import dataclasses
import operator
from pathlib import Path

import pytest

from gristmill import CancelledError, Client, LocalCluster
from support import tasks


def test_a_future_as_an_argument_stands_for_its_value(client: Client) -> None:
    eight = client.submit(pow, 2, 3)

    assert client.submit(operator.add, eight, 1).result() == 9


def test_a_future_may_be_a_keyword_argument(client: Client) -> None:
    assert client.submit(int, "11", base=client.submit(abs, -3)).result() == 4


def test_futures_may_lie_deep_inside_an_argument(client: Client) -> None:
    one, two = client.submit(abs, -1), client.submit(abs, -2)

    assert client.submit(tasks.echo, {"a": [one, (two, 3)]}).result() == {"a": [1, (2, 3)]}


def test_one_future_may_be_needed_twice(client: Client) -> None:
    number = client.submit(abs, -21)

    assert client.submit(operator.add, number, number).result() == 42


def test_a_done_future_may_be_an_argument(client: Client) -> None:
    number = client.submit(abs, -1)
    number.result()

    assert client.submit(operator.add, number, 1).result() == 2


def test_a_chain_of_a_hundred(client: Client) -> None:
    future = client.submit(abs, 0)
    for _ in range(100):
        future = client.submit(operator.add, future, 1)

    assert future.result() == 100


def test_a_fan_in_of_a_hundred(client: Client) -> None:
    parts = [client.submit(abs, -number) for number in range(100)]

    assert client.submit(sum, parts).result() == 4950


def test_a_fan_out_of_a_hundred(client: Client) -> None:
    source = client.submit(abs, -10)
    futures = [client.submit(operator.mul, source, number) for number in range(100)]

    assert client.gather(futures) == list(range(0, 1000, 10))


def test_a_diamond(client: Client) -> None:
    top = client.submit(abs, -3)
    left, right = client.submit(operator.add, top, 1), client.submit(operator.mul, top, 10)

    assert client.submit(operator.sub, right, left).result() == 26


def test_a_large_value_reaches_its_dependents(client: Client) -> None:
    large = client.submit(bytes, 3_000_000)

    assert client.submit(len, large).result() == 3_000_000


def test_a_failure_fails_everything_downstream_with_the_same_exception(client: Client) -> None:
    broken = client.submit(tasks.raise_value_error, "at the source")
    after = client.submit(tasks.echo, broken)
    last = client.submit(tasks.echo, after)

    for future in (broken, after, last):
        with pytest.raises(ValueError, match="at the source"):
            future.result()


def test_a_dependency_that_failed_before_fails_the_task_at_once(client: Client) -> None:
    broken = client.submit(tasks.raise_value_error, "at the source")
    broken.exception()

    with pytest.raises(ValueError, match="at the source"):
        client.submit(tasks.echo, broken).result()


def test_a_cancel_cancels_everything_downstream(client: Client, tmp_path: Path) -> None:
    source = client.submit(tasks.hang_politely, str(tmp_path / "started"))
    after = client.submit(tasks.echo, source)
    source.cancel()

    with pytest.raises(CancelledError):
        after.result(timeout=60)


def test_a_future_of_another_client_is_a_dependency_whose_value_does_not_come_here(
    client: Client, cluster: LocalCluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with Client(cluster) as other:
        text = other.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        future = client.submit(tasks.echo, [text])
        assert not future.done()
        gate.touch()

        assert future.result(60) == [text.result(60)]


def test_what_another_client_cancels_is_cancelled_here(client: Client, cluster: LocalCluster, tmp_path: Path) -> None:
    with Client(cluster) as other:
        endless = other.submit(tasks.hang_politely, str(tmp_path / "started"))
        future = client.submit(tasks.echo, endless)
        endless.cancel()

        with pytest.raises(CancelledError):
            future.result(60)


@dataclasses.dataclass
class Pair:
    first: object
    rest: dict[str, list[object]]


def test_futures_may_lie_in_a_dataclass(client: Client) -> None:
    one, two = client.submit(abs, -1), client.submit(abs, -2)

    assert client.submit(tasks.echo, Pair(one, {"rest": [two]})).result() == Pair(1, {"rest": [2]})


def test_one_task_may_need_very_many(client: Client) -> None:
    parts = [client.submit(abs, -number) for number in range(1300)]

    assert client.submit(sum, parts).result(60) == sum(range(1300))


def test_very_many_dependencies_of_which_one_fails(client: Client) -> None:
    parts = [client.submit(abs, -number) for number in range(700)]
    parts.insert(650, client.submit(tasks.raise_value_error, "the one"))

    with pytest.raises(ValueError, match="the one"):
        client.submit(sum, parts).result(60)
