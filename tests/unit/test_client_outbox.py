"""The outbox: what one write holds, in which order, and what is sent again after a loss."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NoReturn

import hiredis
import orjson
import pytest

from gristmill.client.functions import FunctionObject
from gristmill.client.future import FINISHED, Future
from gristmill.client.outbox import ASK_BATCHES, UNAPPLIED_BATCHES, WRITE_BATCHES, Outbox, Write
from gristmill.client.serializer import LargeCall, dump_call
from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import BATCH_TASKS
from gristmill.store.connection import pack

SESSION: Any = SimpleNamespace(client_id="abc", serializer=None)
KEYS = Keys()


@pytest.fixture
def outbox() -> Outbox:
    found = Outbox(KEYS, "python3.11")
    found.begin("abc", 1, {})
    return found


def noop() -> None:
    pass


class Unreadable:
    """A large argument whose memory was given back."""

    uploaded = 0

    def contents(self) -> NoReturn:
        raise ValueError("operation forbidden on released memoryview object")


def add(outbox: Outbox, *numbers: int) -> list[Future]:
    function = outbox.functions.get(noop)
    futures = [Future(SESSION, number, function) for number in numbers]
    for future in futures:
        future._call = "AAAA"
    outbox.waiting.extend(futures)
    return futures


def commands_of(write: Write | None) -> list[list[Any]]:
    assert write is not None
    reader = hiredis.Reader()
    reader.feed(write.data)
    commands = [reader.gets() for _ in range(write.replies)]
    assert not reader.has_data()
    return commands


def bodies(write: Write | None, kind: bytes) -> list[Any]:
    return [orjson.loads(command[-1]) for command in commands_of(write) if command[-2] == kind]


def numbers(body: Any) -> list[int]:
    return [row[0] for row in body["tasks"]]


def test_nothing_waiting_is_nothing_to_send(outbox: Outbox) -> None:
    assert outbox.compose() is None
    assert not outbox.has_more


def test_a_function_goes_before_the_batch_that_names_it_and_only_once(outbox: Outbox) -> None:
    add(outbox, 0)
    first = commands_of(outbox.compose())
    add(outbox, 1)
    second = commands_of(outbox.compose())

    assert [command[0] for command in first] == [b"SET", b"XADD", b"GET", b"HMGET"]
    assert first[0][1] == KEYS.object("abc.f1-1").encode()
    assert first[1][1:4] == [KEYS.submit().encode(), b"*", b"tasks"]
    assert [command[0] for command in second] == [b"XADD"]


def test_the_questions_go_with_every_few_batches_or_after_a_while(outbox: Outbox) -> None:
    asked = []
    for number in range(ASK_BATCHES + 1):
        add(outbox, number)
        write = outbox.compose()
        assert write is not None
        outbox._asked_at = float("inf")  # so that no time passes
        asked.append(write.asked)
    assert asked == [True, *[False] * (ASK_BATCHES - 1), True]

    outbox._asked_at = 0.0
    add(outbox, 99)
    assert [command[0] for command in commands_of(outbox.compose())] == [b"XADD", b"GET", b"HMGET"]


def test_batches_are_numbered_without_gaps_and_several_go_in_one_write(outbox: Outbox) -> None:
    futures = add(outbox, *range(BATCH_TASKS * 3))
    write = outbox.compose()

    assert [body["batch"] for body in bodies(write, b"tasks")] == [1, 2, 3]
    assert write is not None
    assert (write.batch, write.asked) == (3, True)
    assert [future._batch for future in futures[::BATCH_TASKS]] == [1, 2, 3]
    assert not outbox.has_more


def test_one_write_does_not_hold_everything(outbox: Outbox) -> None:
    add(outbox, *range(BATCH_TASKS * (WRITE_BATCHES + 1)))

    assert len(bodies(outbox.compose(), b"tasks")) == WRITE_BATCHES
    assert outbox.has_more


def test_no_more_than_64_batches_are_unapplied(outbox: Outbox) -> None:
    add(outbox, *range(BATCH_TASKS * (UNAPPLIED_BATCHES + 1)))
    while outbox.compose():
        pass

    assert outbox.last == UNAPPLIED_BATCHES
    assert not outbox.may_send_tasks
    outbox.applied = 1
    assert [body["batch"] for body in bodies(outbox.compose(), b"tasks")] == [UNAPPLIED_BATCHES + 1]


def test_nothing_but_questions_goes_while_the_intake_is_closed(outbox: Outbox) -> None:
    add(outbox, 1)
    outbox.intake = b"memory"

    assert outbox.compose() is None
    outbox.ask = True
    assert [command[0] for command in commands_of(outbox.compose())] == [b"GET", b"HMGET"]


def test_a_large_call_is_written_before_its_task(outbox: Outbox) -> None:
    (future,) = add(outbox, 5)
    data, _ = dump_call(SESSION, "noop", ("x" * 5000,), {})
    future._call, future._large = None, LargeCall(data, ("x" * 5000,), {}, keep=False)
    outbox.large_added += len(data)
    write = outbox.compose()
    sets = [command for command in commands_of(write) if command[0] == b"SET"]

    assert [command[1] for command in sets] == [
        KEYS.object("abc.c5-1").encode(),
        KEYS.object("abc.f1-1").encode(),
    ]
    assert sets[0][2] == data
    assert bodies(write, b"tasks")[0]["tasks"] == [[5, 0, None, {"object": "abc.c5-1", "size": len(data)}]]
    assert write is not None
    assert write.large == [future._large]
    assert outbox.large_waiting == 0


def test_a_cancel_names_the_batch_that_must_come_before(outbox: Outbox) -> None:
    futures = add(outbox, 1, 2)
    outbox.compose()
    futures += add(outbox, 3)
    outbox.compose()
    outbox.cancels.extend(futures)
    (body,) = bodies(outbox.compose(), b"cancel")

    assert body["tasks"] == [future.task_id for future in futures]
    assert (body["client"], body["after"]) == ("abc", 2)


def test_a_task_that_is_cancelled_before_it_was_sent_never_leaves(outbox: Outbox) -> None:
    kept, dropped = add(outbox, 1, 2)
    dropped._cancel_asked = True
    outbox.cancels.append(dropped)
    write = outbox.compose()

    assert [numbers(body) for body in bodies(write, b"tasks")] == [[1]]
    assert bodies(write, b"cancel") == []
    assert set(outbox.dropped) == {dropped}
    assert kept._batch == 1


def test_a_task_that_is_done_is_not_cancelled_any_more(outbox: Outbox) -> None:
    (future,) = add(outbox, 1)
    outbox.compose()
    future._settle(FINISHED)
    outbox.cancels.append(future)

    assert outbox.compose() is None


def test_objects_are_released_after_the_last_batch_that_named_them(outbox: Outbox) -> None:
    outbox.functions.released.extend([("abc.f1-1", 3, 1), ("abc.f2-1", 0, 1), ("abc.old-1", 9, 0)])
    (body,) = bodies(outbox.compose(), b"release")

    assert body["objects"] == ["abc.f1-1", "abc.f2-1"]
    assert body["after"] == 3


def test_a_connection_that_was_lost_costs_only_what_the_record_does_not_have(outbox: Outbox) -> None:
    futures = add(outbox, *range(BATCH_TASKS * 3))
    outbox.compose()
    futures[150]._settle(FINISHED)
    table = {future._number: future for future in futures if not future.done()}
    outbox.resume(1, table)
    write = outbox.compose()
    sent = bodies(write, b"tasks")

    assert [body["batch"] for body in sent] == [2, 3]
    assert numbers(sent[0]) == [*range(100, 150), *range(151, 200)]
    assert numbers(sent[1]) == [*range(200, 300)]
    assert commands_of(write)[0][0] == b"SET"
    add(outbox, 300)
    assert [body["batch"] for body in bodies(outbox.compose(), b"tasks")] == [4]


def test_tasks_that_an_interrupt_took_from_the_queue_go_again_in_order(outbox: Outbox) -> None:
    futures = add(outbox, 1, 2)
    outbox._take_rows()  # and before they have a batch, somebody presses Ctrl-C
    futures += add(outbox, 3)
    outbox.resume(0, {future._number: future for future in futures})
    (body,) = bodies(outbox.compose(), b"tasks")

    assert numbers(body) == [1, 2, 3]


def test_a_lasting_request_goes_again_until_it_is_answered(outbox: Outbox) -> None:
    outbox.lasting.append(pack(("ECHO", "lasting")))
    for _ in range(2):
        assert commands_of(outbox.compose()) == [[b"ECHO", b"lasting"]]
        outbox.repeat_unanswered()
        assert outbox.has_more
    outbox.compose()
    outbox.unanswered.clear()  # the answer came
    outbox.repeat_unanswered()

    assert not outbox.has_more


def test_a_batch_whose_tasks_are_all_done_still_fills_its_number(outbox: Outbox) -> None:
    add(outbox, 1)
    outbox.compose()
    outbox.resume(0, {})

    assert [(body["batch"], body["tasks"]) for body in bodies(outbox.compose(), b"tasks")] == [(1, [])]


def test_after_a_lost_record_what_was_sent_is_asked_for_and_the_rest_is_sent(outbox: Outbox) -> None:
    futures = add(outbox, *range(700))
    outbox.compose()
    waiting = add(outbox, 700)
    table = {future._number: future for future in [*waiting, *futures[10:]]}
    outbox.begin("abc", 2, table)
    write = outbox.compose()
    (sent,) = bodies(write, b"tasks")
    first, second = bodies(write, b"known")

    assert (sent["batch"], numbers(sent)) == (1, [700])
    assert first["tasks"] + second["tasks"] == list(range(10, 700))
    assert (first["client"], first["registration"]) == ("abc", 2)
    assert commands_of(write)[0][1] == KEYS.object("abc.f2-1").encode()


def test_after_another_loss_what_was_not_answered_is_asked_for_again(outbox: Outbox) -> None:
    futures = add(outbox, 1, 2)
    outbox.compose()
    outbox.begin("abc", 2, {future._number: future for future in futures})
    outbox.compose()
    outbox.asked.pop(1)
    outbox.resume(0, {future._number: future for future in futures})

    assert [body["tasks"] for body in bodies(outbox.compose(), b"known")] == [[2]]


def test_a_cancel_of_what_was_asked_for_is_sent(outbox: Outbox) -> None:
    (future,) = add(outbox, 1)
    outbox.compose()
    future._cancel_asked = True
    outbox.begin("abc", 2, {1: future})

    (body,) = bodies(outbox.compose(), b"cancel")
    assert (body["tasks"], body["after"]) == ([future.task_id], 0)
    assert outbox.dropped == []


def test_arguments_that_changed_since_are_not_sent_as_if_they_had_not(outbox: Outbox) -> None:
    (future,) = add(outbox, 1)
    argument = list(range(5000))
    data, _ = dump_call(SESSION, "noop", (argument,), {})
    future._call, future._large = None, LargeCall(data, (argument,), {}, keep=False)
    future._large.data = None
    argument.append(1)

    assert bodies(outbox.compose(), b"tasks") == [] or outbox.lost == [future]
    assert outbox.lost == [future]


def test_what_cannot_be_packed_goes_out_of_its_batch_alone(outbox: Outbox) -> None:
    _, odd, _ = add(outbox, 1, 2, 3)
    odd._options = {"about": {"name": "\ud800"}}
    (body,) = bodies(outbox.compose(), b"tasks")

    assert numbers(body) == [1, 3]
    assert [future for future, _ in outbox.unsendable] == [odd]
    assert outbox.has_more


def test_a_large_argument_that_can_be_read_no_more_goes_out_of_its_batch_alone(outbox: Outbox) -> None:
    _, odd = add(outbox, 1, 2)
    odd._call, odd._large = None, LargeCall(b"data", (), {}, keep=True, leaves=(Unreadable(),))  # type: ignore[arg-type]
    outbox._upload = lambda leaf: leaf.contents()  # type: ignore[assignment,return-value]
    (body,) = bodies(outbox.compose(), b"tasks")

    assert numbers(body) == [1]
    assert [future for future, _ in outbox.unsendable] == [odd]


def test_tasks_with_many_dependencies_may_be_submitted_while_the_client_recovers(outbox: Outbox) -> None:
    future = Future(SESSION, 1, outbox.functions.get(noop))
    stop = threading.Event()

    def submit() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            outbox.much_needing[number % 5000] = future
            if number % 5000 == 0:
                outbox.much_needing.clear()

    with ThreadPoolExecutor(1) as other:
        done = other.submit(submit)
        try:
            for _ in range(300):
                outbox.resume(0, {})
                outbox.requests.clear()
        finally:
            stop.set()
        done.result()


def test_handled_entries_of_the_inbox_go_with_the_next_write(outbox: Outbox) -> None:
    outbox.trim_from = "5-1"
    assert outbox.compose() is None
    add(outbox, 1)

    assert [b"XTRIM", KEYS.client_inbox("abc").encode(), b"MINID", b"5-1"] in commands_of(outbox.compose())
    add(outbox, 2)
    assert b"XTRIM" not in [command[0] for command in commands_of(outbox.compose())]


def test_the_function_object_is_as_large_as_its_chunks_say(outbox: Outbox) -> None:
    big = tuple(range(300_000))
    function: FunctionObject = outbox.functions.get(lambda: big)
    future = Future(SESSION, 1, function)
    future._call = "AAAA"
    outbox.waiting.append(future)
    commands = commands_of(outbox.compose())

    assert [command[1] for command in commands if command[0] == b"SET"] == [
        KEYS.object("abc.f1-2").encode(),
        KEYS.object_chunk("abc.f1-2", "1").encode(),
    ]
