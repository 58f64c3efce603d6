"""A call becomes bytes: plain arguments by pickle alone, others by cloudpickle.

Futures in it become dependencies, large arguments become objects of their own (`leaves`).
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gristmill.client.future import RUNNING, Future
from gristmill.client.leaves import KINDS, Cut, Leaf, Leaves
from gristmill.client.loading import value_bytes
from gristmill.client.references import ObjectReference
from gristmill.client.serializing import DependencyFailedError, SerializerLeaf
from gristmill.errors import MissingObjectError, SerializationError
from gristmill.protocol import payloads
from gristmill.protocol.buffers import (
    CUSTOM,
    LEAF_BYTES,
    NAME_BYTES,
    WITH_OBJECTS,
    WITH_SERIALIZER,
    Named,
    Serialized,
    with_objects,
)
from gristmill.protocol.kinds import INLINE_BYTES

if TYPE_CHECKING:
    from gristmill.client.session import Session

PLAIN_TYPES = frozenset({int, float, complex, bool, str, bytes, type(None)})
_SIZED = frozenset({str, bytes})
PLAIN_PROTOCOL = 3
"""Without the frames of later protocols: 20 characters instead of 28 for `f(1)`, which Redis writes four times."""
_SEQUENCES = frozenset({list, tuple, set, frozenset})


class Beside(NamedTuple):
    """What a call has beside its bytes."""

    dependencies: tuple[Future, ...]
    """The unfinished futures in it."""
    leaves: tuple[Leaf, ...]
    """The objects that it names, in the order of their indices."""


class LargeCall:
    """A call that travels as an object, or names objects.

    Its bytes go once Redis has them; the arguments stay, so that they can be serialised again if Redis loses them.
    """

    __slots__ = ("args", "checksum", "data", "keep", "kwargs", "leaves", "object_id", "object_size", "size")

    def __init__(
        self,
        data: bytes,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        keep: bool = False,
        leaves: tuple[Leaf, ...] = (),
    ) -> None:
        self.data: bytes | None = data
        self.leaves = leaves
        self.size = len(data) + NAME_BYTES * len(leaves)
        self.keep = keep or self.is_inline
        """Whether the bytes must stay: with futures in it, the call would not give the same bytes again."""
        self.checksum = zlib.crc32(data)
        self.args = args
        self.kwargs = kwargs
        self.object_id = ""
        self.object_size = 0

    @property
    def is_inline(self) -> bool:
        """Whether it travels inside the message: only what it names is large."""
        return self.size <= INLINE_BYTES

    @property
    def ids(self) -> list[str]:
        """The ids of the objects that it names, once they are uploaded."""
        return [leaf.object_id for leaf in self.leaves]

    def bytes_again(self, session: Session) -> bytes | None:
        """The bytes, serialised again if need be; None when the arguments have changed since."""
        if self.data is not None:
            return self.data
        try:
            data, beside = dump_call(session, "the task", self.args, self.kwargs)
        except Exception:  # it cannot be serialised any more
            return None
        if zlib.crc32(data) != self.checksum or (beside.leaves if beside else ()) != self.leaves:
            return None
        return data

    def with_ids(self, data: bytes) -> bytes:
        """The bytes as they travel: the ids of the objects in front."""
        if not self.leaves:
            return data
        form = WITH_SERIALIZER if isinstance(self.leaves[0], SerializerLeaf) else WITH_OBJECTS
        return with_objects(map(named, self.leaves), data, form)


def named(leaf: Leaf) -> Named:
    """How a call names its object, once it is uploaded."""
    return Named(leaf.object_id, leaf.size)


def is_plain(values: Iterable[Any]) -> bool:
    """Whether pickle alone gives the right bytes: numbers, text and shallow containers of them, none of them large."""
    for value in values:
        kind = type(value)
        if kind in PLAIN_TYPES:
            if kind in _SIZED and len(value) >= LEAF_BYTES:
                return False
            continue
        if kind in _SEQUENCES:
            if not PLAIN_TYPES.issuperset(map(type, value)):
                return False
        elif kind is dict:
            if not (PLAIN_TYPES.issuperset(map(type, value)) and PLAIN_TYPES.issuperset(map(type, value.values()))):
                return False
        else:
            return False
    return True


def dump_call(
    session: Session, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, whole: bool = False
) -> tuple[bytes, Beside | None]:
    """The bytes of a call, and what it has beside them, if anything.

    `whole`: large arguments that may have changed are looked at whole. Raises SerializationError naming the argument
    that cannot be serialised, and DependencyFailedError.
    """
    if session.serializer is not None:
        args, kwargs = session.serializer.arguments(session, name, args, kwargs)
        return _dump(session, (args, kwargs), whole=whole, first=session.serializer.leaf)
    if is_plain(args) and (not kwargs or is_plain(kwargs.values())):
        try:
            data = pickle.dumps((args, kwargs), PLAIN_PROTOCOL)
        except OverflowError:  # bytes or text of more than 4 GiB
            pass
        else:
            if len(data) < LEAF_BYTES:
                return data, None
    try:
        return _dump(session, (args, kwargs), whole=whole)
    except (DependencyFailedError, MissingObjectError):
        raise
    except Exception as error:
        raise _naming_the_argument(session, name, args, kwargs, error) from error


def _dump(
    session: Session, value: Any, *, whole: bool = False, first: Leaf | None = None
) -> tuple[bytes, Beside | None]:
    buffer = io.BytesIO()
    cut = Cut(session.outbox.leaves, whole=whole)
    if first is not None:
        cut.add(first)
    pickler = _pickler_class()(buffer, session, cut)
    pickler.dump(value)
    if not pickler.dependencies and not cut.found:
        return buffer.getvalue(), None
    return buffer.getvalue(), Beside(tuple(pickler.dependencies.values()), tuple(cut.found))


@lru_cache(maxsize=1)
def _pickler_class() -> Callable[[io.BytesIO, Session, Cut], Any]:
    """cloudpickle's pickler, taught about futures and leaves; made when first needed, since it imports cloudpickle."""
    from gristmill.protocol.pickler import pickler

    special = KINDS | {Future, ObjectReference}

    class CallPickler(pickler()):  # type: ignore[misc]  # cloudpickle has no types
        def __init__(self, buffer: io.BytesIO, session: Session, cut: Cut) -> None:
            super().__init__(buffer, protocol=payloads.PICKLE_PROTOCOL)
            self._session = session
            self._cut = cut
            self.dependencies: dict[str, Future] = {}

        def persistent_id(self, value: Any) -> Any:
            # Asked for every object: the first comparison must be the cheap one.
            kind = type(value)
            if kind not in special:
                return None
            if kind in KINDS:
                return self._cut.persistent_id(value)
            if kind is ObjectReference:
                return self._cut.add(value.leaf)
            session = value._session
            if session is None or value._state is not RUNNING or value._id:
                return None
            if session is not self._session and not (self._session.shares_tasks_with(session) and session.flush(None)):
                return None
            # Another client's is in Redis by now: the batch that brings it is known.
            self.dependencies[value.task_id] = value
            return ("task", value.task_id)

        def reducer_override(self, value: Any) -> Any:
            if type(value) is Future:
                data = _value_bytes(value)
                if data[0] == CUSTOM:  # it was done just now
                    return (Serialized, (bytes(data[1:]),))
                return (payloads.load_value, (data,))
            return super().reducer_override(value)

    return CallPickler


