"""Running a chunk: one task that calls its function for many short items (`gristmill.protocol.chunks`).

Each item keeps what a task of its own would have: its arguments as nobody else has seen them, its exception with its
traceback, a refusal that is only its own. The chunk stops early, between two items, when one took long.
"""

from __future__ import annotations

import time
from typing import Any

from gristmill.errors import ResultSerializationError
from gristmill.protocol import payloads
from gristmill.protocol.buffers import Buffer
from gristmill.protocol.chunks import PLAIN_TYPES, SLICE_NS, VALUE_BYTES, ChunkOutcome, dump_outcome, load_items
from gristmill_worker.execution import NOTHING, SUCCESS, Outcome, Place, explained, failure, loading_failed
from gristmill_worker.functions import Function
from gristmill_worker.interrupts import Interrupts

clock_ns = time.perf_counter_ns
_SIZED = frozenset({str, bytes})


def execute_chunk(
    function: Function, name: bytes, call: Buffer, start: int, interrupts: Interrupts, place: Place
) -> Outcome | None:
    """Run the items of a chunk; None when it was cancelled meanwhile.

    The outcome is a failure only when there is nothing to run: the function, or the chunk itself, cannot be loaded.
    """
    loading = "%s"
    try:
        interrupts.enter(start)
        function.load()
        loading = "the items of %s"
        items = load_items(call)
        loading = ""
        outcome = _run(function, name, items, interrupts, place)
        interrupts.running = 0
        return Outcome(SUCCESS, dump_outcome(outcome), NOTHING)
    except BaseException as error:
        interrupts.running = 0
        if interrupts.delivered == start or interrupts.unwinds:
            return None
        if loading:
            error = loading_failed(loading % name.decode("utf-8", "backslashreplace"), error, place)
        return failure(error, {}, skip_frames=1)


def _run(function: Function, name: bytes, items: Any, interrupts: Interrupts, place: Place) -> ChunkOutcome:
    values: list[Any] = []
    failures: dict[int, bytes] = {}
    pickled: list[int] = []
    size, squares, longest = 0, 0.0, 0
    shared = function.load() if function.shared else None
    clock = clock_ns
    begun = last = clock()
    for item in items:
        loading = ""
        try:
            called = shared
            if called is None:
                loading = "%s"
                called = function.load()
            if type(item) is bytes:
                loading = "an argument of %s"
                args, kwargs = payloads.load_call(item)
            else:
                args, kwargs = item
            loading = ""
            value = called(*args, **kwargs)
            kind = type(value)
            if kind not in PLAIN_TYPES:
                value = _pickled(value)
                pickled.append(len(values))
                size += len(value)
            elif kind in _SIZED:
                size += len(value)
        except BaseException as error:
            if not interrupts.running:
                raise  # an interrupt of the agent's: it ends the chunk
            value = None
            if loading:
                error = loading_failed(loading % name.decode("utf-8", "backslashreplace"), error, place)
                failures[len(values)] = payloads.dump_failure(error)
            else:
                failures[len(values)] = payloads.dump_failure(error, skip_frames=1)
            size += len(failures[len(values)])
        values.append(value)
        now = clock()
        took = now - last
        last = now
        squares += took * took
        if took > longest:
            longest = took
        if now - begun > SLICE_NS or size > VALUE_BYTES:
            break
    return ChunkOutcome(values, failures, pickled, last - begun, squares, longest)


def _pickled(value: Any) -> bytes:
    try:
        return payloads.dump_value(value)
    except ResultSerializationError as error:
        raise explained(error, value) from error.__cause__
