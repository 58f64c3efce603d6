"""Parts of a map: some items that follow each other, and the task that carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from gristmill.client.future import Future

LARGEST_CHUNKSIZE = 100_000
Chunksize = int | Literal["auto"]


class Part:
    """Some items that follow each other, and the task that carries them."""

    __slots__ = ("count", "counted", "failures", "first", "future", "items", "noted", "rest", "values")

    def __init__(self, first: int, items: list[tuple[Any, ...]], future: Future) -> None:
        self.first = first
        """The position of its first item in the source."""
        self.count = len(items)
        self.items: list[tuple[Any, ...]] | None = items
        """Kept while they may have to be sent again."""
        self.future = future
        self.values: list[Any] | None = None
        """What came of the first of them; None before that is known."""
        self.failures: dict[int, BaseException] = {}
        """By position in `values`."""
        self.rest: list[Part] = []
        """What it did not get to, sent again."""
        self.counted = 0
        """How many of its items the progress counts as done."""
        self.noted = False
        """Whether it was learned from it how long items take."""


def check_chunksize(chunksize: Chunksize) -> None:
    """Raise ValueError for what is neither "auto" nor a number of items."""
    if chunksize != "auto" and (
        not isinstance(chunksize, int) or isinstance(chunksize, bool) or not 1 <= chunksize <= LARGEST_CHUNKSIZE
    ):
        raise ValueError(
            f'expected chunksize to be "auto" or a whole number from 1 to {LARGEST_CHUNKSIZE:,}; got {chunksize!r}'
        )
