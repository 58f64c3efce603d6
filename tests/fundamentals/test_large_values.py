"""Values too large for a message travel beside it."""

from __future__ import annotations

import hashlib
import os
from typing import Any, NoReturn

import pytest

from gristmill import Client
from gristmill.client import fetching
from gristmill.store.connection import pack

SIZES = [0, 3_000, 4_096, 5_000, 100_000, 1 << 20, (1 << 20) + 1, 5_000_000]


@pytest.mark.parametrize("size", SIZES)
def test_an_argument_of_any_size(client: Client, size: int) -> None:
    data = os.urandom(size)

    assert (
        client.submit(lambda given: hashlib.sha256(given).hexdigest(), data).result()
        == hashlib.sha256(data).hexdigest()
    )


@pytest.mark.parametrize("size", SIZES)
def test_a_result_of_any_size(client: Client, size: int) -> None:
    assert client.submit(bytes, size).result() == bytes(size)


def test_a_function_that_carries_something_large(client: Client) -> None:
    table = os.urandom(2_000_000)
    futures = [client.submit(lambda at: table[at], number) for number in range(20)]

    assert client.gather(futures) == list(table[:20])


def test_a_large_exception(client: Client) -> None:
    def fail() -> None:
        raise ValueError("x" * 100_000)

    error = client.submit(fail).exception()

    assert isinstance(error, ValueError)
    assert len(str(error)) == 100_000


def test_several_large_results_may_be_looked_at_in_any_order_and_again(client: Client) -> None:
    futures = [client.submit(bytes, 200_000 + number) for number in range(5)]

    for number in (3, 1, 4, 0, 2, 3):
        assert len(futures[number].result()) == 200_000 + number


def test_after_an_interrupt_nobody_takes_replies_that_still_come_for_his_own(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetcher = client._session._fetcher
    future = client.submit(bytes, 200_000)
    client.gather([client.submit(bytes, 100_000)])
    free: list[bool] = []

    def interrupted(*_: Any) -> NoReturn:
        fetcher._connection.send(pack(("ECHO", "late")))
        raise KeyboardInterrupt

    close = fetcher._connection.close

    def noted() -> None:
        free.append(not fetcher._lock.locked())
        close()

    with monkeypatch.context() as patch:
        patch.setattr(fetching, "read_object", interrupted)
        patch.setattr(fetcher._connection, "close", noted)
        with pytest.raises(KeyboardInterrupt):
            future.result()

    assert free == [False]  # it was closed before another thread could use it
    assert future.result() == bytes(200_000)
