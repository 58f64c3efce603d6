"""`client.executor()`: the client behind the interface of `concurrent.futures.Executor`."""

from __future__ import annotations

import concurrent.futures
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from gristmill.client.future import Future
from gristmill.client.imap import Imap
from gristmill.client.mapping import Mapped
from gristmill.client.parts import Part
from gristmill.errors import ClientClosedError

if TYPE_CHECKING:
    from gristmill.client.calls import Calls

SHUT_DOWN_TEXT = "cannot schedule new futures after shutdown"


class Executor(concurrent.futures.Executor):
    """An executor whose calls are tasks of a client. Made by `Client.executor`.

    Shutting it down leaves the client open. It differs from a process pool in what it is for: processes are elsewhere,
    and a call runs again when a worker dies. `cancel_futures` also ends calls that execute.

        with client.executor() as executor:
            executor.submit(pow, 2, 10).result()  # 1024
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._futures: weakref.WeakSet[Future] = weakref.WeakSet()  # the client holds those that are unfinished
        self._maps: weakref.WeakSet[Mapped] = weakref.WeakSet()  # a task holds the one that it belongs to
        self._lock = threading.Lock()
        self._shut_down = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Run `fn(*args, **kwargs)` on a worker. Raises RuntimeError after `shutdown`, else what `Client.submit` does.

        executor.submit(pow, 2, 10).result()  # 1024
        """
        with self._lock:
            self._check()
            try:
                future = self._calls.submit(fn, *args, **kwargs)
            except ClientClosedError as error:
                raise RuntimeError(f"{SHUT_DOWN_TEXT}: {error}") from error
            self._futures.add(future)
            return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | Literal["auto"] = "auto",
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """An iterator over `fn(*items)` for the items of the iterables, in order.

        The iterables are read, and all calls sent, before it returns, or as far as `buffersize` items ahead of the
        values. When a value is not there `timeout` seconds after the call of `map`, TimeoutError is raised; it, and an
        exception of a call, end the iterator, and what has not run then is cancelled.
        """
        if chunksize != "auto" and (not isinstance(chunksize, int) or chunksize < 1):
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and (not isinstance(buffersize, int) or buffersize < 1):
            raise ValueError("buffersize must be None or > 0")
        with self._lock:
            self._check()
        end = None if timeout is None else time.monotonic() + timeout
        items = zip(*iterables, strict=False)
        if buffersize is not None:
            lazy = Imap(self._calls, fn, items, chunksize=chunksize, window=buffersize, timeout=timeout)
            self._enter(lazy.mapped)
            lazy._fill()
            return _until(lazy, end)
        mapped = Mapped(self._calls, fn, items, chunksize, patient=False)  # it returns at once
        self._enter(mapped)
        parts: list[Part] = []
        try:
            while sent := mapped.send():
                parts += sent
        except BaseException:
            mapped.close(parts)
            raise
        return _values(mapped, parts, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `wait` it returns when those that were made have ended.

        With `cancel_futures` they are cancelled, also those that execute.
        """
        with self._lock:
            self._shut_down = True
            maps = list(self._maps)
        if cancel_futures:
            for mapped in maps:
                mapped.close(mapped.open)
            self._calls.cancel(self._unfinished(), timeout=None if wait else 0)
        if not wait:
            return
        for mapped in maps:
            mapped.finish()
        concurrent.futures.wait(self._unfinished())

    def _enter(self, mapped: Mapped) -> None:
        """A map begins: its tasks are waited for, also those for what a chunk will leave over."""
        with self._lock:
            self._check()
            mapped.on_send = self._futures.add
            self._maps.add(mapped)

    def _unfinished(self) -> list[Future]:
        while True:
            try:
                return [future for future in self._futures if not future.done()]
            except RuntimeError:  # another thread has just added one
                pass

    def _check(self) -> None:
        if self._shut_down:
            raise RuntimeError(SHUT_DOWN_TEXT)

    def __repr__(self) -> str:
        return f"<Executor of {self._calls!r}{': shut down' if self._shut_down else ''}>"


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())


def _values(mapped: Mapped, parts: list[Part], end: float | None) -> Iterator[Any]:
    parts.reverse()  # so that values can be forgotten as soon as they were handed out
    try:
        while parts:
            part = parts.pop()
            try:
                values = mapped.collect_first(part, lambda: _left(end))
            except BaseException:
                parts.append(part)
                raise
            error = part.failures[min(part.failures)] if part.failures else None
            parts.extend(reversed(part.rest))
            del part  # it holds the values
            values.reverse()
            while values:
                yield values.pop()
            if error is not None:
                try:
                    raise error
                finally:
                    del error
    finally:
        mapped.close(parts)


def _until(lazy: Imap, end: float | None) -> Iterator[Any]:
    try:
        while True:
            lazy.timeout = _left(end)
            try:
                value = next(lazy)
            except StopIteration:
                return
            yield value
    finally:
        lazy.close()
