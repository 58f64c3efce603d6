"""The inbox: every kind of entry, handled once or twice, in any state of its future."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from gristmill.client.future import Future
from gristmill.client.inbox import RESENDS, Inbox, LargeValue
from gristmill.client.outbox import ASKED, KNOWN, OPEN, Outbox
from gristmill.client.serializer import dump_call
from gristmill.errors import QueueFullError, TaskError, TaskLostError, WorkerDiedError
from gristmill.protocol import payloads
from gristmill.protocol.keys import Keys


class Session:
    """As much of a session as the inbox needs."""

    serializer = None

    client_id = "abc"
    wait_when_full = False

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.unfinished: dict[int, Future] = {}
        self.outbox = Outbox(Keys(), "python3.11")
        self.outbox.begin("abc", 1, {})
        self.queued: list[Future] = []

    def queue_again(self, future: Future) -> None:
        self.queued.append(future)

    def before_wait(self, *_: Any) -> None:
        pass


@pytest.fixture
def session() -> Any:
    return Session()


@pytest.fixture
def inbox(session: Any) -> Inbox:
    return Inbox(session)


def noop() -> None:
    pass


Add = Callable[..., Future]


@pytest.fixture
def add(session: Any) -> Add:
    """Enters a task that was sent in batch 1."""

    def enter(number: int, *dependencies: Future) -> Future:
        future = Future(session, number, session.outbox.functions.get(noop))
        data, found = dump_call(session, "noop", dependencies, {})
        future._call = payloads.text_of(data)
        future._dependencies = found.dependencies if found else ()
        future._batch = 1
        session.unfinished[number] = future
        return future

    return enter


def tell(inbox: Inbox, kind: str, **message: Any) -> None:
    inbox.handle(kind.encode(), orjson.dumps(message))


def outcome(inbox: Inbox, number: int, state: str = "success", payload: Any = None, because: str = "") -> None:
    row = [number, 1, state, payload, 10, 5, 100, 3, *([because] if because else [])]
    tell(inbox, "outcomes", worker="host|1|w|x", rows=[row])


def value(number: object) -> str:
    return payloads.text_of(payloads.dump_value(number))


def failure(error: Exception) -> str:
    return payloads.text_of(payloads.dump_failure(error))


def test_an_outcome_settles_its_future_once(inbox: Inbox, session: Any, add: Add) -> None:
    future = add(1)
    outcome(inbox, 1, payload=value(7))
    outcome(inbox, 1, payload=value(8))
    outcome(inbox, 99, payload=value(9))

    assert future.result() == 7
    assert future.worker == "host|1|w|x"
    assert future.profiling_info().wait_s == 0.003
    assert session.unfinished == {}


def test_a_settled_future_holds_its_call_no_longer(inbox: Inbox, add: Add) -> None:
    future = add(1)
    outcome(inbox, 1, payload=value(7))

    assert (future._function, future._call, future._dependencies) == (None, None, ())


def test_both_ways_of_ending_cancelled_are_cancelled(inbox: Inbox, add: Add) -> None:
    first, second = add(1), add(2)
    outcome(inbox, 1, "canceled")
    outcome(inbox, 2, "canceled_not_found")

    assert first.cancelled()
    assert second.cancelled()


def test_a_failure_raises_what_the_task_raised(inbox: Inbox, add: Add) -> None:
    future = add(1)
    outcome(inbox, 1, "failed", failure(ValueError("no")))

    assert isinstance(future.exception(), ValueError)


def test_a_task_whose_workers_died_says_so_even_without_words(inbox: Inbox, add: Add) -> None:
    future = add(1)
    outcome(inbox, 1, "failed_worker_died")

    assert isinstance(future.exception(), WorkerDiedError)
    assert "abc.0000001" in str(future.exception())


def test_a_dependent_has_the_exception_of_its_dependency(inbox: Inbox, add: Add) -> None:
    first = add(1)
    second = add(2, first)
    third = add(3, second)
    outcome(inbox, 1, "failed", {"object": "abc.1.1-1", "size": 5000})
    first._error = ValueError("no")
    outcome(inbox, 2, "failed", {"object": "abc.1.1-1", "size": 5000}, because=first.task_id)
    outcome(inbox, 3, "failed", {"object": "abc.1.1-1", "size": 5000}, because=second.task_id)

    assert second._source is first
    assert third._source is first


def test_a_large_value_is_released_when_nobody_needs_it(inbox: Inbox, session: Any, add: Add) -> None:
    future = add(1)
    outcome(inbox, 1, payload={"object": "abc.0000001.1-1", "size": 5000})
    assert future._row is not None
    assert isinstance(future._row[3], LargeValue)
    assert not session.outbox.functions.released
    future._row[3] = None

    assert list(session.outbox.functions.released) == [("abc.0000001.1-1", 0, 1)]


def test_a_large_value_counts_as_long_as_somebody_may_look_at_it(inbox: Inbox, add: Add) -> None:
    succeeded, failed = add(1), add(2)
    outcome(inbox, 1, payload={"object": "abc.0000001.1-1", "size": 5000})
    outcome(inbox, 2, "failed", {"object": "abc.0000002.1-1", "size": 5000})
    assert len(inbox.large_values) == 2
    assert failed._row is not None
    failed._row[3] = None
    assert len(inbox.large_values) == 1
    del succeeded

    assert not inbox.large_values


@pytest.fixture
def held(inbox: Inbox, add: Add) -> Iterator[Future]:
    """A future with a callback, whose outcome has come while another thread holds its gate for good."""
    future = add(1)
    future.add_done_callback(lambda _: None)
    thread = threading.Thread(target=future._condition.acquire)
    thread.start()
    thread.join()
    outcome(inbox, 1, payload=value(7))
    yield future
    assert not inbox.held


def test_a_future_whose_gate_is_held_is_settled_when_it_is_released(inbox: Inbox, add: Add) -> None:
    future, other = add(1), add(2)
    future.add_done_callback(lambda _: None)
    acquired, release = threading.Event(), threading.Event()

    def hold() -> None:
        with future._condition:
            acquired.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    acquired.wait()
    outcome(inbox, 1, payload=value(7))
    outcome(inbox, 2, payload=value(8))
    inbox.settle_held()
    assert (future.done(), other.done(), list(inbox.callbacks)) == (False, True, [])
    release.set()
    thread.join()
    inbox.settle_held()

    assert future.result() == 7
    assert list(inbox.callbacks) == [future]
    assert not inbox.held


def test_at_the_end_of_a_session_nobody_insists_on_a_gate(inbox: Inbox, held: Future, add: Add) -> None:
    unfinished = add(2)
    thread = threading.Thread(target=unfinished._condition.acquire)
    thread.start()
    thread.join()
    assert not held.done()
    inbox.end_all([unfinished])

    assert unfinished.cancelled()
    assert held.result() == 7
    assert list(inbox.callbacks) == [held]


def test_whoever_waits_elsewhere_hears_of_what_is_settled_without_its_gate(inbox: Inbox, held: Future) -> None:
    waiter = concurrent.futures._base._AsCompletedWaiter()  # what `as_completed` enters
    held._waiters.append(waiter)
    inbox.end_all([])

    assert waiter.finished_futures == [held]


def test_callbacks_wait_until_everything_that_came_with_them_is_settled(inbox: Inbox, add: Add) -> None:
    first, second = add(1), add(2)
    first.add_done_callback(lambda _: None)
    rows = [[number, 1, "success", value(number), 0, 0, 0, 0] for number in (1, 2)]
    tell(inbox, "outcomes", worker="", rows=rows)

    assert list(inbox.callbacks) == [first]
    assert second.done()


def test_a_closed_intake_fails_what_it_refused(inbox: Inbox, session: Any, add: Add) -> None:
    future = add(1)
    tell(inbox, "refused", reason="intake: memory above 85 %", tasks=[1, 99])

    assert isinstance(future.exception(), QueueFullError)
    assert "memory above 85 %" in str(future.exception())
    assert session.outbox.intake != OPEN


def test_a_client_that_waits_sends_again_what_the_intake_refused(inbox: Inbox, session: Any, add: Add) -> None:
    session.wait_when_full = True
    future = add(1)
    tell(inbox, "refused", reason="intake: too many", tasks=[1])

    assert session.queued == [future]
    assert future._batch == 0
    assert not future.done()


def test_an_object_that_was_gone_is_uploaded_again_a_few_times(inbox: Inbox, session: Any, add: Add) -> None:
    future = add(1)
    assert future._function is not None
    for _ in range(RESENDS):
        future._function.uploaded = 1
        tell(inbox, "refused", reason="object: gone", tasks=[1])
        assert future._function.uploaded == 0
    assert session.queued == [future] * RESENDS
    tell(inbox, "refused", reason="object: gone", tasks=[1])

    assert isinstance(future.exception(), TaskLostError)


def test_any_other_refusal_is_an_error_with_the_reason(inbox: Inbox, add: Add) -> None:
    future = add(1)
    tell(inbox, "refused", reason="the call could not be understood", tasks=[1])

    assert isinstance(future.exception(), TaskError)
    assert "could not be understood" in str(future.exception())


def test_the_end_of_the_client_is_noted(inbox: Inbox) -> None:
    tell(inbox, "refused", reason="client: it has ended", tasks=[])

    assert inbox.ended == "it has ended"


def test_a_registration_is_noted(inbox: Inbox) -> None:
    tell(inbox, "registered", registration=3)

    assert inbox.registered == 3


def test_a_task_whose_dependencies_are_gone_is_sent_again_with_their_values(
    inbox: Inbox, session: Any, add: Add
) -> None:
    first, second = add(1), add(2)
    future = add(3, first, second)
    outcome(inbox, 1, payload=value("one"))
    outcome(inbox, 2, payload=value("two"))
    tell(inbox, "missing", tasks=[[3, [first.task_id, second.task_id]]])

    assert session.queued == [future]
    assert future._dependencies == ()
    assert future._call is not None
    assert payloads.load_call(payloads.bytes_of(future._call)) == (("one", "two"), {})


def run_watchers(inbox: Inbox) -> None:
    """What the I/O thread does at the end of its turn."""
    while inbox.callbacks:
        future = inbox.callbacks.popleft()
        for watcher in future._condition.watchers:  # type: ignore[attr-defined]
            watcher(future)


def test_it_waits_for_those_that_are_not_done(inbox: Inbox, session: Any, add: Add) -> None:
    first, second = add(1), add(2)
    future = add(3, first, second)
    outcome(inbox, 1, payload=value("one"))
    tell(inbox, "missing", tasks=[[3, [first.task_id]]])
    assert session.queued == []
    outcome(inbox, 2, payload=value("two"))
    run_watchers(inbox)

    assert session.queued == [future]


def test_a_large_call_with_values_gets_another_name(inbox: Inbox, session: Any, add: Add) -> None:
    first = add(1)
    future = add(2, first)
    outcome(inbox, 1, payload=value("x" * 5000))
    tell(inbox, "missing", tasks=[[2, [first.task_id]]])
    assert future._large is not None
    session.outbox.waiting.append(future)
    session.outbox.compose()

    assert future._large.object_id == "abc.c2.1-1"


@pytest.mark.parametrize("state", ["failed", "canceled"])
def test_it_ends_as_a_dependency_ended(inbox: Inbox, session: Any, add: Add, state: str) -> None:
    first = add(1)
    future = add(2, first)
    outcome(inbox, 1, state, failure(ValueError("no")) if state == "failed" else None)
    tell(inbox, "missing", tasks=[[2, [first.task_id]]])

    assert session.queued == []
    assert future.cancelled() == (state == "canceled")
    assert future.done()
    if state == "failed":
        assert future.exception() is first.exception()


def test_a_cancelled_task_that_nobody_knows_ends_cancelled(inbox: Inbox, add: Add) -> None:
    asked, not_asked = add(1), add(2)
    asked._cancel_asked = True
    tell(inbox, "unknown", tasks=[1, 2, 3])

    assert asked.cancelled()
    assert not not_asked.done()


def test_a_cancel_follows_a_task_that_is_on_its_way_again(inbox: Inbox, session: Any, add: Add) -> None:
    future = add(1)
    future._cancel_asked = True
    future._batch = 0
    tell(inbox, "unknown", tasks=[1])

    assert list(session.outbox.cancels) == [future]
    assert not future.done()


def test_what_was_asked_for_and_is_lost_goes_again_once(inbox: Inbox, session: Any, add: Add) -> None:
    lost, there = add(1), add(2)
    session.outbox.begin("abc", 2, {1: lost, 2: there})
    assert (lost._batch, there._batch) == (ASKED, ASKED)
    tell(inbox, "lost", tasks=[1, 9], of=[1, 2, 9])
    tell(inbox, "lost", tasks=[1, 9], of=[1, 2, 9])

    assert session.queued == [lost]
    assert (lost._batch, there._batch) == (0, KNOWN)
    assert session.outbox.asked == {}


def test_what_ended_before_the_answer_does_not_go_again(inbox: Inbox, session: Any, add: Add) -> None:
    future = add(1)
    session.outbox.begin("abc", 2, {1: future})
    outcome(inbox, 1, payload=value(7))
    tell(inbox, "lost", tasks=[1], of=[1])

    assert session.queued == []
    assert future.result() == 7


def test_what_was_asked_for_and_cancelled_ends_cancelled_when_it_is_lost(inbox: Inbox, session: Any, add: Add) -> None:
    future = add(1)
    session.outbox.begin("abc", 2, {1: future})
    future._cancel_asked = True
    tell(inbox, "lost", tasks=[1], of=[1])

    assert future.cancelled()


def test_a_record_that_vanishes_again_and_again_is_lost(inbox: Inbox, session: Any, add: Add) -> None:
    future = add(1)
    for _ in range(RESENDS):
        tell(inbox, "lost", tasks=[1])
        future._batch = 1
    assert session.queued == [future] * RESENDS
    tell(inbox, "lost", tasks=[1])

    assert isinstance(future.exception(), TaskLostError)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"worker":"w","rows":[[]]}', b'{"worker":"w","rows":3}'])
def test_an_entry_that_cannot_be_understood_is_passed_over(
    inbox: Inbox, add: Add, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    future = add(2)
    inbox.handle(b"outcomes", body)
    inbox.handle(b"of a newer version", b"{}")
    outcome(inbox, 2, payload=value(1))

    assert "could not be understood" in caplog.text
    assert future.result() == 1
