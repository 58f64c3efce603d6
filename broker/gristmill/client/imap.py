"""`imap` and `imap_unordered`: values as they come, of iterables that may be endless."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from gristmill.client.chunking import MOST_ITEMS
from gristmill.client.mapping import Mapped
from gristmill.client.parts import Chunksize, Part
from gristmill.client.progress import Progress

if TYPE_CHECKING:
    from gristmill.client.calls import Calls

WINDOW = 1000
"""So many items are read at most beyond those whose values were handed out, unless told otherwise."""
_PARTS_IN_WINDOW = 8
"""A chunk is at most this part of the window, so that several are on their way."""


class Imap(Iterator[Any]):
    """The values of a map, in order. Made by `Client.imap`.

    An item that failed raises its exception; the next call of `next` goes on with the item behind it. `close`, or
    dropping the iterator, cancels what is on its way.
    """

    def __init__(
        self,
        calls: Calls,
        function: Callable[..., Any],
        items: Iterator[tuple[Any, ...]],
        *,
        chunksize: Chunksize,
        window: int,
        timeout: float | None,
        progress: Progress | None = None,
    ) -> None:
        if not isinstance(window, int) or isinstance(window, bool) or window < 1:
            raise ValueError(f"expected window to be a whole number of items, at least 1; got {window!r}")
        self._window = window
        self.timeout = timeout
        """Seconds that the next value may take."""
        self._progress = progress
        self._ready: deque[tuple[Any, BaseException | None]] = deque()
        self._handed_out = 0
        self._closed = False
        self._session = calls._session
        most = max(1, min(MOST_ITEMS, window // _PARTS_IN_WINDOW))
        self.mapped = Mapped(calls, function, items, chunksize, most=most, progress=progress, on_end=self._on_end())
        self._under_way: deque[Part] = deque()

    def _on_end(self) -> Callable[[Part], None] | None:
        return None

    def __iter__(self) -> Imap:
        return self

    def __next__(self) -> Any:
        while not self._ready:
            if self._closed:
                raise StopIteration
            self._fill()
            if not self._under_way or self._closed:
                self.close()
                raise StopIteration
            part = self._take()
            assert part.values is not None
            self._ready.extend((value, part.failures.get(at)) for at, value in enumerate(part.values))
        self._handed_out += 1
        value, error = self._ready.popleft()
        if error is None:
            return value
        try:
            raise error
        finally:
            del error

    def _fill(self) -> None:
        """Send what the window has room for: a whole chunk, unless nothing is under way."""
        mapped = self.mapped
        while not mapped.exhausted and not self._closed:
            room = self._window - (mapped.taken - self._handed_out)
            if room < 1 or (self._under_way and room < min(mapped.sizer.size(), self._window)):
                return
            self._under_way.extend(mapped.send(room))

    def _take(self) -> Part:
        """The next part, which has ended."""
        part = self._under_way[0]
        self.mapped.settle(part, self.timeout)
        self._under_way.popleft()
        self._under_way.extendleft(reversed(part.rest))
        return part

    def close(self) -> None:
        """No more values are wanted: what is on its way is cancelled. Harmless when it was closed before, and while
        another thread waits for a value.
        """
        self._closed = True
        self._ready.clear()
        self.mapped.close(self._under_way)
        if self._progress is not None:
            self._progress.close()

    @property
    def is_ready(self) -> bool:
        """Whether the next value is there."""
        return bool(self._ready)

    def __del__(self) -> None:
        if hasattr(self, "_under_way") and not self._closed:
            self.close()


class ImapUnordered(Imap):
    """The same, each value as soon as it is there. Made by `Client.imap_unordered`."""

    def _on_end(self) -> Callable[[Part], None]:
        # The iterator itself must not be held by what is on its way: dropping it ends the map.
        self._ended: queue.SimpleQueue[Part] = queue.SimpleQueue()
        return self._ended.put

    def _take(self) -> Part:
        ended = self._ended
        try:
            if self._session.parent is not None and ended.empty():
                # Inside a task waiting for futures gives the slot up; waiting for a queue would not.
                wait([part.future for part in self._under_way], self.timeout, FIRST_COMPLETED)
            part = ended.get(timeout=self.timeout)
        except queue.Empty:
            raise FutureTimeoutError(f"no further item has finished within {self.timeout} s") from None
        try:
            self.mapped.settle(part)
        except BaseException:  # its values cannot be fetched now: it may be asked for again
            ended.put(part)
            raise
        self._under_way.remove(part)
        self._under_way.extend(part.rest)
        return part
