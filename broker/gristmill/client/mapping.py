"""One function for many items: `map`, `starmap`, and what `imap` and executors are made of.

Items go out one by one until it is known what one takes; short ones then travel in chunks (`protocol.chunks`), one
task each. What a chunk did not get to, because an item took long or its processor died, is sent again. So grouping
changes how fast a map is and nothing else: each item has its own value or exception, in its own place.

Items that are tasks of their own whatever they take: those with a time limit, with retries or that are kept (each is
promised for the item, not for its neighbours), those with futures among their arguments, and those that are large.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from itertools import islice
from typing import TYPE_CHECKING, Any

from gristmill.client.chunking import CHUNK_BYTES, MOST_ITEMS, Sizer
from gristmill.client.functions import check_call
from gristmill.client.future import RUNNING, Future
from gristmill.client.parts import LARGEST_CHUNKSIZE, Chunksize, Part, check_chunksize
from gristmill.client.probing import Probing
from gristmill.client.serializer import LargeCall, dump_call
from gristmill.client.serializing import DependencyFailedError
from gristmill.errors import ProcessorDiedError, SerializationError, WorkerDiedError
from gristmill.protocol import payloads
from gristmill.protocol.chunks import SLICE_NS, ChunkOutcome, columns_of, dump_calls, dump_columns
from gristmill.protocol.kinds import INLINE_BYTES

if TYPE_CHECKING:
    from gristmill.client.calls import Calls
    from gristmill.client.progress import Progress

SINGLES = 50
"""While items travel alone, so many are taken from the source at a time."""
LOOKED_AT = 64
"""So many parts are looked at, to see whether they have ended."""
ITEM_BYTES = 2048
"""An item whose call is larger travels alone."""
LARGEST_CHUNK_BYTES = 64 * 1024
_ALONE = frozenset({"run", "retries", "keep", "keep_ms", "stream"})
"""Options that are promised for each item."""


class Mapped:
    """One map: where its items come from, what is on its way, what has come back.

    Args:
        calls: the client, or the view of it, that the tasks belong to.
        function: what is called.
        items: tuples of arguments.
        chunksize: "auto", or the most items that may travel together.
        most: the most items that may travel together by "auto".
        on_end: is called with each part that has ended, in whatever thread notices it.
        progress: is told how many items are done.
        patient: whether sending may wait until it is known what items take.
        deadline: when it waits no longer (monotonic seconds).
    """

    def __init__(
        self,
        calls: Calls,
        function: Callable[..., Any],
        items: Iterator[tuple[Any, ...]],
        chunksize: Chunksize = "auto",
        *,
        most: int = MOST_ITEMS,
        on_end: Callable[[Part], None] | None = None,
        progress: Progress | None = None,
        patient: bool = True,
        deadline: float | None = None,
    ) -> None:
        check_chunksize(chunksize)
        session = calls._session
        session.check_open()
        self.taken = 0
        """Items taken from the source so far."""
        self.exhausted = False
        self.failed = False
        """An item has failed, and all before it are done: what is still unread need not be sent."""
        self._calls = calls
        self._session = session
        self._function = function
        functions = session.outbox.functions
        self._called = functions.get_whole(function) if calls._reserialize else functions.get(function)
        self._options: Mapping[str, Any] = calls._options or {}
        self._items = items
        self._on_end = on_end
        self._progress = progress
        self._lock = threading.RLock()
        self._closed = False
        self._unseen: deque[Part] = deque()
        """Parts not yet looked at by `_look`, in order."""
        self.probing = Probing(session, patient=patient, deadline=deadline)
        if session.serializer is not None or not _ALONE.isdisjoint(self._options):
            self.sizer = Sizer(1, fixed=True)
        elif chunksize == "auto":
            self.sizer = Sizer(most)
        else:
            self.sizer = Sizer(chunksize, fixed=True)

    # --- sending ------------------------------------------------------------------------------------------

    def send(self, most: int = LARGEST_CHUNKSIZE) -> list[Part]:
        """Take the next items, at most so many, and send them; nothing when the source is exhausted.

        Raises SerializationError or TypeError naming the item that cannot be sent, and what the source raises.
        """
        if self._closed:
            return []
        self._look()
        size = min(self.sizer.size(), most)
        items = list(islice(self._items, min(SINGLES, most) if size == 1 else size))
        if not items:
            self.exhausted = True
            self._unseen.clear()  # what they say is needed no more, and they hold the values
            return []
        first = self.taken
        self.taken += len(items)
        parts = self._group(first, items, size)
        self._unseen.extend(parts)
        for part in parts:
            self._enqueue(part)
        return parts

    def _look(self) -> None:
        """Note what has come back meanwhile; wait for the first of it when it would make a difference."""
        unseen = self._unseen
        if unseen and self.sizer.wants_to_know:
            self.probing.wait(unseen, self.taken)
        while unseen and unseen[0].future._state is not RUNNING:
            part = unseen.popleft()
            self._note(part)
            self.failed = self.failed or part.future._failed or bool(part.failures)
        if unseen:  # the first takes long: those behind it have something to say too
            for part in islice(unseen, 1, LOOKED_AT):
                self._note(part)

    def _note(self, part: Part) -> None:
        """Learn from a part that has ended how long items take, once."""
        if part.noted or part.future._state is RUNNING:
            return
        part.noted = True
        if part.count > 1:
            self.settle(part)
        elif not self.sizer.fixed and (row := part.future._row) is not None:
            took = row[4] * 1000
            self.sizer.note(1, took, float(took * took), took)

    def _group(self, first: int, items: list[tuple[Any, ...]], size: int) -> list[Part]:
        if size == 1:
            return [self._alone(first + at, item) for at, item in enumerate(items)]
        columns = columns_of(items)
        if columns is not None:
            for item in (min(items, key=len), max(items, key=len)):
                self._check(first, item)
            return self._from_columns(first, items, columns)
        parts: list[Part] = []
        calls: list[bytes] = []
        grouped: list[tuple[Any, ...]] = []
        room = LARGEST_CHUNK_BYTES

        def close() -> None:
            nonlocal calls, grouped, room
            if len(grouped) > 1:
                parts.append(self._chunk(first + at - len(grouped), grouped, dump_calls(calls)))
            elif grouped:
                parts.append(self._alone(first + at - 1, grouped[0]))
            calls, grouped, room = [], [], LARGEST_CHUNK_BYTES

        for at, item in enumerate(items):
            call = self._small_call(first + at, item)
            if call is None or len(call) > room:
                close()
            if call is None:
                parts.append(self._alone(first + at, item))
                continue
            calls.append(call)
            grouped.append(item)
            room -= len(call)
        at = len(items)
        close()
        return parts

    def _from_columns(self, first: int, items: list[tuple[Any, ...]], columns: list[tuple[Any, ...]]) -> list[Part]:
        if len(items) == 1:
            return [self._alone(first, items[0])]
        data = dump_columns(columns)
        self.sizer.note_bytes(len(items), len(data))
        if len(data) > (LARGEST_CHUNK_BYTES if self.sizer.fixed else max(CHUNK_BYTES, 2 * ITEM_BYTES)):
            half = len(items) // 2
            return [
                *self._from_columns(first, items[:half], [column[:half] for column in columns]),
                *self._from_columns(first + half, items[half:], [column[half:] for column in columns]),
            ]
        return [self._chunk(first, items, data)]

    def _small_call(self, at: int, item: tuple[Any, ...]) -> bytes | None:
        """The pickled call of an item that may be grouped; None for one that has to travel alone."""
        self._check(at, item)
        try:
            call, beside = dump_call(self._session, self._called.name, item, {})
        except DependencyFailedError:
            return None
        except (SerializationError, TypeError) as error:
            raise _named(at, error) from error
        self.sizer.note_bytes(1, len(call))
        return None if beside or len(call) > ITEM_BYTES else call

    def _check(self, at: int, item: tuple[Any, ...]) -> None:
        try:
            check_call(self._function, self._called, item, {})
        except TypeError as error:
            raise _named(at, error) from error

    def _alone(self, at: int, item: tuple[Any, ...]) -> Part:
        """A task of its own for one item."""
        try:
            check_call(self._function, self._called, item, {})
            future = self._calls._make(self._session, self._called, item, {}, self._calls._options)
        except (SerializationError, TypeError) as error:
            raise _named(at, error) from error
        part = Part(at, [item], future)
        part.items = None
        if self._on_end is not None or self._progress is not None:
            future.watch(lambda _: self._ended(part))
        return part

    def _chunk(self, first: int, items: list[tuple[Any, ...]], data: bytes) -> Part:
        """A task for several items."""
        # If it takes its worker or processor with it, each item is tried alone.
        options = {**self._options, "max_deaths": 1, "run": {"chunk": len(items)}}
        future = Future(self._session, next(self._session.numbers), self._called, options)
        if len(data) <= INLINE_BYTES:
            future._call = payloads.text_of(data)
        else:
            future._large = LargeCall(data, (), {}, keep=True)
        part = Part(first, items, future)
        future.watch(lambda _: self._ended(part))
        return part

    def _enqueue(self, part: Part) -> None:
        future = part.future
        if future._call is not None:
            self._session.enqueue(future)
        elif future._large is not None:
            self._session.enqueue_large(future)

    # --- what comes back ----------------------------------------------------------------------------------

    def _ended(self, part: Part) -> None:
        """A part's future is done (usually in the I/O thread): what it left over should not wait for its turn."""
        future = part.future
        row = future._row
        if part.count > 1 and (future._failed or (row is not None and row[4] * 1000 > SLICE_NS // 2)):
            self.settle(part)
        self._count(part)
        if self._on_end is not None:
            self._on_end(part)

    def _count(self, part: Part) -> None:
        """Tell the progress how many items of a part that has ended are done, if it does not know yet."""
        if self._progress is None:
            return
        with self._lock:
            done = part.count if part.values is None else len(part.values)
            more, part.counted = done - part.counted, done
        if more:
            self._progress.advance(more)

    def settle(self, part: Part, timeout: float | None = None) -> None:
        """Wait for a part, and take its outcome apart: once, whoever comes first.

        Raises TimeoutError when it has not ended in time. What else went wrong is the failure of its items.
        """
        future = part.future
        if future._state is RUNNING and future.await_end(timeout) is RUNNING:
            raise FutureTimeoutError(f"item {part.first} (the first is 0) has not finished in time")
        with self._lock:
            if part.values is None:
                self._settle(part)
                part.items = None
        self._count(part)

    def _settle(self, part: Part) -> None:
        future = part.future
        try:
            error = future.exception()
        except CancelledError as cancelled:
            error = cancelled
        if error is not None:
            if part.count > 1 and isinstance(error, (ProcessorDiedError, WorkerDiedError)):
                part.values = []
                self._again(part, 1)
            else:
                part.values, part.failures = [None] * part.count, dict.fromkeys(range(part.count), error)
            return
        if part.count == 1:
            part.values = [future.result()]
            return
        outcome = ChunkOutcome(*future.result())
        values = part.values = outcome.values
        part.failures = {at: payloads.load_failure(data) for at, data in outcome.failures.items()}
        for at in outcome.pickled:
            try:
                values[at] = payloads.load_value(values[at])
            except Exception as problem:
                failed = payloads.loading_failed(f"the value of item {part.first + at}", problem)
                failed.__cause__ = problem
                values[at], part.failures[at] = None, failed
        self.sizer.note(len(values), outcome.total_ns, outcome.squares_ns2, outcome.longest_ns)
        if len(values) < part.count:
            self._again(part, self.sizer.size())

    def _again(self, part: Part, size: int) -> None:
        """Send what a part did not get to."""
        assert part.values is not None
        assert part.items is not None
        begin = len(part.values)
        if self._closed:
            return
        try:
            for at in range(begin, part.count, size):
                part.rest += self._group(part.first + at, part.items[at : at + size], size)
            for later in part.rest:
                self._enqueue(later)
        except Exception as error:  # it was serialised before, but has changed; or the client is closed
            part.rest = []
            part.values += [None] * (part.count - begin)
            part.failures.update(dict.fromkeys(range(begin, part.count), error))

    def collect_first(self, part: Part, left: Callable[[], float | None]) -> list[Any]:
        """The values of a part up to its first failure, without what it left over; the part forgets them."""
        self.settle(part, left())
        assert part.values is not None
        values, part.values = part.values, []
        del values[min(part.failures, default=len(values)) :]
        return values

    def collect(self, part: Part, left: Callable[[], float | None]) -> list[Any]:
        """The values of a part, waiting for at most `left()` seconds; raises the first exception in it."""
        if part.count == 1 and part.values is None:
            value = part.future.result(left())
            self._count(part)
            return [value]
        self.settle(part, left())
        assert part.values is not None
        if part.failures:
            raise part.failures[min(part.failures)]
        values = part.values
        for later in part.rest:
            values += self.collect(later, left)
        return values

    def close(self, parts: Iterable[Part]) -> None:
        """Nothing more is wanted: what has not ended is cancelled, without waiting for the answer."""
        with self._lock:
            self._closed = self.probing.closed = True
            unfinished: list[Future] = []
            pending: list[Part] = []
            while True:
                try:
                    pending += parts
                    break
                except RuntimeError:  # another thread has just changed them
                    pending.clear()
            while pending:
                part = pending.pop()
                pending += part.rest
                if part.future._state is RUNNING:
                    unfinished.append(part.future)
        if unfinished and self._session.refusal is None:
            self._session.cancel(unfinished)


def _named(at: int, error: SerializationError | TypeError) -> SerializationError | TypeError:
    return type(error)(f"item {at} (the first is 0): {error}")
