"""Serializers of the user's own, shipped to workers; and `send_object`, whose bytes they make too."""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from gristmill.client.future import RUNNING, Future
from gristmill.client.leaves import Reference
from gristmill.client.references import ObjectReference
from gristmill.errors import ResultSerializationError, SerializationError, SettingError
from gristmill.protocol import payloads
from gristmill.protocol.buffers import CUSTOM, Buffer, Serialized

if TYPE_CHECKING:
    from gristmill.client.session import Session


class Serializer:
    """How arguments and values become bytes and back: give `Client` a subclass, or anything with these two methods.

    Each argument and each value is serialised on its own. Futures and references are found when they are arguments
    themselves, not inside others. Functions and exceptions travel by pickle. The class travels to the workers, by
    value when it is of `__main__`. The methods may be static.

        class Json(Serializer):
            @staticmethod
            def serialize(value):
                return json.dumps(value).encode()

            @staticmethod
            def deserialize(data):
                return json.loads(data)

        client = Client(cluster, serializer=Json)
    """

    @staticmethod
    def serialize(value: Any) -> bytes:
        """The bytes of an argument or value; may raise anything, which is said as SerializationError."""
        return payloads.cloudpickle_dumps(value)

    @staticmethod
    def deserialize(data: bytes) -> Any:
        """What `serialize` was given; may raise anything, which is said as DeserializationError."""
        return payloads.load_value(data)


class Custom:
    """The serializer of one session, and its object in Redis."""

    def __init__(self, serializer: Any, released: deque[tuple[str, int, int]]) -> None:
        """Raises SettingError when it is none, SerializationError when it cannot travel."""
        for method in ("serialize", "deserialize"):
            if not callable(getattr(serializer, method, None)):
                raise SettingError(
                    f"expected a serializer with the methods serialize and deserialize; got {serializer!r}, which has "
                    f"no {method}; give Client a subclass of gristmill.Serializer"
                )
        try:
            self.leaf = SerializerLeaf(serializer, _travelling, released)
        except Exception as error:
            raise SerializationError(f"the serializer {serializer!r} cannot be serialised: {error}") from error
        self.serializer = serializer

    def arguments(
        self, session: Session, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call with each argument serialised; raises SerializationError naming the one that cannot be."""
        return (
            tuple(self._argument(session, f"positional argument {at} of {name}", v) for at, v in enumerate(args, 1)),
            {key: self._argument(session, f"keyword argument {key!r} of {name}", v) for key, v in kwargs.items()},
        )

    def _argument(self, session: Session, what: str, value: Any) -> Any:
        if type(value) is ObjectReference or (
            type(value) is Future and value._session is session and value._state is RUNNING and not value._id
        ):
            return value
        if type(value) is Future:
            value = value_of(value)
        return Serialized(self._bytes(what, value))

    def _bytes(self, what: str, value: Any) -> bytes:
        try:
            data = self.serializer.serialize(value)
            return bytes(memoryview(data))
        except Exception as error:
            raise SerializationError(
                f"{what}, of type {payloads.qualified_name(type(value))}, cannot be serialised by "
                f"{self.serializer!r}: {type(error).__name__}: {payloads.text_of_exception(error)}"
            ) from error

    def pieces(self, value: Any) -> list[Buffer]:
        """The bytes of a value that is sent on its own."""
        return [bytes((CUSTOM,)), self._bytes("the object", value)]


class SerializerLeaf(Reference):
    """The object of a serializer: the first of those that a call names."""

    __slots__ = ()


class DependencyFailedError(Exception):
    """A future among the arguments is done and has no value: the task that should use it has its fate."""

    def __init__(self, future: Future) -> None:
        super().__init__(future)
        self.future = future


def value_of(future: Future) -> Any:
    """The value of a future that is not a dependency: it is done, or another client's and then waited for."""
    try:
        if future.exception() is None:
            return future.result()
    except CancelledError:
        pass
    raise DependencyFailedError(future)


def _travelling(serializer: Any) -> list[Buffer]:
    return [payloads.cloudpickle_dumps(serializer)]


def send_object(session: Session, value: Any, name: str) -> ObjectReference:
    """Upload a value, and return the reference to it."""
    session.check_open()
    custom = session.serializer

    def dump(value: Any) -> list[Buffer]:
        if custom is not None:
            return custom.pieces(value)
        data = payloads.value_pieces(value)
        return [data] if isinstance(data, bytes) else data

    try:
        leaf = Reference(value, dump, session.outbox.functions.released)
    except ResultSerializationError as error:
        raise SerializationError(str(error).replace("the task's result", "the object")) from error.__cause__
    session.upload([leaf])
    reference = ObjectReference(leaf, name)
    session.references.add(reference)
    return reference
