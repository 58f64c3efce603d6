"""Running one task: from bytes to bytes. Knows nothing of Redis.

Whatever user code raises, up to SystemExit and KeyboardInterrupt, becomes the task's failure; only an interrupt of
the agent's own (`interrupts`) is something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CoroutineType
from typing import Any, NamedTuple

import orjson

from gristmill import client
from gristmill.errors import DeserializationError, MissingObjectError, ResultSerializationError, TaskTimeoutError
from gristmill.protocol import payloads
from gristmill.protocol.buffers import Buffer, Leaves
from gristmill_worker.functions import Function
from gristmill_worker.interrupts import Interrupts

SUCCESS, FAILED, RETRY = b"success", b"failed", b"retry"
NOTHING = b"null"
ERROR_CHARACTERS = 300
"""The line of an outcome that people read is cut here."""
TRACEBACK_CHARACTERS = 4000
"""The traceback that people read is cut to this; the client's has more."""


class Outcome(NamedTuple):
    """How a task ended."""

    status: bytes
    data: bytes | list[Buffer]
    """The value's pickle, in pieces when it is large; or the failure's JSON."""
    error: bytes
    """JSON: null; or one line for people, and behind a comma the traceback."""

    @property
    def joined(self) -> bytes:
        """The data in one piece."""
        return self.data if isinstance(self.data, bytes) else b"".join(self.data)


class Place(NamedTuple):
    """Where tasks run, for error messages."""

    worker: str
    host: str


def execute(
    function: Function,
    name: bytes,
    call: Buffer,
    values: Mapping[str, Buffer] | None,
    run: Mapping[str, Any],
    start: int,
    interrupts: Interrupts,
    place: Place,
    leaves: Leaves | None = None,
    serializer: Function | None = None,
) -> Outcome | None:
    """Load the function and its arguments, call it, and pickle what it returns; None when it was cancelled meanwhile.

    Args:
        function: where the callable comes from.
        name: the function's, for messages.
        call: pickled `(args, kwargs)`.
        values: pickled values of the tasks this one depends on, by task id.
        run: the task's run options.
        start: the START under which it executes, for interrupts.
        leaves: the large arguments that the call names.
        serializer: where the user's serializer comes from, when the call was made by one.
    """
    loading = "%s"
    try:
        interrupts.enter(start)
        called = function.load()
        loading = "an argument of %s"
        if serializer is None:
            args, kwargs = payloads.load_call(call, _loader(values), leaves)
        else:
            custom = client.current_serializer = serializer.load()
            args, kwargs = payloads.load_call(call, _loader(values, custom), leaves)
            args, kwargs = payloads.deserialized(args, kwargs, custom)
        loading = ""
        value = called(*args, **kwargs)
        try:
            data = payloads.value_pieces(value) if serializer is None else payloads.custom_pieces(value, custom)
        except ResultSerializationError as error:
            raise explained(error, value) from error.__cause__
        interrupts.running = 0
        return Outcome(SUCCESS, data, NOTHING)
    except BaseException as error:
        interrupts.running = 0
        if interrupts.was_cancelled(start) or interrupts.unwinds:
            return None
        if interrupts.was_timed_out(start):
            return failure(time_limit_error(run, place).with_traceback(error.__traceback__), run, skip_frames=1)
        if loading:
            if isinstance(error, MissingObjectError):
                return failure(error, run)
            return failure(loading_failed(loading % name.decode("utf-8", "backslashreplace"), error, place), run)
        return failure(error, run, skip_frames=1)


def failure(error: BaseException, run: Mapping[str, Any], *, skip_frames: int = 0) -> Outcome:
    """The outcome of a task that raised `error`; without `skip_frames` of the processor's own frames."""
    data = payloads.dump_failure(error, skip_frames=skip_frames)
    status = RETRY if wants_retry(run, type(error)) else FAILED
    line = error_line(f"{type(error).__name__}: {payloads.text_of_exception(error)}")
    return Outcome(status, data, line + b"," + _traceback_text(data))


def _traceback_text(data: bytes) -> bytes:
    """JSON of a failure's traceback, short enough for the story that people read: its head, and its end."""
    text: str = orjson.loads(data)["traceback"]
    if len(text) > TRACEBACK_CHARACTERS:
        head = TRACEBACK_CHARACTERS // 4
        left_out = len(text) - TRACEBACK_CHARACTERS
        text = f"{text[:head]}\n... {left_out} characters left out ...\n{text[head + left_out :]}"
    return orjson.dumps(text)


def error_line(text: str) -> bytes:
    """JSON of one line of text for people."""
    line = " ".join(text.split()).encode("utf-8", "backslashreplace").decode()
    if len(line) > ERROR_CHARACTERS:
        line = line[: ERROR_CHARACTERS - 3] + "..."
    return orjson.dumps(line)


def wants_retry(run: Mapping[str, Any], kind: type[BaseException]) -> bool:
    """Whether another attempt may follow an error of this class; whether any is left, the scheduler knows.

    `retry_on` is a list of qualified class names; base classes match. Without it, every `Exception` qualifies.
    """
    retry_on = run.get("retry_on")
    if isinstance(retry_on, list):
        return any(payloads.qualified_name(base) in retry_on for base in kind.__mro__)
    return issubclass(kind, Exception)


def time_limit_error(run: Mapping[str, Any], place: Place) -> TaskTimeoutError:
    """The error of a task whose time was over."""
    return TaskTimeoutError(
        f"expected the task to end within {run.get('timeout_ms', 0) / 1000:g} s; it did not, and was stopped "
        f"by worker {place.worker} on host {place.host}"
    )


def _loader(values: Mapping[str, Buffer] | None, custom: Any = None) -> Callable[[str], Any] | None:
    """What gives the value of a dependency; each is loaded once, so that identity is kept within the call."""
    if values is None:
        return None
    loaded: dict[str, Any] = {}

    def value_of(task: str) -> Any:
        if task not in loaded:
            if task not in values:
                raise MissingObjectError(f"the value of task {task}, on which this one depends, did not come with it")
            loaded[task] = payloads.load_value(values[task], custom)
        return loaded[task]

    return value_of


def loading_failed(what: str, error: BaseException, place: Place) -> DeserializationError:
    """Says what cannot be loaded, where, and what helps."""
    text = f"{what} cannot be loaded on worker {place.worker} on host {place.host}: "
    text += f"{type(error).__name__}: {payloads.text_of_exception(error)}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        module = error.name.partition(".")[0]
        text += (
            f"; install the module {module} on the worker, or send it by value: "
            f"import cloudpickle, {module}; cloudpickle.register_pickle_by_value({module})"
        )
    failed = DeserializationError(text)
    failed.__cause__ = error
    return failed


def explained(error: ResultSerializationError, value: object) -> ResultSerializationError:
    """A coroutine is no value: say so instead of what pickle says."""
    if not isinstance(value, CoroutineType):
        return error
    value.close()
    return ResultSerializationError(
        f"expected a value; got a coroutine of the async function {value.__qualname__}; "
        "submit a function that runs it, for example with asyncio.run"
    )
