"""References: what `Client.send_object` returns, in whose place a task finds the value."""

from __future__ import annotations

from collections import deque
from typing import Any

from gristmill.client.leaves import Leaf
from gristmill.errors import MissingObjectError

BORROWED = -1
"""Stands for the registration of an object that another client has uploaded."""


class ObjectReference:
    """A value that was sent once and can be an argument of many tasks, at any depth; each finds the value in its place.

    It keeps the object in Redis as long as it lives, or a task uses it. Pickled, it stands for the same object as long
    as whoever sent it keeps it.

        table = client.send_object(load_table(), name="table")
        client.map(lookup, [table] * 100, range(100))
    """

    __slots__ = ("__weakref__", "_leaf", "name", "object_id", "size")

    def __init__(self, leaf: Leaf, name: str) -> None:
        self._leaf: Leaf | None = leaf
        self.name = name
        """For people; empty when none was given."""
        self.size = leaf.size
        """Bytes."""
        self.object_id = leaf.object_id
        """The id under which it was sent first."""

    @property
    def leaf(self) -> Leaf:
        """What it stands for; raises MissingObjectError after `Client.clear`."""
        if self._leaf is None:
            raise MissingObjectError(
                f"expected a reference to an object that is kept; got {self!r}, which was cleared; send it again"
            )
        return self._leaf

    def clear(self) -> None:
        """It stands for nothing any more."""
        self._leaf = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectReference) and other.object_id == self.object_id

    def __hash__(self) -> int:
        return hash(self.object_id)

    def __repr__(self) -> str:
        return f"<ObjectReference {self.name or self.object_id}: {self.size:,} bytes>"

    def __reduce__(self) -> Any:
        return (_borrow, (self.leaf.object_id, self.name, self.size))


class _Borrowed(Leaf):
    """An object that another client has uploaded."""

    __slots__ = ()

    def contents(self) -> list[Any]:
        """There is nothing to upload it from."""
        raise MissingObjectError(f"the object {self.object_id} is gone: only who sent it can send it again")


def _borrow(object_id: str, name: str, size: int) -> ObjectReference:
    leaf = _Borrowed(None, size, deque())
    leaf.object_id, leaf.uploaded = object_id, BORROWED
    return ObjectReference(leaf, name)
