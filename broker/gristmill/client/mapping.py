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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from itertools import islice
from typing import TYPE_CHECKING, Any

from gristmill.client.chunking import MOST_ITEMS, Sizer
from gristmill.client.future import RUNNING, Future
from gristmill.client.grouping import Grouping
from gristmill.client.inbox import LargeValue
from gristmill.client.parts import LARGEST_CHUNKSIZE, Chunksize, Part, check_chunksize
from gristmill.client.probing import Probing
from gristmill.errors import (
    ClientClosedError,
    GristmillError,
    MissingObjectError,
    ProcessorDiedError,
    WorkerDiedError,
)
from gristmill.protocol import payloads
from gristmill.protocol.chunks import SLICE_NS, VALUE_BYTES, ChunkOutcome

if TYPE_CHECKING:
    from gristmill.client.calls import Calls
    from gristmill.client.progress import Progress

SINGLES = 50
"""While items travel alone, so many are taken from the source at a time."""
LOOKED_AT = 64
"""So many parts are looked at, to see whether they have ended."""
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
        self._session = session
        self._items = items
        self._on_end = on_end
        self._progress = progress
        self._lock = threading.RLock()
        self._fetching = threading.RLock()
        self._closed = False
        self._unseen: deque[Part] = deque()
        """Parts not yet looked at by `_look`, in order."""
        self.open: set[Part] = set()
        """Chunks that nobody has taken apart, and what was left over and is not sent yet."""
        self._unsent: deque[Part] = deque()
        """What was left over and is not sent yet."""
        self.on_send: Callable[[Future], object] | None = None
        """Is told of each task that is sent, those for what was left over too."""
        self.probing = Probing(session, patient=patient, deadline=deadline)
        if session.serializer is not None or not _ALONE.isdisjoint(calls._options or {}):
            self.sizer = Sizer(1, fixed=True)
        elif chunksize == "auto":
            self.sizer = Sizer(most)
        else:
            self.sizer = Sizer(chunksize, fixed=True)
        self._grouping = Grouping(calls, function, self.sizer)

    # --- sending ------------------------------------------------------------------------------------------

    def send(self, most: int = LARGEST_CHUNKSIZE) -> list[Part]:
        """Take the next items, at most so many, and send them; nothing when the source is exhausted.

        Raises SerializationError or TypeError naming the item that cannot be sent, and what the source raises.
        """
        if self._closed:
            self.exhausted = True
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
        parts = self._parts(first, items, size)
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
            self._settle_early(part)
        elif not self.sizer.fixed and (row := part.future._row) is not None:
            took = row[4] * 1000
            self.sizer.note(1, took, float(took * took), took)

    def _parts(self, first: int, items: list[tuple[Any, ...]], size: int) -> list[Part]:
        parts = self._grouping.parts(first, items, size)
        singles_too = self._on_end is not None or self._progress is not None
        for part in parts:
            if singles_too or part.count > 1:
                part.future.watch(lambda _, part=part: self._ended(part))  # type: ignore[misc]
        return parts

    def _enqueue(self, part: Part) -> None:
        future = part.future
        if part.count > 1:
            self.open.add(part)
        try:
            if future._call is not None:
                self._session.enqueue(future)
            elif future._large is not None:
                self._session.enqueue_large(future)
        except BaseException:
            self.open.discard(part)
            raise
        if self.on_send is not None:
            self.on_send(future)
        if part.count == 1:
            self.open.discard(part)

    # --- what comes back ----------------------------------------------------------------------------------

    def _ended(self, part: Part) -> None:
        """A part's future is done (usually in the I/O thread): what it left over should not wait for its turn."""
        try:
            if part.count > 1:
                self._see_to_rest(part)
        finally:
            self._count(part)
            if self._on_end is not None:
                self._on_end(part)

    def _see_to_rest(self, part: Part) -> None:
        future = part.future
        row = future._row
        large = row[3] if row is not None and type(row[3]) is LargeValue else None
        short = future._failed or (row is not None and row[4] * 1000 > SLICE_NS // 2)
        if self._closed or not (short or (large is not None and large.size > VALUE_BYTES)):
            pass  # it has hardly left anything over: whoever asks for its values will see
        elif large is None:
            self._settle_early(part)
        else:  # fetching it takes time, and the outcomes of others should not wait
            self._session.callbacks.call(lambda: self._settle_early(part))

    def _settle_early(self, part: Part) -> None:
        """Send what a part that has ended left over; what is wrong with it, whoever asks for its values is told."""
        try:
            self.settle(part)
        except GristmillError:
            self.open.discard(part)

    def _count(self, part: Part) -> None:
        """Tell the progress how many items of a part that has ended are done, if it does not know yet."""
        if self._progress is None:
            return
        with self._lock:
            done = part.count if part.values is None else len(part.values)
            more, part.counted = done - part.counted, done
            if more:  # under the lock: who finds a part counted may show the final state next
                self._progress.advance(more)

    def settle(self, part: Part, timeout: float | None = None) -> None:
        """Wait for a part, and take its outcome apart: once, whoever comes first.

        Raises TimeoutError when it has not ended in time. What else went wrong is the failure of its items.
        """
        future = part.future
        if future._state is RUNNING and future.await_end(timeout) is RUNNING:
            raise FutureTimeoutError(f"item {part.first} (the first is 0) has not finished in time")
        error: BaseException | None = None
        if future.is_large:
            with self._fetching:  # whoever wants the other lock should not wait for that
                error = _error_of(future)
        elif part.values is None:
            error = _error_of(future)
        with self._lock:
            if part.values is None:
                self._settle(part, error)
                part.items = None
                self.open.update(part.rest)
                self._unsent.extend(part.rest)
                self.open.discard(part)
        self._send_rest()
        self._count(part)

    def _send_rest(self) -> None:
        """Send what was left over. Not under the lock: it may wait for room, until the I/O thread has made some, which
        wants the lock too.
        """
        while self._unsent:
            try:
                part = self._unsent.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                self._enqueue(part)
            except ClientClosedError:  # it has ended with the client
                pass

    def finish(self) -> None:
        """Wait for all chunks, and send what they left over, until nothing is left over any more."""
        while self.open:
            self._send_rest()
            for part in self.open.copy():
                part.future.await_end(None)
                self._settle_early(part)
                self.open.discard(part)

    def _settle(self, part: Part, error: BaseException | None) -> None:
        future = part.future
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
        """Make parts of what a part did not get to."""
        assert part.values is not None
        assert part.items is not None
        begin = len(part.values)
        failure: Exception = CancelledError()
        if not self._closed:
            try:
                for at in range(begin, part.count, size):
                    part.rest += self._parts(part.first + at, part.items[at : at + size], size)
                return
            except Exception as error:  # it was serialised before, but has changed
                part.rest = []
                failure = error
        part.values += [None] * (part.count - begin)
        part.failures.update(dict.fromkeys(range(begin, part.count), failure))

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


def _error_of(future: Future) -> BaseException | None:
    """Why a future that is done has no value; raises what may be over the next time."""
    try:
        return future.exception()
    except (CancelledError, MissingObjectError) as error:
        return error
