"""Large arguments: each is an object of its own, uploaded once however many tasks use it.

A leaf is found again by the identity of what it was made of: submitting the same array a thousand times hashes and
uploads it once. Text and bytes cannot change. What can is looked at with each use, whole up to `WHOLE_BYTES`, beyond
that in samples, which show that an array was filled anew but not that one number of it was: after such a change say
`reserialize=True`, and it is looked at whole. Equal content of different arguments is uploaded once too.

A leaf lives as long as a task or a function uses it, and as long as the program holds what it was made of: the
newest leaves are kept meanwhile. Then Redis is told to free the object. As long as a leaf lives its original does, so
that it can be uploaded again when Redis loses its data.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from gristmill.protocol.buffers import (
    BYTEARRAY,
    BYTES,
    LEAF_BYTES,
    MOST_LEAVES,
    READ_ONLY,
    TEXT,
    VALUE,
    WRITABLE,
    Buffer,
)

WHOLE_BYTES = 4 << 20
SAMPLES = 256
SAMPLE_BYTES = 512
RECENT_LEAVES = 64
RECENT_BYTES = 1 << 30
"""The newest leaves are kept, up to these bytes, while the program holds their originals."""
OUR_REFERENCES = 2
"""What `sys.getrefcount` says of an original that only its leaf holds."""

Released = deque[tuple[str, int, int]]


class Leaf:
    """One large argument, and what the session knows about its object."""

    __slots__ = (
        "__weakref__",
        "digest",
        "last_batch",
        "object_id",
        "original",
        "released",
        "sample",
        "size",
        "uploaded",
    )

    def __init__(self, original: Any, size: int, released: Released) -> None:
        self.original = original
        """Bytes, a bytearray, text, or what exports the buffer."""
        self.size = size
        """Bytes of the object."""
        self.digest = b""
        """SHA-256 of the content that was uploaded; empty before, and of what cannot change."""
        self.sample = 0
        self.released = released
        """Where ids go that Redis may free, with the last batch that named them and the registration."""
        self.object_id = ""
        self.uploaded = 0
        """The registration in which it was uploaded."""
        self.last_batch = 0

    def __del__(self) -> None:
        if self.object_id:
            self.released.append((self.object_id, self.last_batch, self.uploaded))

    @property
    def may_change(self) -> bool:
        """Whether the original may have another content some day."""
        return not isinstance(self.original, (bytes, str))

    def contents(self) -> list[Buffer]:
        """The bytes, in pieces."""
        return [view_of(self.original)]

    def is_unchanged(self) -> bool:
        """Whether the content is what it was when it was uploaded, looked at whole."""
        return not self.digest or digest_of(self.contents()) == self.digest


class Reference(Leaf):
    """The object of `Client.send_object`: any value, as `dump` makes bytes of it."""

    __slots__ = ("_dump", "_pieces")

    def __init__(self, value: Any, dump: Callable[[Any], list[Buffer]], released: Released) -> None:
        super().__init__(value, 0, released)
        self._dump = dump
        self._pieces: list[Buffer] | None = dump(value)
        self.size = sum(map(len, self._pieces))

    def contents(self) -> list[Buffer]:
        """The bytes, made anew but for the first time."""
        pieces, self._pieces = self._pieces, None
        return pieces if pieces is not None else self._dump(self.original)


def digest_of(pieces: list[Buffer]) -> bytes:
    """SHA-256 of the bytes."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.digest()


def view_of(original: Any) -> memoryview:
    """The content of an original, as bytes."""
    if isinstance(original, str):
        return memoryview(original.encode("utf-8", "surrogatepass"))
    if isinstance(original, (bytes, bytearray)):
        return memoryview(original)
    return pickle.PickleBuffer(original).raw()


def sample_of(view: memoryview) -> int:
    """A checksum of the content: of all of it, or of samples when it is long."""
    size = len(view)
    if size <= WHOLE_BYTES:
        return zlib.crc32(view)
    checksum = 0
    for number in range(SAMPLES):
        begin = (size - SAMPLE_BYTES) * number // (SAMPLES - 1)
        checksum = zlib.crc32(view[begin : begin + SAMPLE_BYTES], checksum)
    return checksum


