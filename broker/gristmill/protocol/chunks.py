"""A chunk: one task that calls its function for many short items of a `map`, each with an outcome of its own.

- The **call** of a chunk holds its items: as columns (one list for each parameter) when all arguments are plain numbers
  and text, else as the pickled call of each item. Items never share an object that one of them could change.
- The **value** of a chunk says what came of the items that it ran. It may have run only the first of them: when an item
  took long, or their values are many bytes, it leaves the others to the client, which sends them anew.

A chunk is a task whose run options have `chunk`, the number of its items. Pure: nothing here sends or calls anything.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gristmill.protocol import payloads
from gristmill.protocol.buffers import Buffer

PLAIN_TYPES = frozenset({int, float, complex, bool, str, bytes, type(None)})
"""What cannot be changed, refers to nothing, and pickles alone."""

SLICE_NS = 20_000_000
"""A chunk starts no further item after so long: the others must not wait behind items that turned out long."""
VALUE_BYTES = 1 << 20
"""Nor when its values have become so many bytes."""

Call = tuple[tuple[Any, ...], dict[str, Any]]


class ChunkOutcome(NamedTuple):
    """What became of the items that a chunk has run: the first `len(values)` of its items."""

    values: list[Any]
    """The value of each item; None for one that failed."""
    failures: dict[int, bytes]
    """By position in the chunk: the bytes of a failure (`payloads.load_failure`)."""
    pickled: list[int]
    """Positions whose value is still pickled, in order."""
    total_ns: int
    """What the items took together."""
    squares_ns2: float
    """The sum of the squares of what each took."""
    longest_ns: int
    """What the longest of them took."""


def columns_of(items: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]] | None:
    """One column for each parameter; None unless all items have equally many arguments and all of them are plain."""
    try:
        columns = list(zip(*items, strict=True))
    except ValueError:
        return None
    if not columns or not all(PLAIN_TYPES.issuperset(map(type, column)) for column in columns):
        return None
    return columns


def dump_columns(columns: list[tuple[Any, ...]]) -> bytes:
    """The call of a chunk of plain items."""
    return pickle.dumps((columns, None), payloads.PICKLE_PROTOCOL)


def dump_calls(calls: list[bytes]) -> bytes:
    """The call of a chunk from the pickled call of each item."""
    return pickle.dumps((None, calls), payloads.PICKLE_PROTOCOL)


def load_items(data: Buffer) -> Iterator[Call | bytes]:
    """The items of a chunk: `(args, kwargs)`, or the bytes of it, to be loaded when its turn comes."""
    columns, calls = pickle.loads(data)
    if columns is None:
        return iter(calls)
    nothing: dict[str, Any] = {}
    return ((args, nothing) for args in zip(*columns, strict=True))


def dump_outcome(outcome: ChunkOutcome) -> bytes:
    """The value of a chunk."""
    return pickle.dumps(tuple(outcome), payloads.PICKLE_PROTOCOL)