def dump_function(
    leaves: Leaves, function: Callable[..., Any], *, whole: bool = False
) -> tuple[bytes, tuple[Leaf, ...]]:
    """The bytes of a function that travels by value, and the objects that it names."""
    buffer = io.BytesIO()
    cut = Cut(leaves, whole=whole)
    _function_pickler()(buffer, cut).dump(function)
    return buffer.getvalue(), tuple(cut.found)


@lru_cache(maxsize=1)
def _function_pickler() -> Callable[[io.BytesIO, Cut], Any]:
    from gristmill.protocol.pickler import pickler

    special = KINDS | {ObjectReference}

    class FunctionPickler(pickler()):  # type: ignore[misc]  # cloudpickle has no types
        def __init__(self, buffer: io.BytesIO, cut: Cut) -> None:
            super().__init__(buffer, protocol=payloads.PICKLE_PROTOCOL)
            self._cut = cut

        def persistent_id(self, value: Any) -> Any:
            kind = type(value)
            if kind not in special:
                return None
            return self._cut.persistent_id(value) if kind in KINDS else self._cut.add(value.leaf)

    return FunctionPickler


def _value_bytes(future: Future) -> bytes | bytearray:
    """The value of a future that is not a dependency: it is done, or another installation's and then waited for."""
    try:
        if future.exception() is None:
            return value_bytes(future)
    except CancelledError:
        pass
    raise DependencyFailedError(future)


def _naming_the_argument(
    session: Session, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> SerializationError:
    """The error that says which argument it was, found by trying each alone."""
    named = [(f"positional argument {at}", value) for at, value in enumerate(args, 1)]
    named += [(f"keyword argument {key!r}", value) for key, value in kwargs.items()]
    what = f"the arguments of {name}"
    for label, value in named:
        try:
            _dump(session, value)
        except DependencyFailedError:
            raise
        except Exception as alone:
            what, error = f"{label} of {name}, of type {payloads.qualified_name(type(value))},", alone
            break
    if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
        return SerializationError(f"{what} cannot be serialised: it is nested too deeply for pickle (RecursionError)")
    if isinstance(error, SerializationError):
        return SerializationError(f"{what} cannot be serialised: {error}")
    return SerializationError(
        f"{what} cannot be serialised: {type(error).__name__}: {payloads.text_of_exception(error)}"
    )


def call_with_values(call: bytes, dependencies: Iterable[Future]) -> bytes:
    """The bytes of a call that is sent again with the values of its dependencies, which are all done, in it."""
    values = {future.task_id: bytes(value_bytes(future)) for future in dependencies}
    return pickle.dumps(payloads.CallWithValues(call, values), payloads.PICKLE_PROTOCOL)