class Leaves:
    """The leaves of one client, by identity and by content. Any thread may use it."""

    def __init__(self, released: Released) -> None:
        self._released = released
        self._lock = threading.Lock()
        self._by_identity: weakref.WeakValueDictionary[int, Leaf] = weakref.WeakValueDictionary()
        """By id of the original, which the leaf keeps alive."""
        self._recent: deque[Leaf] = deque()

    def get(self, original: Any, view: memoryview | None, *, whole: bool) -> Leaf:
        """The leaf of an original; without a view it cannot change. `whole`: look at all of it."""
        leaf = self._by_identity.get(id(original))
        if leaf is not None and leaf.original is original:
            if view is None:
                return leaf
            if leaf.size == len(view) and sample_of(view) == leaf.sample and (not whole or leaf.is_unchanged()):
                return leaf
            self._forget(leaf)
        return self._equal(original, view) or self._new(original, view)

    def _equal(self, original: Any, view: memoryview | None) -> Leaf | None:
        """One of the newest leaves, with the same content, whose original still has it."""
        size = len(view if view is not None else view_of(original))
        with self._lock:
            same_size = [leaf for leaf in self._recent if leaf.size == size]
        return next((leaf for leaf in same_size if _has_content(leaf, original, view)), None)

    def _new(self, original: Any, view: memoryview | None) -> Leaf:
        leaf = Leaf(original, len(view if view is not None else view_of(original)), self._released)
        if view is not None:
            leaf.sample = sample_of(view)
        with self._lock:
            self._by_identity[id(original)] = leaf
            recent = self._recent
            recent.append(leaf)
            while len(recent) > RECENT_LEAVES or (len(recent) > 1 and sum(kept.size for kept in recent) > RECENT_BYTES):
                recent.popleft()
        return leaf

    def _forget(self, leaf: Leaf) -> None:
        with self._lock:
            if leaf in self._recent:
                self._recent.remove(leaf)

    def drop_unused(self) -> None:
        """Let go of what the program does not hold any more."""
        with self._lock:
            for leaf in tuple(self._recent):
                if sys.getrefcount(leaf.original) <= OUR_REFERENCES:
                    self._recent.remove(leaf)

    def clear(self) -> None:
        """Keep nothing that no task uses."""
        with self._lock:
            self._recent.clear()
            self._by_identity.clear()

    @property
    def kept(self) -> bool:
        """Whether something may be let go of."""
        return bool(self._recent)


def _has_content(leaf: Leaf, original: Any, view: memoryview | None) -> bool:
    """Whether a leaf of the same size has the content of an original; contents that differ show it soon."""
    if type(leaf.original) is type(original) and view is None:
        return bool(leaf.original == original)
    if isinstance(leaf, Reference):
        return False
    if view is None:
        view = view_of(original)
    (content,) = leaf.contents()
    return sample_of(memoryview(content)) == sample_of(view) and digest_of([content]) == leaf.digest == digest_of(
        [view]
    )


class Cut:
    """The leaves that one pickle is cut into."""

    def __init__(self, leaves: Leaves, *, whole: bool) -> None:
        self._leaves = leaves
        self._whole = whole
        self.found: list[Leaf] = []
        self._index: dict[Leaf, int] = {}

    def __iter__(self) -> Iterator[Leaf]:
        return iter(self.found)

    def persistent_id(self, value: Any) -> tuple[str, int] | None:
        """`(kind, index)` for a large value of one of `KINDS`; None for a small one."""
        kind = type(value)
        if kind is pickle.PickleBuffer:
            return self._of_buffer(value)
        if len(value) < LEAF_BYTES or len(self.found) >= MOST_LEAVES:
            return None
        if kind is bytes:
            return BYTES, self._at(self._leaves.get(value, None, whole=False))
        if kind is str:
            return TEXT, self._at(self._leaves.get(value, None, whole=False))
        return BYTEARRAY, self._at(self._leaves.get(value, memoryview(value), whole=self._whole))

    def _of_buffer(self, value: pickle.PickleBuffer) -> tuple[str, int] | None:
        try:
            view = value.raw()
        except BufferError:  # not contiguous
            return None
        if len(view) < LEAF_BYTES or len(self.found) >= MOST_LEAVES:
            return None
        kind = READ_ONLY if view.readonly else WRITABLE
        original = memoryview(value).obj
        return kind, self._at(self._leaves.get(original, view, whole=self._whole))

    def add(self, leaf: Leaf) -> tuple[str, int]:
        """The pid of an object that was sent before."""
        return VALUE, self._at(leaf)

    def _at(self, leaf: Leaf) -> int:
        at = self._index.get(leaf)
        if at is None:
            at = self._index[leaf] = len(self.found)
            self.found.append(leaf)
        return at


KINDS = frozenset({bytes, bytearray, str, pickle.PickleBuffer})
"""Types whose values may be leaves."""
