"""From Python objects to the bytes that travel, and back: what client and processor must agree on.

- A **call** is a pickle of `(args, kwargs)`. A future in it is a persistent id `("task", task id)`, in whose place the
  processor puts the dependency's value. A call that is sent again with values is a `CallWithValues` around the first.
- A **value** is a pickle. Plain pickle first, because it is fast; cloudpickle for what lies in `__main__` or is local.
- A **failure** is JSON (`messages.Failure`), so that its text can be read without unpickling anything.
- An **object** is bytes too long for a message, cut into chunks; its id ends in their number.

Nothing here imports pydantic or Redis.
"""

from __future__ import annotations

import io
import pickle
import traceback
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import orjson

from gristmill.errors import (
    TASK_ERRORS,
    DeserializationError,
    MissingObjectError,
    RemoteError,
    ResultSerializationError,
    TaskError,
)
from gristmill.protocol.keys import CHUNK_BYTES, Keys, object_chunks
from gristmill.protocol.kinds import OBJECT_LIFETIME_SECONDS

if TYPE_CHECKING:
    from types import TracebackType

PICKLE_PROTOCOL = 5
TRACEBACK_CHARACTERS = 200_000
"""A longer remote traceback loses its middle."""
MESSAGE_CHARACTERS = 20_000
"""A longer message of an exception is cut."""
READ_CHUNKS = 8
"""Chunks of an object asked for in one go: enough to keep the socket busy, few enough to let others through."""

_SET_TAIL = b"\r\n$2\r\nNX\r\n$2\r\nEX\r\n$%d\r\n%d\r\n" % (len(str(OBJECT_LIFETIME_SECONDS)), OBJECT_LIFETIME_SECONDS)


class CallWithValues:
    """A call that is sent again with values in it, because the tasks that gave them are gone from Redis."""

    __slots__ = ("call", "values")

    def __init__(self, call: bytes, values: dict[str, bytes]) -> None:
        self.call = call
        self.values = values

    def __reduce__(self) -> tuple[type[CallWithValues], tuple[bytes, dict[str, bytes]]]:
        return (CallWithValues, (self.call, self.values))


class _CallUnpickler(pickle.Unpickler):
    """Puts the values of dependencies where the futures were."""

    def __init__(self, data: bytes, value_of: Callable[[str], Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._value_of = value_of

    def persistent_load(self, pid: Any) -> Any:
        kind, task = pid
        if kind != "task":
            raise pickle.UnpicklingError(f"expected the id of a task in the call; got {kind!r}")
        return self._value_of(task)


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


def load_call(data: bytes, value_of: Callable[[str], Any] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The `(args, kwargs)` of a call.

    `value_of(task id)` gives the value of a dependency (each time it is mentioned: hand out the same object to keep
    identity); it may be left out when the task has none. Raises what loading raises.
    """
    call = pickle.loads(data) if value_of is None else _CallUnpickler(data, value_of).load()
    if type(call) is CallWithValues:
        return load_call(call.call, _values_first(call.values, value_of))
    args, kwargs = call
    return args, kwargs


def _values_first(values: dict[str, bytes], value_of: Callable[[str], Any] | None) -> Callable[[str], Any]:
    """A `value_of` that looks into the call's own values first."""
    loaded: dict[str, Any] = {}

    def find(task: str) -> Any:
        if task in loaded:
            return loaded[task]
        if task in values:
            return loaded.setdefault(task, pickle.loads(values[task]))
        if value_of is None:
            raise MissingObjectError(f"the value of task {task}, on which this one depends, did not come with it")
        return value_of(task)

    return find


def cloudpickle_dumps(value: Any) -> bytes:
    """Pickle with functions and classes of `__main__` by value (cloudpickle is imported when first needed)."""
    from gristmill.protocol import pickler

    return pickler.dumps(value, PICKLE_PROTOCOL)


# --- values -----------------------------------------------------------------------------------------------


def dump_value(value: Any) -> bytes:
    """Pickle a task's value; raises ResultSerializationError saying which type and why."""
    try:
        return pickle.dumps(value, PICKLE_PROTOCOL)
    except RecursionError as error:
        _refuse(value, error)
    except Exception:  # whatever the user's __reduce__ raises
        pass
    try:
        return cloudpickle_dumps(value)
    except Exception as error:  # as above
        _refuse(value, error)


def _refuse(value: Any, error: Exception) -> NoReturn:
    if isinstance(error, RecursionError):
        reason = "it is nested too deeply for pickle"
    else:
        reason = f"{type(error).__name__}: {text_of_exception(error)}"
    name = qualified_name(type(value))
    raise ResultSerializationError(f"the task's result, of type {name}, cannot be serialised: {reason}") from error


def load_value(data: bytes) -> Any:
    """A value from its bytes; raises what loading raises."""
    return pickle.loads(data)


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


def _encode_failure(kind: str, message: str, text: str, data: bytes | None) -> bytes:
    failure = {"type": kind, "message": message, "traceback": text, "pickle": None if data is None else text_of(data)}
    try:
        return orjson.dumps(failure)
    except TypeError:  # lone surrogates: text that is not UTF-8
        for name in ("type", "message", "traceback"):
            failure[name] = str(failure[name]).encode("utf-8", "backslashreplace").decode()
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


def load_failure(data: bytes) -> Exception:
    """The exception of a failed outcome, the remote traceback as its cause; never raises.

    What cannot be rebuilt here, and what would end the program (SystemExit, KeyboardInterrupt, other exceptions that
    are not an `Exception`), becomes a RemoteError.
    """
    try:
        failure = orjson.loads(data)
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


def object_writes(keys: Keys, object_name: str, data: bytes) -> list[bytes]:
    """Packed commands that write an object; each gives one reply (OK, or nil when it is there already).

    They go into the same pipeline as, and before, the entry that names the object.
    """
    view = memoryview(data)
    commands = []
    for chunk in range(object_chunks(object_name)):
        key = _chunk_key(keys, object_name, chunk).encode()
        piece = view[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]
        # SET key piece NX EX lifetime, packed here: this package imports nothing that talks to Redis
        head = b"*6\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(key), key, len(piece))
        commands.append(b"".join((head, piece, _SET_TAIL)))
    return commands


def _chunk_key(keys: Keys, object_name: str, chunk: int) -> str:
    return keys.object_chunk(object_name, str(chunk)) if chunk else keys.object(object_name)


class Requests(Protocol):
    """A connection, as far as reading an object needs one (`store.connection.Connection`)."""

    def request(self, *command: Any) -> Any:
        """Send one command and return its reply; an error reply is raised."""


def read_object(connection: Requests, keys: Keys, object_name: str) -> bytes:
    """The bytes of an object, over a connection that nobody else uses meanwhile; raises MissingObjectError."""
    count = object_chunks(object_name)
    names = [_chunk_key(keys, object_name, chunk) for chunk in range(count)]
    pieces: list[bytes] = []
    for start in range(0, count, READ_CHUNKS):
        pieces += connection.request("MGET", *names[start : start + READ_CHUNKS])
    if any(piece is None for piece in pieces):
        raise MissingObjectError(
            f"the object {object_name} is gone from Redis: it was released, or Redis lost its data"
        )
    return pieces[0] if count == 1 else b"".join(pieces)
