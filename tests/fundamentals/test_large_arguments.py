"""Large arguments are objects of their own: uploaded once, mapped by workers, private to each task."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gristmill import Client, LocalCluster
from support.database import Database
from support.waiting import wait_until

LARGE = 3_000_000


@pytest.fixture
def database(cluster: LocalCluster) -> Iterator[Database]:
    database = Database(cluster.address)
    yield database
    database.close()


def objects_of(database: Database, cluster: LocalCluster, client: Client) -> set[str]:
    """The client's large arguments that Redis has."""
    begin = cluster.keys.object(f"{client.client_id}.o")
    return {key for key in database.keys(cluster.keys.prefix) if key.startswith(begin) and key.count(":") == 3}


def array(start: int = 0) -> Any:
    return np.arange(start, start + LARGE // 8, dtype=np.int64)


@pytest.mark.parametrize(
    "value",
    [os.urandom(LARGE), bytearray(os.urandom(LARGE)), "\u00e4\ud800" * 50_000, array(), array().astype("f4")[::2]],
    ids=["bytes", "bytearray", "text", "array", "array with gaps"],
)
def test_what_goes_in_comes_out_as_what_it_was(client: Client, value: Any) -> None:
    back = client.submit(lambda given: given["deep"][0], {"deep": [value]}).result()

    assert type(back) is type(value)
    assert np.array_equal(back, value) if isinstance(value, np.ndarray) else back == value


@pytest.mark.parametrize("value", [os.urandom(LARGE), array()], ids=["bytes", "array"])
def test_it_is_uploaded_once_however_many_tasks_use_it(
    client: Client, cluster: LocalCluster, database: Database, value: Any
) -> None:
    futures = [client.submit(lambda given, at: given[at], value, at) for at in range(30)]
    futures += [client.submit(lambda at, given: given[at], at, given=value) for at in range(30)]

    assert client.gather(futures) == list(value[:30]) * 2
    assert len(objects_of(database, cluster, client)) == 1


def test_equal_content_is_uploaded_once(client: Client, cluster: LocalCluster, database: Database) -> None:
    one, other = array(), array()
    text = "x" * 100_000
    # Held to the end: what nobody holds any more is freed soon.
    values = (one, other, text, "x" * 99_999 + "x", "y" * 100_000)
    client.gather([client.submit(len, value) for value in values])

    assert len(objects_of(database, cluster, client)) == 3


def test_a_partial_and_a_closure_carry_it_too(client: Client, cluster: LocalCluster, database: Database) -> None:
    table = array()

    def look_up(values: Any, at: int) -> int:
        return int(values[at])

    partial = functools.partial(look_up, table)
    assert client.map(partial, range(20)) == list(range(20))
    assert client.gather([client.submit(partial, at) for at in range(20)]) == list(range(20))
    assert client.map(lambda at: int(table[at]), range(20)) == list(range(20))
    assert len(objects_of(database, cluster, client)) == 1


def test_no_task_sees_what_another_did_to_it(client: Client) -> None:
    table, buffer = array(1), bytearray(os.urandom(LARGE))

    def change(table: Any, buffer: bytearray) -> tuple[int, int]:
        seen = int(table[0]), buffer[0]
        table[:] = 0
        buffer[0] = (buffer[0] + 1) % 256
        return seen

    assert set(client.map(change, [table] * 20, [buffer] * 20)) == {(1, buffer[0])}
    assert table[0] == 1


def test_an_array_that_cannot_be_written_stays_so(client: Client) -> None:
    table = array()
    table.flags.writeable = False

    assert client.submit(lambda given: given.flags.writeable, table).result() is False
    assert client.submit(lambda given: given.flags.writeable, array()).result() is True


def test_the_same_array_twice_in_a_call_is_one(client: Client) -> None:
    table, data = array(), os.urandom(LARGE)

    assert client.submit(lambda a, b: a is b[0], data, [data]).result() is True
    assert client.submit(lambda a, b: a is b[0], table, [table]).result() is True


def test_a_change_of_what_is_looked_at_whole_is_seen(client: Client) -> None:
    table, buffer = array(), bytearray(LARGE)
    client.submit(len, table).result()
    client.submit(len, buffer).result()
    table[123_456] = -1
    buffer[2_345_678] = 1

    assert client.submit(lambda given: int(given[123_456]), table).result() == -1
    assert client.submit(lambda given: sum(given), buffer).result() == 1


def test_a_small_change_of_something_very_large_is_seen_when_told(client: Client) -> None:
    table = np.zeros(2_000_000)
    partial = functools.partial(lambda given: int(given[1_234_567]), table)
    again = client.options(reserialize=True)
    assert client.submit(partial).result() == 0
    table[1_234_567] = 1

    assert again.submit(partial).result() == 1
    assert again.submit(lambda given: int(given[1_234_567]), table).result() == 1
    assert client.submit_verbose(lambda given: int(given.sum()), (table,), reserialize=True).result() == 1


def test_redis_is_told_when_nobody_needs_it(client: Client, cluster: LocalCluster, database: Database) -> None:
    table, data = array(), os.urandom(LARGE)
    client.submit(lambda *given: None, table, data).result()
    assert len(objects_of(database, cluster, client)) == 2

    del table
    wait_until(lambda: len(objects_of(database, cluster, client)) == 1, "the array's object is freed")
    client.submit(len, data).result()
    assert len(objects_of(database, cluster, client)) == 1
    del data
    wait_until(lambda: not objects_of(database, cluster, client), "the object of the bytes is freed")


def test_a_large_value_goes_to_a_dependent_and_back(client: Client) -> None:
    first = client.submit(lambda: np.arange(1_000_000.0))
    second = client.submit(lambda given: given * 2, first)

    assert client.submit(lambda a, b: float(a[-1] + b[-1]), first, [second][0]).result() == 3 * 999_999.0
    assert second.result().flags.writeable
    assert float(second.result()[-1]) == 2 * 999_999.0


def test_a_value_that_was_fetched_can_be_an_argument(client: Client) -> None:
    done = client.submit(lambda: np.arange(1_000_000.0))
    done.result()

    assert client.submit(lambda given: float(given[0][5]), [done]).result() == 5.0


def test_a_call_with_more_large_arguments_than_it_can_name(client: Client) -> None:
    pieces = [bytes([at % 256]) * 70_000 for at in range(220)]

    assert client.submit(lambda given: [len(piece) for piece in given], pieces).result() == [70_000] * 220
