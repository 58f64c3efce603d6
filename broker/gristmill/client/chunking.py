"""How many items of a map travel together. Pure.

The size of a chunk follows from what items took lately. What counts is the size-biased mean, `E[x²] / E[x]`: the
duration of the item in which a random moment of work falls, which is what those behind it wait for. For items of even
length it is the mean. Of a chunk its longest item is left out, and of the latest samples the upper quartile counts: one
item that came while its processor was importing, or was pushed aside, says nothing about the others. A long item that
is met by surprise ends its chunk (`protocol.chunks`), so a wrong guess costs little.
"""

from __future__ import annotations

from collections import deque

TARGET_NS = 5_000_000
"""A chunk is to take about so long: little enough for balance, priorities and cancels."""
MOST_ITEMS = 800
CHUNK_BYTES = 4000
"""A chunk's call and its value should stay below what travels inside a message."""
SAMPLES = 16


class Sizer:
    """Decides the size of the next chunk."""

    def __init__(self, most: int, *, fixed: bool = False) -> None:
        self.most = most
        """Items in a chunk at most."""
        self.fixed = fixed
        """Every chunk has that many."""
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._bytes = 1.0
        self._size = most if fixed else 1

    @property
    def wants_to_know(self) -> bool:
        """Whether more measurements would make a difference: items travel alone, but perhaps only as the first ones
        took long, which came while their processors were importing.
        """
        return not self.fixed and self._size == 1 and len(self._samples) < SAMPLES

    def note(self, items: int, total_ns: int, squares_ns2: float, longest_ns: int) -> None:
        """So many items took so long together, with this sum of squares."""
        if items > 1:
            total_ns -= longest_ns
            squares_ns2 -= float(longest_ns) * longest_ns
        self._samples.append(max(squares_ns2, 0.0) / max(total_ns, 1))
        self._decide()

    def note_bytes(self, items: int, size: int) -> None:
        """The calls of so many items are so many bytes."""
        self._bytes = max(self._bytes * 0.9, size / items)
        self._decide()

    def size(self) -> int:
        """How many items the next chunk should have."""
        return self._size

    def _decide(self) -> None:
        if self.fixed or not self._samples:
            return
        typical = sorted(self._samples)[len(self._samples) * 3 // 4]
        self._size = max(1, min(self.most, int(TARGET_NS / max(typical, 1.0)), int(CHUNK_BYTES / self._bytes)))
