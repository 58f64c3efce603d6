"""Which items of a map travel together, and the tasks that carry them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gristmill.client.chunking import CHUNK_BYTES, Sizer
from gristmill.client.functions import check_call
from gristmill.client.future import Future
from gristmill.client.parts import Part
from gristmill.client.serializer import LargeCall, dump_call
from gristmill.client.serializing import DependencyFailedError
from gristmill.errors import SerializationError
from gristmill.protocol import payloads
from gristmill.protocol.chunks import columns_of, dump_calls, dump_columns
from gristmill.protocol.kinds import INLINE_BYTES

if TYPE_CHECKING:
    from gristmill.client.calls import Calls

ITEM_BYTES = 2048
"""An item whose call is larger travels alone."""
LARGEST_CHUNK_BYTES = 64 * 1024


class Grouping:
    """Makes the parts of one map; sends nothing.

    Args:
        calls: the client, or the view of it, that the tasks belong to.
        function: what is called.
        sizer: is told how long calls are.
    """

    def __init__(self, calls: Calls, function: Callable[..., Any], sizer: Sizer) -> None:
        self._calls = calls
        self._session = calls._session
        self._function = function
        functions = calls._session.outbox.functions
        self._called = functions.get_whole(function) if calls._reserialize else functions.get(function)
        self._options: Mapping[str, Any] = calls._options or {}
        self._sizer = sizer

    def parts(self, first: int, items: list[tuple[Any, ...]], size: int) -> list[Part]:
        """Parts of these items, of which `first` is the position in the source, with at most `size` items each.

        Raises SerializationError or TypeError naming the item that cannot be sent.
        """
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
        self._sizer.note_bytes(len(items), len(data))
        if len(data) > (LARGEST_CHUNK_BYTES if self._sizer.fixed else max(CHUNK_BYTES, 2 * ITEM_BYTES)):
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
        self._sizer.note_bytes(1, len(call))
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
        return Part(first, items, future)


def _named(at: int, error: SerializationError | TypeError) -> SerializationError | TypeError:
    return type(error)(f"item {at} (the first is 0): {error}")
