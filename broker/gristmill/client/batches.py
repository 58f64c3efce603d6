"""From waiting calls to the bodies of requests. Pure: nothing here sends, waits or keeps anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from gristmill.protocol.buffers import NAME_BYTES
from gristmill.protocol.kinds import BATCH_BYTES, BATCH_TASKS, MOST_DEPENDENCIES, VERSION
from gristmill.protocol.payloads import bytes_of, text_of
from gristmill.protocol.signing import Signer, name_of_call

if TYPE_CHECKING:
    from collections import deque

    from gristmill.client.functions import FunctionObject
    from gristmill.client.future import Future

ROW_BYTES = 48
"""What a row takes beside its call."""
OPTIONS_BYTES = 160
DEPENDENCY_BYTES = BATCH_BYTES // MOST_DEPENDENCIES
"""Not what one takes, but such that a batch has no more than it may."""


def cut_batch(waiting: deque[Future]) -> list[Future]:
    """Take the tasks of the next batch from the front; those that are settled, or sent already, are left out."""
    rows: list[Future] = []
    size = 0
    take = waiting.popleft
    while waiting and len(rows) < BATCH_TASKS and size < BATCH_BYTES:
        future = take()
        if future._function is None or future._batch:
            continue
        rows.append(future)
        size += ROW_BYTES + (len(future._call) if future._call is not None else _inline_bytes(future))
        if future._options is not None or future._dependencies:
            size += OPTIONS_BYTES + DEPENDENCY_BYTES * len(future._dependencies)
    return rows


def _inline_bytes(future: Future) -> int:
    """What a call that names objects takes in the message."""
    large = future._large
    return large.size * 4 // 3 + 2 * NAME_BYTES * len(large.leaves) if large is not None and large.is_inline else 0


def functions_of(rows: Sequence[Future]) -> dict[FunctionObject, int]:
    """The functions that the rows call, with the index of each."""
    index: dict[FunctionObject, int] = {}
    for future in rows:
        function = future._function
        if function is not None and function not in index:
            index[function] = len(index)
    return index


def row_of(future: Future, index: dict[FunctionObject, int]) -> tuple[Any, ...]:
    """One row of `messages.TASK_COLUMNS`."""
    function = future._function
    assert function is not None
    large, dependencies = future._large, future._dependencies
    if large is None and not dependencies:
        if future._options is None:
            return (future._number, index[function], future._call)
        return (future._number, index[function], future._call, future._options)
    options = dict(future._options or ())
    call = future._call
    if large is not None:
        if large.leaves:
            options["objects"] = large.ids
        if not large.is_inline:
            options["object"], options["size"] = large.object_id, large.object_size
        elif large.data is not None:
            call = text_of(large.with_ids(large.data))
    if dependencies:
        options["dependencies"] = [dependency.task_id for dependency in dependencies[:MOST_DEPENDENCIES]]
        if len(dependencies) > MOST_DEPENDENCIES:
            options["incomplete"] = True
    return (future._number, index[function], call, options)


def signed_row(future: Future, index: dict[FunctionObject, int], signer: Signer) -> list[Any]:
    """The same, with the signature of a call that travels in it."""
    row = list(row_of(future, index))
    if row[2] is not None:
        assert future._function is not None
        row[2] = text_of(signer.seal(bytes_of(row[2]), name_of_call(future.task_id, future._function.object_id)))
    return row


def function_row(function: FunctionObject) -> tuple[Any, ...]:
    """What a batch says about a function: its object, its name, and the objects that it names, if any."""
    if not function.leaves:
        return (function.object_id, function.name)
    return (function.object_id, function.name, [leaf.object_id for leaf in function.leaves])


def latest_dependency(rows: Sequence[Future], batch: int) -> tuple[int, dict[str, int]]:
    """The batch that must be applied before: the latest that carries a dependency and is not this one; 0 for none.

    And likewise for other clients, by their ids.
    """
    after = 0
    others: dict[str, int] = {}
    for future in rows:
        for dependency in future._dependencies:
            session = dependency._session
            if session is not future._session and session is not None:
                if not dependency.done():
                    others[session.client_id] = max(others.get(session.client_id, 0), dependency._batch)
            elif dependency._batch != batch and dependency._batch > after and not dependency.done():
                after = dependency._batch
    return after, others


def depend_bodies(future: Future) -> list[bytes]:
    """The bodies of the `depend` requests for a task that has more dependencies than its row may have."""
    rest = future._dependencies[MOST_DEPENDENCIES:]
    session = future._session
    assert session is not None
    return [
        body(
            client=session.client_id,
            task=future.task_id,
            part=at // MOST_DEPENDENCIES + 1,
            last=at + MOST_DEPENDENCIES >= len(rest),
            dependencies=[dependency.task_id for dependency in rest[at : at + MOST_DEPENDENCIES]],
            after=future._batch,
        )
        for at in range(0, len(rest), MOST_DEPENDENCIES)
    ]


def tasks_body(
    client: str,
    registration: int,
    batch: int,
    lane: str,
    rows: Sequence[Future],
    index: dict[FunctionObject, int],
    *,
    priority: int = 0,
    signer: Signer | None = None,
) -> bytes:
    """The JSON body of a `tasks` request (`messages.TasksMessage`)."""
    body: dict[str, Any] = {
        "version": VERSION,
        "client": client,
        "registration": registration,
        "batch": batch,
        "lane": lane,
        "functions": [function_row(function) for function in index],
        "tasks": [row_of(future, index) for future in rows]
        if signer is None
        else [signed_row(future, index, signer) for future in rows],
    }
    if priority:
        body["priority"] = priority
    after, others = latest_dependency(rows, batch)
    if after:
        body["after"] = after
    if others:
        body["others"] = others
    return orjson.dumps(body)


def body(**fields: Any) -> bytes:
    """The JSON body of any other request."""
    return orjson.dumps({"version": VERSION, **fields})
