"""What travels through the streams keeps its shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gristmill import errors
from gristmill.errors import MessageError
from gristmill.protocol import kinds, messages
from gristmill.protocol.kinds import Request
from gristmill.protocol.messages import (
    BODIES,
    CancelMessage,
    ClientBeatMessage,
    ClientMessage,
    Confirm,
    ConfirmsMessage,
    Message,
    TaskOptions,
    TasksMessage,
    WorkerMessage,
    decode,
    encode,
)

EXAMPLES: dict[Request, Message] = {
    Request.CLIENT: ClientMessage(client="Ab12cd34Ef", host="h", pid=1, python="3.11", release="0.1"),
    Request.TASKS: TasksMessage(
        client="Ab12cd34Ef",
        batch=1,
        lane="python3.11",
        functions=[("Ab12cd34Ef.f1-1", "f")],
        tasks=[[1, 0, "gAVLAS4=", None], [2, 0, None, {"object": "Ab12cd34Ef.c2-3", "size": 3_000_000}]],
    ),
    Request.OUTCOMES: messages.OutcomesMessage(
        worker="h|1|w|x",
        outcomes=[["Ab12cd34Ef.0000001", 1, "success", "gAVLAS4=", 10, 9, 0, None]],
    ),
    Request.CONFIRMS: ConfirmsMessage(
        worker="h|1|w|x",
        confirms=[Confirm(task="Ab12cd34Ef.0000001", attempt=1, request=2, answer="canceled")],
    ),
    Request.RETURNED: messages.ReturnedMessage(worker="h|1|w|x", tasks=[("Ab12cd34Ef.0000001", 1)]),
    Request.HELD: messages.HeldMessage(worker="h|1|w|x", number=2, tasks=[("Ab12cd34Ef.0000001", 1, "p1")]),
    Request.KNOWN: messages.KnownMessage(client="Ab12cd34Ef", registration=2, tasks=[0, 7]),
    Request.SUSPENDED: messages.SuspendedMessage(
        worker="h|1|w|x", processors_ready=2, suspended=1, suspensions=7, waiting=["Ab12cd34Ef.0000001"]
    ),
    Request.CLAIM: messages.ClaimMessage(
        client="Ab12cd34Ef", worker="h|1|w|x", claim=3, tasks=["Ab12cd34Ef.0000001"], after=2
    ),
    Request.DEPEND: messages.DependMessage(
        client="Ab12cd34Ef", task="Ab12cd34Ef.0000900", part=1, last=True, dependencies=["Ab12cd34Ef.0000001"], after=4
    ),
    Request.CANCEL: CancelMessage(client="Ab12cd34Ef", tasks=["Ab12cd34Ef.0000001"], after=3),
    Request.CANCEL_CLIENT: messages.CancelClientMessage(client="Ab12cd34Ef", by="ada", reason="wrong input"),
    Request.RETRY: messages.RetryMessage(task="Ab12cd34Ef.0000001", by="ada"),
    Request.ORDER_WORKER: messages.OrderWorkerMessage(worker="h|1|w|x", order="drain", by="ada"),
    Request.PAUSE: messages.PauseMessage(paused=True, by="ada"),
    Request.SHUTDOWN: messages.ShutdownMessage(client="abc"),
    Request.RELEASE: messages.ReleaseMessage(client="Ab12cd34Ef", objects=["Ab12cd34Ef.f1-1"]),
    Request.DISCONNECT: messages.DisconnectMessage(client="Ab12cd34Ef", after=9),
    Request.OUTPUT: messages.OutputMessage(task="Ab12cd34Ef.0000001", lines=[("out", "text")], dropped=3),
    Request.WATCH: messages.WatchMessage(client="Ab12cd34Ef", task="Ef34Gh56Ij.0000001"),
    Request.WORKER: WorkerMessage(
        worker="h|1|w|x", name="w", host="h", pid=1, python="3.11", release="0.1", concurrency=2
    ),
    Request.BEAT: messages.BeatMessage(
        worker="h|1|w|x",
        processors_ready=1,
        processors=[messages.ProcessorFigures(processor="h|1|w|x|1", pid=2, ready=True)],
    ),
    Request.CLIENT_BEAT: ClientBeatMessage(client="Ab12cd34Ef"),
    Request.DRAIN: messages.DrainMessage(worker="h|1|w|x"),
    Request.LEAVE: messages.LeaveMessage(worker="h|1|w|x"),
}

WRITTEN_BY_SCRIPTS_ONLY = {Request.END_CLIENT, Request.END_WORKER, Request.RESOLVE, Request.DROP_USES}


def body_of(kind: Request, **changes: Any) -> bytes:
    return json.dumps({**json.loads(encode(EXAMPLES[kind])), **changes}).encode()


def test_every_request_from_outside_has_a_model() -> None:
    assert set(BODIES) == set(Request) - WRITTEN_BY_SCRIPTS_ONLY


def test_every_model_has_an_example_here() -> None:
    assert set(BODIES) == set(EXAMPLES)


@pytest.mark.parametrize("kind", BODIES)
def test_what_was_encoded_is_decoded_to_the_same(kind: Request) -> None:
    assert decode(kind, encode(EXAMPLES[kind])) == EXAMPLES[kind]


@pytest.mark.parametrize("kind", BODIES)
def test_every_body_carries_the_version(kind: Request) -> None:
    assert json.loads(encode(EXAMPLES[kind]))["version"] == kinds.VERSION


@pytest.mark.parametrize("kind", BODIES)
def test_an_unknown_field_is_refused_by_name(kind: Request) -> None:
    with pytest.raises(MessageError, match=f"expected a {kind.value} message; got a wrong surprise"):
        decode(kind, body_of(kind, surprise=1))


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_is_not_json_is_refused(kind: Request) -> None:
    with pytest.raises(MessageError, match="got a wrong body"):
        decode(kind, b"{")


def test_a_missing_field_is_named() -> None:
    with pytest.raises(MessageError, match="got a wrong client"):
        decode(Request.CLIENT_BEAT, b"{}")


def test_a_wrong_type_is_named_with_its_place() -> None:
    with pytest.raises(MessageError, match=r"got a wrong confirms\.0\.answer"):
        decode(
            Request.CONFIRMS,
            body_of(Request.CONFIRMS, confirms=[{"task": "t", "attempt": 1, "request": 1, "answer": "maybe"}]),
        )


def test_a_message_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        EXAMPLES[Request.CLIENT_BEAT].client = "other"  # type: ignore[attr-defined]


@pytest.mark.parametrize("priority", [-1000, 0, 1000])
def test_priorities_up_to_the_limit_are_accepted(priority: int) -> None:
    assert TaskOptions(priority=priority).priority == priority


@pytest.mark.parametrize("priority", [-1001, 1001, 10**30, 0.5, "high"])
def test_other_priorities_are_refused(priority: Any) -> None:
    with pytest.raises(ValueError, match="priority"):
        TaskOptions(priority=priority)


def test_a_worker_has_at_least_one_processor() -> None:
    with pytest.raises(MessageError, match="wrong concurrency"):
        decode(Request.WORKER, body_of(Request.WORKER, concurrency=0))


def test_errors_that_travel_by_name_are_task_errors_under_their_own_name() -> None:
    assert all(error is getattr(errors, name) for name, error in errors.TASK_ERRORS.items())
    assert all(issubclass(error, errors.TaskError) for error in errors.TASK_ERRORS.values())


def test_an_error_without_a_message_says_its_sentence() -> None:
    assert str(errors.TaskLostError()) == "The task's record is gone from Redis and it could not be sent again."


def test_every_error_is_drawn_in_the_tree_of_its_module() -> None:
    classes = [name for name, thing in vars(errors).items() if isinstance(thing, type)]

    assert not [name for name in classes if name not in (errors.__doc__ or "")]
