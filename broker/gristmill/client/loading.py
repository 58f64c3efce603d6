"""What arrived for a future becomes its value, its exception or its profile, when somebody looks."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

from gristmill.client import gate
from gristmill.errors import (
    ConnectionLostError,
    MissingObjectError,
    RedisRefusedError,
    SignatureError,
    TaskError,
)
from gristmill.protocol import payloads, signing
from gristmill.protocol.buffers import PICKLE

if TYPE_CHECKING:
    from gristmill.client.future import Future

NOT_LOADED = object()
"""Stands where a value will be."""


class Profile(NamedTuple):
    """What a task took."""

    duration_s: float
    """Seconds from start to end, in the processor."""
    cpu_time_s: float
    """Seconds of CPU, user and system, of all threads of the processor; processes that it started do not count."""
    memory_peak: int
    """Bytes by which the resident memory of the processor rose at most while it ran; mapped large arguments count. 0
    when it was not measured: tasks whose function takes under 1 ms are only measured with `options(profiling=True)`."""
    wait_s: float
    """Seconds from submit to assignment to a worker."""
    worker: str
    """Id of the worker; empty when none ran it."""
    attempt: int
    """Which attempt ended it: 1 for the first, 0 when none was made."""


def profile_of(future: Future) -> Profile:
    """What the task of a future that is done took; all zero when none was run."""
    _, attempt, _, _, duration, cpu, memory, wait = (future._row or [0] * 8)[:8]
    return Profile(duration / 1e6, cpu / 1e6, memory, wait / 1e3, future._worker, attempt)


def load(future: Future) -> BaseException | None:
    """Turn what arrived into the value or the exception, once. Returns the exception, or None."""
    if future._source is not None:
        return load(future._source)
    row = future._row
    payload = row[3] if row is not None else None
    value: Any = NOT_LOADED
    error: BaseException | None = None
    if future._error is not None or future._value is not NOT_LOADED:
        return future._error
    if type(payload) is dict:  # an error by name
        error = payloads.load_error(payload["error"], payload.get("message", ""))
    elif payload is None:
        error = TaskError(f"task {future.task_id} ended without an outcome")
    else:
        try:
            data = _read(future, payload)
            if future._failed:
                error = payloads.load_failure(data)
                if (graph := getattr(future, "_graph", None)) is not None:
                    graph.note(error, future._number)
            else:
                value = pickle.loads(data) if data[0] == PICKLE else _load_other(future, data)
        except (ConnectionLostError, RedisRefusedError, MissingObjectError):
            raise  # it may be there the next time
        except SignatureError as refused:
            error = refused
        except Exception as problem:
            error = payloads.loading_failed(f"the value of task {future.task_id}", problem)
            error.__cause__ = problem
    with gate.deciding:
        # Another thread may have been faster: everybody gets the same object.
        if future._error is None and future._value is NOT_LOADED:
            future._value, future._error = value, error
            if row is not None:
                row[3] = None
        return future._error


def value_bytes(future: Future) -> bytes | bytearray:
    """The pickled value of a future that succeeded, to be put into a call."""
    row = future._row
    payload = row[3] if row is not None else None
    if payload is None:
        return payloads.dump_value(future.result())
    return _read(future, payload)


def _load_other(future: Future, data: bytes | bytearray) -> Any:
    """A value with buffers beside it, or one that the user's serializer made."""
    session = future._session
    custom = session.serializer if session is not None else None
    return payloads.load_value(data, custom.serializer if custom is not None else None)


def _read(future: Future, payload: Any) -> bytes | bytearray:
    """The bytes of a payload; a large one is fetched."""
    if type(payload) is str:
        data = payloads.bytes_of(payload)
        return data if signing.off else _opened(future, data)
    assert future._session is not None
    return future._session.fetch(payload)


def _opened(future: Future, data: bytes) -> bytes:
    """The bytes of an outcome whose signature is right; one that came with a dependency is signed for that."""
    row, session = future._row, future._session
    if session is None or session.outbox.signer is None or row is None:
        return data
    return session.outbox.signer.open(data, row[8] if len(row) > 8 else future.task_id)
