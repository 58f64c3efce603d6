"""From Python objects to the bytes that travel, and back: what client and processor must agree on.

- A **call** is a pickle of `(args, kwargs)`. A future in it is a persistent id `("task", task id)`, in whose place the
  processor puts the dependency's value. A call that is sent again with values is a `CallWithValues` around the first.
  A large argument in it is a leaf, `(kind, index)`, an object of its own: see `buffers`.
- A **value** is a pickle, large buffers behind it (`buffers`). Plain pickle first, because it is fast; cloudpickle for
  what lies in `__main__` or is local.
- A **failure** is JSON (`messages.Failure`), so that its text can be read without unpickling anything.
- An **object** is bytes too long for a message, cut into chunks; its id ends in their number.

Nothing here imports pydantic or Redis.
"""

from __future__ import annotations

import pickle
import traceback
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from gristmill.errors import (
    TASK_ERRORS,
    DeserializationError,
    MissingObjectError,
    RemoteError,
    ResultSerializationError,
    TaskError,
)
from gristmill.protocol.buffers import BUFFER_BYTES, CUSTOM, Buffer, LeafUnpickler, Leaves, Serialized, join, load
from gristmill.protocol.keys import CHUNK_BYTES
from gristmill.protocol.signing import SIGNATURE_BYTES

if TYPE_CHECKING:
    from types import TracebackType

PICKLE_PROTOCOL = 5
TRACEBACK_CHARACTERS = 200_000
"""A longer remote traceback loses its middle."""
MESSAGE_CHARACTERS = 20_000
"""A longer message of an exception is cut."""


class CallWithValues:
    """A call that is sent again with values in it, because the tasks that gave them are gone from Redis."""

    __slots__ = ("call", "values")

    def __init__(self, call: bytes, values: dict[str, bytes]) -> None:
        self.call = call
        self.values = values

    def __reduce__(self) -> tuple[type[CallWithValues], tuple[bytes, dict[str, bytes]]]:
        return (CallWithValues, (self.call, self.values))


def text_of(data: bytes) -> str:
    """The base64 by which small payloads travel inside JSON."""
    return b2a_base64(data, newline=False).decode("ascii")


def bytes_of(text: str | bytes) -> bytes:
    """What `text_of` was given."""
    return a2b_base64(text)


# --- calls ------------------------------------------------------------------------------------------------


def dump_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Pickle a call that holds no futures; raises whatever pickling raises."""
    return cloudpickle_dumps((args, kwargs))


def load_call(
    data: Buffer, value_of: Callable[[str], Any] | None = None, leaves: Leaves | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The `(args, kwargs)` of a call.

    `value_of(task id)` gives the value of a dependency (each time it is mentioned: hand out the same object to keep
    identity); it may be left out when the task has none. `leaves` give the large arguments of a call that names
    objects, in front of which the ids have been taken off (`buffers.split_objects`). Raises what loading raises.
    """
    if value_of is None and leaves is None:
        call = pickle.loads(data)
    else:
        call = LeafUnpickler(data, value_of or _no_value, leaves).load()
    if type(call) is CallWithValues:
        return load_call(call.call, _values_first(call.values, value_of), leaves)
    args, kwargs = call
    return args, kwargs


def _no_value(task: str) -> Any:
    raise MissingObjectError(f"the value of task {task}, on which this one depends, did not come with it")


def _values_first(values: dict[str, bytes], value_of: Callable[[str], Any] | None) -> Callable[[str], Any]:
    """A `value_of` that looks into the call's own values first."""
    loaded: dict[str, Any] = {}

    def find(task: str) -> Any:
        if task in loaded:
            return loaded[task]
        if task in values:
            return loaded.setdefault(task, load_value(values[task]))
        return (value_of or _no_value)(task)

    return find


