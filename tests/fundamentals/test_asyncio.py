"""`AsyncClient`: nothing that waits blocks the event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gristmill import AsyncClient, ClientClosedError, ConnectionLostError, LocalCluster
from support import tasks
from support.waiting import wait_until

With = Callable[[Callable[[AsyncClient], Awaitable[Any]]], Any]


@pytest.fixture
def with_client(cluster: LocalCluster) -> With:
    """Runs a coroutine function with a client, in a loop of its own."""

    def run(body: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
        async def entered() -> Any:
            async with AsyncClient(cluster) as client:
                return await body(client)

        return asyncio.run(entered())

    return run


def test_what_is_submitted_is_awaited(with_client: With) -> None:
    async def body(client: AsyncClient) -> int:
        return int(await client.submit(pow, 2, 10))

    assert with_client(body) == 1024


def test_a_client_may_be_awaited_instead_of_entered(cluster: LocalCluster) -> None:
    async def body() -> int:
        client = await AsyncClient(cluster)
        value = int(await client.submit(abs, -1))
        await client.disconnect()
        with pytest.raises(ClientClosedError):
            client.submit(abs, -1)
        return value

    assert asyncio.run(body()) == 1


def test_before_it_is_connected_it_says_what_to_do(cluster: LocalCluster) -> None:
    client = AsyncClient(cluster)

    with pytest.raises(RuntimeError, match="async with"):
        client.submit(abs, -1)
    with pytest.raises(AttributeError):
        client.nothing  # noqa: B018


def test_what_the_client_refuses_is_refused() -> None:
    async def body() -> None:
        async with AsyncClient("unix:///nowhere/redis.sock", connect_timeout=0.2):
            pass

    with pytest.raises(ConnectionLostError, match="nowhere"):
        asyncio.run(body())


def test_maps_are_awaited(with_client: With) -> None:
    async def body(client: AsyncClient) -> Any:
        return await asyncio.gather(
            client.map(tasks.double, range(3000)), client.starmap(pow, [(2, 3), (3, 2)], chunksize=2)
        )

    assert with_client(body) == [list(range(0, 6000, 2)), [8, 9]]


def test_map_raises_the_first_exception(with_client: With) -> None:
    async def body(client: AsyncClient) -> None:
        await client.map(lambda number: 1 / number, [1, 0])

    with pytest.raises(ZeroDivisionError):
        with_client(body)


def test_giving_up_a_map_cancels_it(with_client: With, tmp_path: Path) -> None:
    started = tmp_path / "started"

    async def body(client: AsyncClient) -> int:
        with pytest.raises(asyncio.TimeoutError):
            await client.map(tasks.hang_politely, [str(started)] * 3, timeout=0.5)
        assert client.client is not None
        session = client.client._session
        await asyncio.get_running_loop().run_in_executor(
            None, lambda: wait_until(lambda: not session.unfinished, "the tasks are cancelled")
        )
        return len(session.unfinished)

    assert with_client(body) == 0


@pytest.mark.parametrize("unordered", [False, True])
def test_endless_items_are_iterated(with_client: With, unordered: bool) -> None:
    async def body(client: AsyncClient) -> list[int]:
        mapping = client.imap_unordered if unordered else client.imap
        values = []
        async for value in mapping(tasks.double, itertools.count(), window=50):
            values.append(value)
            if len(values) == 300:
                break
        return values

    values = with_client(body)
    assert len(set(values)) == 300
    assert unordered or values == list(range(0, 600, 2))


def test_iterating_ends_with_the_items(with_client: With) -> None:
    async def body(client: AsyncClient) -> list[int]:
        return [value async for value in client.imap(abs, [-1, -2])]

    assert with_client(body) == [1, 2]


def test_gather_flush_and_cancel_are_awaited(with_client: With, tmp_path: Path) -> None:
    async def body(client: AsyncClient) -> tuple[list[int], int]:
        futures = [client.submit(abs, -number) for number in range(5)]
        await client.flush(timeout=30)
        never = client.submit(tasks.hang_politely, str(tmp_path / "started"))
        with pytest.raises(asyncio.TimeoutError):
            await client.gather([never], timeout=0.1)
        assert not never.done()
        return await client.gather(futures), await client.cancel([never])

    assert with_client(body) == (list(range(5)), 1)


def test_options_hold_for_a_view(with_client: With) -> None:
    from gristmill import TaskTimeoutError

    async def body(client: AsyncClient) -> None:
        await client.options(timeout=0.2).submit(tasks.sleep_long, 60)

    with pytest.raises(TaskTimeoutError):
        with_client(body)


def test_the_loop_goes_on_while_it_waits(with_client: With, tmp_path: Path) -> None:
    """The items end only because the loop goes on: else nobody would open the gate."""
    started, gate = str(tmp_path / "started"), tmp_path / "gate"

    async def body(client: AsyncClient) -> int:
        waiting = asyncio.ensure_future(client.map(tasks.wait_for_file, [started] * 4, [str(gate)] * 4))
        ticks = 0
        while ticks < 10 and not waiting.done():
            ticks += 1
            await asyncio.sleep(0.005)
        await asyncio.get_running_loop().run_in_executor(None, gate.touch)
        await waiting
        return ticks

    assert with_client(body) == 10
