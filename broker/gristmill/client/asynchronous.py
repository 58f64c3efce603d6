"""`AsyncClient`: a client for programs with an event loop. What waits is awaited; nothing blocks the loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from gristmill.client.calls import Calls
from gristmill.client.client import Client
from gristmill.client.future import CANCEL_SECONDS, Future
from gristmill.client.imap import WINDOW, Imap, ImapUnordered
from gristmill.client.many import argument_tuples

if TYPE_CHECKING:
    from gristmill.client.executor import Executor

Returned = TypeVar("Returned")
EVERYTHING = 1 << 60
"""The window of a map that reads all of its items at once."""
_END = object()


class AsyncCalls:
    """What can be called on an AsyncClient, and on a view of it."""

    _calls: Calls

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Run `function(*args, **kwargs)` on a worker: returns its future at once, to be awaited (`Client.submit`).

        value = await client.submit(pow, 2, 10)  # 1024
        """
        return self._calls.submit(function, *args, **kwargs)

    def options(self, **options: Any) -> AsyncCalls:
        """A view of this client whose tasks have other options (`Client.options`).

        await client.options(priority=10).submit(function)
        """
        view = AsyncCalls()
        view._calls = self._calls.options(**options)
        return view

    async def map(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        chunksize: int | Literal["auto"] = "auto",
        timeout: float | None = None,
    ) -> list[Any]:
        """The values of `Client.map`. Giving up, be it for the `timeout` in seconds, cancels what has not run.

        await client.map(pow, [1, 2, 3], [2, 2, 2])  # [1, 4, 9]
        """
        return await self._collected(function, zip(*iterables, strict=False), chunksize, timeout)

    async def starmap(
        self,
        function: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        *,
        chunksize: int | Literal["auto"] = "auto",
        timeout: float | None = None,
    ) -> list[Any]:
        """The values of `Client.starmap`; as `map` in all else.

        await client.starmap(pow, [(2, 3), (3, 2)])  # [8, 9]
        """
        return await self._collected(function, argument_tuples(iterable), chunksize, timeout)

    def imap(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        chunksize: int | Literal["auto"] = "auto",
        window: int = WINDOW,
    ) -> AsyncIterator[Any]:
        """The values of `Client.imap` in order, of iterables that may be endless. An exception ends the iteration.

        async for square in client.imap(pow, itertools.count(), itertools.repeat(2)): ...
        """
        return _iterated(Imap, self._calls, function, zip(*iterables, strict=False), chunksize, window)

    def imap_unordered(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        chunksize: int | Literal["auto"] = "auto",
        window: int = WINDOW,
    ) -> AsyncIterator[Any]:
        """`imap`, but each value comes as soon as it is there.

        async for page in client.imap_unordered(download, addresses): ...
        """
        return _iterated(ImapUnordered, self._calls, function, zip(*iterables, strict=False), chunksize, window)

    async def gather(self, futures: Iterable[Future], *, timeout: float | None = None) -> list[Any]:
        """The values of the futures in their order; the first exception (in order) is raised.

        Unlike awaiting a future, giving up, be it for the `timeout` in seconds, cancels none of them.

            await client.gather([client.submit(abs, -1), client.submit(abs, -2)])  # [1, 2]
        """

        async def values() -> list[Any]:
            return [await asyncio.shield(_value(future)) for future in list(futures)]

        return await asyncio.wait_for(values(), timeout)

    async def cancel(self, futures: Future | Iterable[Future], *, timeout: float | None = CANCEL_SECONDS) -> int:
        """Cancel tasks, all at once; returns how many ended cancelled (`Client.cancel`).

        await client.cancel(futures)
        """
        return await _in_thread(self._calls.cancel, futures, timeout=timeout)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until Redis has taken everything that was submitted so far (`Client.flush`).

        await client.flush()
        """
        await _in_thread(self._calls.flush, timeout)

    def executor(self) -> Executor:
        """An executor (`Client.executor`).

        await loop.run_in_executor(client.executor(), function, argument)
        """
        return self._calls.executor()

    async def _collected(
        self,
        function: Callable[..., Any],
        items: Iterator[tuple[Any, ...]],
        chunksize: int | Literal["auto"],
        timeout: float | None,
    ) -> list[Any]:
        values = Imap(self._calls, function, items, chunksize=chunksize, window=EVERYTHING, timeout=None)
        try:
            return await asyncio.wait_for(_in_thread(list, values), timeout)
        finally:
            values.close()


class AsyncClient(AsyncCalls):
    """A client for programs with an event loop. It takes the arguments of `Client`, and connects when it is entered.

    Raises what `Client` raises; RuntimeError when it is used before it is connected.

        async with AsyncClient("redis://localhost:6379/0") as client:
            print(await client.submit(pow, 2, 10))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._arguments = (args, kwargs)
        self.client: Client | None = None
        """The client behind it; None before it is connected."""

    async def __aenter__(self) -> AsyncClient:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self.connect().__await__()

    async def connect(self) -> AsyncClient:
        """Connect, unless it is connected; `await AsyncClient(address)` does the same.

        client = await AsyncClient(address)
        """
        if self.client is None:
            args, kwargs = self._arguments
            self._calls = self.client = await _in_thread(Client, *args, **kwargs)
        return self

    async def disconnect(self) -> None:
        """Leave, as `Client.disconnect` does.

        await client.disconnect()
        """
        if self.client is not None:
            await _in_thread(self.client.disconnect)

    def __getattr__(self, name: str) -> Any:
        if name == "_calls":
            raise RuntimeError("expected a connected AsyncClient; got a new one; enter it by `async with`, or await it")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<AsyncClient: {self.client!r}>" if self.client else "<AsyncClient: not connected>"


async def _in_thread(function: Callable[..., Returned], *args: Any, **kwargs: Any) -> Returned:
    return await asyncio.get_running_loop().run_in_executor(None, functools.partial(function, *args, **kwargs))


async def _value(future: Future) -> Any:
    return await future


async def _iterated(
    kind: type[Imap],
    calls: Calls,
    function: Callable[..., Any],
    items: Iterator[tuple[Any, ...]],
    chunksize: int | Literal["auto"],
    window: int,
) -> AsyncIterator[Any]:
    values = kind(calls, function, items, chunksize=chunksize, window=window, timeout=None)
    try:
        while True:
            # A thread only when it has to wait, or to send.
            value = next(values) if values.is_ready else await _in_thread(next, values, _END)
            if value is _END:
                return
            yield value
    finally:
        values.close()