def cloudpickle_dumps(value: Any) -> bytes:
    """Pickle with functions and classes of `__main__` by value (cloudpickle is imported when first needed)."""
    from gristmill.protocol import pickler

    return pickler.dumps(value, PICKLE_PROTOCOL)


# --- values -----------------------------------------------------------------------------------------------


def dump_value(value: Any) -> bytes:
    """Pickle a task's value; raises ResultSerializationError saying which type and why."""
    data = value_pieces(value)
    return data if isinstance(data, bytes) else b"".join(data)


def value_pieces(value: Any) -> bytes | list[Buffer]:
    """The same without copying what is large: a pickle, or the pieces of one with its buffers behind it."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        data = pickle.dumps(value, PICKLE_PROTOCOL, buffer_callback=buffers.append)
    except RecursionError as error:
        _refuse(value, error)
    except Exception:  # whatever the user's __reduce__ raises
        try:
            return cloudpickle_dumps(value)
        except Exception as error:  # as above
            _refuse(value, error)
    return data if not buffers else _beside(value, data, buffers)


def _beside(value: Any, data: bytes, buffers: list[pickle.PickleBuffer]) -> bytes | list[Buffer]:
    """Large buffers lie beside the pickle; many small ones are better off inside."""
    try:
        views = [buffer.raw() for buffer in buffers]
    except BufferError:  # not contiguous
        views = []
    if sum(map(len, views)) < BUFFER_BYTES * max(1, len(views)):
        return pickle.dumps(value, PICKLE_PROTOCOL)
    return join(data, views)


def _refuse(value: Any, error: Exception) -> NoReturn:
    if isinstance(error, RecursionError):
        reason = "it is nested too deeply for pickle"
    else:
        reason = f"{type(error).__name__}: {text_of_exception(error)}"
    name = qualified_name(type(value))
    raise ResultSerializationError(f"the task's result, of type {name}, cannot be serialised: {reason}") from error


def load_value(data: Buffer, serializer: Any = None) -> Any:
    """A value from its bytes; raises what loading raises.

    `serializer` is the user's, without which a value that it has made cannot be loaded.
    """
    if data[0] != CUSTOM:
        return load(data)
    if serializer is None:
        raise DeserializationError(
            "expected the client to have the serializer that made this value; it has none; "
            "give Client the same serializer"
        )
    return serializer.deserialize(bytes(data[1:]))


def custom_pieces(value: Any, serializer: Any) -> list[Buffer]:
    """A task's value, as the user's serializer makes it; raises ResultSerializationError saying which type and why."""
    try:
        return [bytes((CUSTOM,)), bytes(memoryview(serializer.serialize(value)))]
    except Exception as error:  # user code
        _refuse(value, error)


def deserialized(
    args: tuple[Any, ...], kwargs: dict[str, Any], serializer: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call whose arguments the user's serializer has made."""

    def one(value: Any) -> Any:
        return serializer.deserialize(value.data) if type(value) is Serialized else value

    return tuple(map(one, args)), {name: one(value) for name, value in kwargs.items()}


# --- failures ---------------------------------------------------------------------------------------------


class RemoteTraceback(Exception):  # noqa: N818 - shown in tracebacks, where it is no error of its own
    """The traceback of the process that ran the task, as text: the `__cause__` of what `Future.result` raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


def qualified_name(kind: type) -> str:
    """Module and name of a class, such as `builtins.ValueError`."""
    return f"{kind.__module__}.{kind.__qualname__}"


def text_of_exception(error: BaseException) -> str:
    """Its message, also when its `__str__` raises."""
    try:
        return str(error)[:MESSAGE_CHARACTERS]
    except Exception as problem:  # user code
        return f"(its message cannot be shown: {type(problem).__name__})"


def dump_failure(error: BaseException, *, skip_frames: int = 0) -> bytes:
    """The bytes of a failed outcome; never raises.

    `skip_frames` leaves out that many of the outermost frames: those of the processor itself.
    """
    shown = error.__traceback__
    for _ in range(skip_frames):
        if shown is not None and shown.tb_next is not None:
            shown = shown.tb_next
    return _encode_failure(
        qualified_name(type(error)), text_of_exception(error), _format(error, shown), _pickle_of(error)
    )


def escaped(text: str) -> str:
    """The text as it can travel: lone surrogates, which are not UTF-8, as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _encode_failure(kind: str, message: str, text: str, data: bytes | None) -> bytes:
    failure = {"type": kind, "message": message, "traceback": text, "pickle": None if data is None else text_of(data)}
    try:
        return orjson.dumps(failure)
    except TypeError:  # lone surrogates: text that is not UTF-8
        for name in ("type", "message", "traceback"):
            failure[name] = escaped(str(failure[name]))
        return orjson.dumps(failure)


