"""`await future`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill.client.future import Future


def awaited(future: Future) -> Generator[Any, None, Any]:
    """What `await future` does: the value, without blocking the event loop, not even while a large one is fetched.

    As with asyncio's own futures, a task that was cancelled raises asyncio.CancelledError, and cancelling whoever
    awaits it cancels the task.
    """
    if not future.done():
        yield from _ended(future)
    if future.cancelled():
        raise asyncio.CancelledError
    if future.is_large:
        yield from asyncio.get_running_loop().run_in_executor(None, future.exception).__await__()
    try:
        return future.result()
    except CancelledError:
        raise asyncio.CancelledError from None


def _ended(future: Future) -> Generator[Any, None, None]:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def tell(_: object) -> None:
        try:
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(None))
        except RuntimeError:  # the loop is closed: nobody awaits any more
            pass

    future.watch(tell)
    try:
        yield from ended.__await__()
    except asyncio.CancelledError:
        future.cancel(timeout=0)
        raise
