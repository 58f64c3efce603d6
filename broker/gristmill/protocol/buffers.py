"""What stands in front of a pickle that does not stand alone: the buffers of a value, or the objects that a call names.

A pickle begins with the byte 0x80. Two other forms are told by their first byte:

    WITH_BUFFERS   a pickle whose large buffers (protocol 5) lie behind it, each at a multiple of 64 bytes, so that
                   arrays use them where they are, be it in a file that is mapped or in what was received
    WITH_OBJECTS   ids of objects, and a pickle in which `(kind, index)` stands for a **leaf**: a large argument that is
                   an object of its own. The ids are not in the pickle itself, since they change when Redis loses data.
    WITH_SERIALIZER  the same; the first of these objects is the user's serializer, by which the arguments and the value
                   are serialised
    CUSTOM         no pickle: what the user's serializer made of a value
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import Any, NamedTuple

PICKLE = 0x80
WITH_BUFFERS = 0x01
WITH_OBJECTS = 0x02
WITH_SERIALIZER = 0x03
CUSTOM = 0x04

LEAF_BYTES = 64 * 1024
"""From this size on an argument (bytes, bytearray, text, a buffer of an array) is an object of its own."""
BUFFER_BYTES = 16 * 1024
"""From this mean size on the buffers of a value lie beside its pickle."""
ALIGNMENT = 64
MOST_LEAVES = 200
"""A call has at most so many leaves; what is large beyond them stays in its pickle."""
NAME_BYTES = 40
"""What naming an object takes."""
LONGEST_HEAD = MOST_LEAVES * 220 + 2

Buffer = bytes | bytearray | memoryview

# Kinds of leaf: what the bytes of the object become.
BYTES, BYTEARRAY, TEXT, WRITABLE, READ_ONLY, VALUE = "b", "a", "t", "w", "r", "v"

_HEAD = struct.Struct("<BxxxI")
_LENGTH = struct.Struct("<Q")


def join(pickled: bytes, buffers: Sequence[Buffer]) -> list[Buffer]:
    """The pieces of a pickle with its buffers behind it."""
    lengths = [len(pickled), *map(len, buffers)]
    head = _HEAD.pack(WITH_BUFFERS, len(buffers)) + b"".join(map(_LENGTH.pack, lengths))
    pieces: list[Buffer] = [head, pickled]
    end = len(head) + len(pickled)
    for buffer in buffers:
        gap = -end % ALIGNMENT
        pieces += [bytes(gap), buffer]
        end += gap + len(buffer)
    return pieces


def split(data: Buffer) -> tuple[memoryview, list[memoryview]]:
    """The pickle and the buffers of what `join` gave; they share the memory of `data`."""
    view = memoryview(data)
    _, count = _HEAD.unpack_from(view)
    lengths = [_LENGTH.unpack_from(view, _HEAD.size + _LENGTH.size * at)[0] for at in range(count + 1)]
    end = _HEAD.size + _LENGTH.size * (count + 1)
    pickled = view[end : end + lengths[0]]
    end += lengths[0]
    buffers = []
    for length in lengths[1:]:
        end += -end % ALIGNMENT
        buffers.append(view[end : end + length])
        end += length
    return pickled, buffers


def load(data: Buffer) -> Any:
    """The value of a pickle, with or without buffers; raises what loading raises."""
    if data[0] != WITH_BUFFERS:
        return pickle.loads(data)
    pickled, buffers = split(data)
    return pickle.loads(pickled, buffers=buffers)


class Named(NamedTuple):
    """An object that a call or function names."""

    object_id: str
    size: int
    """Bytes."""


def with_objects(named: Iterable[Named], pickled: bytes, form: int = WITH_OBJECTS) -> bytes:
    """A pickle with the objects that its leaves stand for."""
    words = " ".join(f"{object_id}:{size}" for object_id, size in named)
    return b"%c%b\n%b" % (form, words.encode(), pickled)


def split_objects(data: Buffer) -> tuple[list[Named], Buffer]:
    """The objects and the pickle of what `with_objects` gave; no objects when it is a pickle alone."""
    if not data or data[0] not in (WITH_OBJECTS, WITH_SERIALIZER):
        return [], data
    head, _, _ = bytes(data[1:LONGEST_HEAD]).partition(b"\n")
    words = [word.rpartition(":") for word in head.decode().split()]
    return [Named(object_id, int(size)) for object_id, _, size in words], memoryview(data)[len(head) + 2 :]


class Serialized:
    """An argument as the user's serializer has made it."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[type[Serialized], tuple[bytes]]:
        return (Serialized, (self.data,))


class Leaves:
    """The leaves of one load: each becomes one object, however often it is mentioned."""

    def __init__(self, read: Callable[[int, str], Any]) -> None:
        """`read(index, kind)` gives what the leaf of that index stands for."""
        self._read = read
        self._loaded: dict[tuple[str, int], Any] = {}

    def load(self, kind: str, index: int) -> Any:
        """What stands for `(kind, index)`."""
        if (kind, index) not in self._loaded:
            self._loaded[kind, index] = self._read(index, kind)
        return self._loaded[kind, index]


def leaf_from(kind: str, view: memoryview) -> Any:
    """What a leaf of this kind is, made from its bytes (writable ones: nobody else sees them change)."""
    if kind == WRITABLE:
        return view
    if kind == READ_ONLY:
        return view.toreadonly()
    if kind == BYTES:
        return bytes(view)
    if kind == BYTEARRAY:
        return bytearray(view)
    if kind == TEXT:
        return str(view, "utf-8", "surrogatepass")
    if kind == VALUE:
        return load(view) if view[0] != CUSTOM else Serialized(bytes(view[1:]))
    raise pickle.UnpicklingError(f"expected a kind of leaf; got {kind!r}")


class LeafUnpickler(pickle.Unpickler):
    """Puts what is not in the pickle into its places: values of dependencies, and leaves."""

    def __init__(self, data: Buffer, value_of: Callable[[str], Any], leaves: Leaves | None) -> None:
        super().__init__(BytesIO(data))
        self._value_of = value_of
        self._leaves = leaves

    def persistent_load(self, pid: Any) -> Any:
        """`("task", id)`, or the id alone; or `(kind of leaf, index)`."""
        if type(pid) is str:
            return self._value_of(pid)
        kind, which = pid
        if kind == "task":
            return self._value_of(which)
        if self._leaves is None:
            raise pickle.UnpicklingError("expected a pickle that stands alone; got one that names other objects")
        return self._leaves.load(kind, which)