def _format(error: BaseException, shown: TracebackType | None) -> str:
    """The traceback with chained exceptions, groups and notes; the middle is left out when it is very long."""
    try:
        text = "".join(traceback.format_exception(type(error), error, shown))
    except Exception as problem:  # user code (__str__, __notes__)
        frames = "".join(traceback.format_tb(shown))
        text = f"{frames}{qualified_name(type(error))}: (cannot be shown in full: {type(problem).__name__})\n"
    if len(text) > TRACEBACK_CHARACTERS:
        half = TRACEBACK_CHARACTERS // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text


def _pickle_of(error: BaseException) -> bytes | None:
    """The pickled exception, when it survives the way there and back as what it is."""
    for dump in (_plain_dumps, cloudpickle_dumps):
        try:
            data = dump(error)
            copy = pickle.loads(data)
        except Exception:  # user code; the text will do
            continue
        if type(copy).__qualname__ == type(error).__qualname__:
            return data
    return None


def _plain_dumps(value: Any) -> bytes:
    return pickle.dumps(value, PICKLE_PROTOCOL)


def _parse_failure(data: bytes | bytearray) -> Any:
    try:
        return orjson.loads(data)
    except ValueError:
        # A signed one, for somebody who has no key: it says what is wrong, and is not unpickled.
        return {**orjson.loads(data[:-SIGNATURE_BYTES]), "pickle": None}


def load_failure(data: bytes | bytearray) -> Exception:
    """The exception of a failed outcome, the remote traceback as its cause; never raises.

    What cannot be rebuilt here, and what would end the program (SystemExit, KeyboardInterrupt, other exceptions that
    are not an `Exception`), becomes a RemoteError.
    """
    try:
        failure = _parse_failure(data)
        kind, message, text = failure["type"], failure["message"], failure["traceback"]
        pickled = failure["pickle"]
    except (ValueError, TypeError, KeyError):
        return RemoteError("the task failed, but what it sent about its failure cannot be read")
    error: Exception | None = None
    if pickled is not None:
        try:
            loaded = pickle.loads(bytes_of(pickled))
            error = loaded if isinstance(loaded, Exception) else None
        except Exception:  # user code; the text will do
            error = None
    if error is None:
        error = RemoteError(f"{kind}: {message}" if message else kind)
    error.__cause__ = RemoteTraceback(text)
    return error


def load_error(name: str, message: str) -> TaskError:
    """The exception of an outcome that names an error instead of carrying one (`messages.ErrorPayload`)."""
    return TASK_ERRORS.get(name, TaskError)(message)


def loading_failed(what: str, error: BaseException) -> DeserializationError:
    """The error for a function, argument or value that arrived but cannot be loaded here."""
    return DeserializationError(f"{what} cannot be loaded: {type(error).__name__}: {text_of_exception(error)}")


# --- objects ----------------------------------------------------------------------------------------------


def object_id(stem: str, size: int) -> str:
    """`stem` with the number of chunks that `size` bytes need: `abc.f3` becomes `abc.f3-2`."""
    return f"{stem}-{max(1, -(-size // CHUNK_BYTES))}"
