"""A call becomes bytes: plain arguments by pickle alone, others by cloudpickle; futures in it become dependencies."""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gristmill.client.future import RUNNING, Future
from gristmill.errors import SerializationError
from gristmill.protocol import payloads

if TYPE_CHECKING:
    from gristmill.client.session import Session

PLAIN_TYPES = frozenset({int, float, complex, bool, str, bytes, type(None)})
PLAIN_PROTOCOL = 3
"""Without the frames of later protocols: 20 characters instead of 28 for `f(1)`, which Redis writes four times."""
_SEQUENCES = frozenset({list, tuple, set, frozenset})


class DependencyFailedError(Exception):
    """A future among the arguments is done and has no value: the task that should use it has its fate."""

    def __init__(self, future: Future) -> None:
        super().__init__(future)
        self.future = future


class LargeCall:
    """A call that travels as an object.

    Its bytes go once Redis has them; the arguments stay, so that they can be serialised again if Redis loses them.
    """

    __slots__ = ("args", "checksum", "data", "keep", "kwargs", "object_id", "size")

    def __init__(self, data: bytes, args: tuple[Any, ...], kwargs: dict[str, Any], *, keep: bool) -> None:
        self.data: bytes | None = data
        self.keep = keep
        """Whether the bytes must stay: with futures in it, the call would not give the same bytes again."""
        self.size = len(data)
        self.checksum = zlib.crc32(data)
        self.args = args
        self.kwargs = kwargs
        self.object_id = ""

    def bytes_again(self, session: Session) -> bytes | None:
        """The bytes, serialised again if need be; None when the arguments have changed since."""
        if self.data is not None:
            return self.data
        try:
            data, _ = dump_call(session, "", self.args, self.kwargs)
        except Exception:  # it cannot be serialised any more
            return None
        if len(data) != self.size or zlib.crc32(data) != self.checksum:
            return None
        return data


def is_plain(values: Iterable[Any]) -> bool:
    """Whether pickle alone gives the right bytes: numbers, text and shallow containers of them."""
    for value in values:
        kind = type(value)
        if kind in PLAIN_TYPES:
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
    session: Session, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bytes, tuple[Future, ...]]:
    """The bytes of a call, and the unfinished futures in it.

    Raises SerializationError naming the argument that cannot be serialised, and DependencyFailedError.
    """
    if is_plain(args) and (not kwargs or is_plain(kwargs.values())):
        try:
            return pickle.dumps((args, kwargs), PLAIN_PROTOCOL), ()
        except OverflowError:  # bytes or text of more than 4 GiB
            pass
    try:
        return _dump(session, (args, kwargs))
    except DependencyFailedError:
        raise
    except Exception as error:
        raise _naming_the_argument(session, name, args, kwargs, error) from error


def _dump(session: Session, value: Any) -> tuple[bytes, tuple[Future, ...]]:
    buffer = io.BytesIO()
    pickler = _pickler_class()(buffer, session)
    pickler.dump(value)
    return buffer.getvalue(), tuple(pickler.dependencies.values())


@lru_cache(maxsize=1)
def _pickler_class() -> Callable[[io.BytesIO, Session], Any]:
    """cloudpickle's pickler, taught about futures; made when first needed, since it imports cloudpickle."""
    from gristmill.protocol.pickler import pickler

    class CallPickler(pickler()):  # type: ignore[misc]  # cloudpickle has no types
        def __init__(self, buffer: io.BytesIO, session: Session) -> None:
            super().__init__(buffer, protocol=payloads.PICKLE_PROTOCOL)
            self._session = session
            self.dependencies: dict[int, Future] = {}

        def persistent_id(self, value: Any) -> Any:
            # Asked for every object: the first comparison must be the cheap one.
            if type(value) is Future and value._session is self._session and value._state is RUNNING:
                self.dependencies[value._number] = value
                return ("task", value.task_id)
            return None

        def reducer_override(self, value: Any) -> Any:
            if type(value) is Future:
                return (payloads.load_value, (_value_bytes(value),))
            return super().reducer_override(value)

    return CallPickler


def _value_bytes(future: Future) -> bytes:
    """The value of a future that is not a dependency: it is done, or another client's and then waited for."""
    try:
        if future.exception() is None:
            return future._value_bytes()
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
    values = {future.task_id: future._value_bytes() for future in dependencies}
    return pickle.dumps(payloads.CallWithValues(call, values), payloads.PICKLE_PROTOCOL)
