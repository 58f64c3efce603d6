"""Batches: what one request carries, and that it is the message that the models describe."""

from __future__ import annotations

import math
from collections import deque
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from gristmill.client.batches import cut_batch, functions_of, latest_dependency, tasks_body
from gristmill.client.functions import FunctionObject
from gristmill.client.future import FINISHED, Future
from gristmill.client.options import LONGEST_MILLISECONDS, lane_of, python_tag, task_options
from gristmill.client.serializer import LargeCall
from gristmill.protocol.kinds import BATCH_BYTES, BATCH_TASKS, TASK_COLUMNS
from gristmill.protocol.messages import TaskOptions, TasksMessage

SESSION: Any = SimpleNamespace(client_id="abc", serializer=None)


def function_named(name: str, object_id: str = "abc.f1-1") -> FunctionObject:
    found = FunctionObject(name, b"", None, deque())
    found.object_id = object_id
    return found


SQRT = function_named("sqrt")


def task(number: int, function: FunctionObject = SQRT, call: str | None = "AAAA", **options: Any) -> Future:
    future = Future(SESSION, number, function, options or None)
    future._call = call
    return future


def body_of(rows: list[Future], batch: int = 1) -> Any:
    return orjson.loads(tasks_body("abc", 1, batch, "python3.11", rows, functions_of(rows)))


def test_a_batch_holds_a_hundred_tasks_at_most() -> None:
    waiting = deque(task(number) for number in range(BATCH_TASKS * 2 + 1))

    assert [len(cut_batch(waiting)) for _ in range(4)] == [BATCH_TASKS, BATCH_TASKS, 1, 0]


def test_a_batch_stops_when_it_has_its_bytes() -> None:
    waiting = deque(task(number, call="A" * 5000) for number in range(BATCH_TASKS))
    rows = cut_batch(waiting)

    assert BATCH_BYTES // 5048 <= len(rows) <= BATCH_BYTES // 5048 + 1
    assert len(tasks_body("abc", 1, 1, "python3.11", rows, functions_of(rows))) < BATCH_BYTES + 8192


def test_what_is_settled_or_sent_already_is_left_out() -> None:
    settled, sent, waiting = task(1), task(2), task(3)
    settled._settle(FINISHED)
    settled._forget_call()
    sent._batch = 4

    assert cut_batch(deque([settled, sent, waiting])) == [waiting]


def test_a_body_is_the_message_that_schedulers_expect() -> None:
    other = function_named("other", "abc.f2-1")
    rows = [task(1), task(2, other), task(3), task(4, SQRT, "BBBB", priority=5, retries=2)]
    body = body_of(rows, 7)

    message = TasksMessage.model_validate(body)
    assert (message.client, message.batch, message.lane, message.after) == ("abc", 7, "python3.11", 0)
    assert message.functions == [("abc.f1-1", "sqrt"), ("abc.f2-1", "other")]
    assert message.tasks == [
        [1, 0, "AAAA"],
        [2, 1, "AAAA"],
        [3, 0, "AAAA"],
        [4, 0, "BBBB", {"priority": 5, "retries": 2}],
    ]
    assert len(TASK_COLUMNS) == 4


def test_a_large_call_is_named_in_the_options() -> None:
    future = task(1, call=None)
    future._large = LargeCall(b"x" * 5000, (), {}, keep=False)
    future._large.object_id, future._large.object_size = "abc.c1-1", 5000

    (row,) = body_of([future])["tasks"]
    assert row == [1, 0, None, {"object": "abc.c1-1", "size": 5000}]
    TaskOptions.model_validate(row[3])


def test_dependencies_are_named_once_each_and_the_latest_batch_of_theirs_goes_before() -> None:
    first, second, third = task(1), task(2), task(3)
    first._batch, second._batch = 3, 5
    future = task(4, priority=1)
    future._dependencies = (first, second, third)
    third._batch = future._batch = 6

    body = body_of([third, future], 6)
    assert body["after"] == 5
    assert body["tasks"][1][3] == {"priority": 1, "dependencies": [f.task_id for f in (first, second, third)]}
    second._settle(FINISHED)
    assert latest_dependency([third, future], 6) == (3, {})


def test_options_travel_only_where_they_differ() -> None:
    assert task_options() is None
    assert task_options(priority=0, retries=0, capabilities={}) is None
    options = task_options(
        priority=-5, capabilities=["gpu"], retries=3, retry_delay=0.5, retry_on=(OSError, ValueError), timeout=2,
        max_deaths=1, tags=["nightly"],
    )  # fmt: skip
    assert options == {
        "priority": -5,
        "lane": lane_of(["gpu"]),
        "retries": 3,
        "retry_delay_ms": 500,
        "max_deaths": 1,
        "about": {"tags": ["nightly"]},
        "run": {"timeout_ms": 2000, "retry_on": ["builtins.OSError", "builtins.ValueError"]},
    }
    TaskOptions.model_validate(options)


def test_a_lane_has_all_names_in_order_the_python_among_them() -> None:
    assert lane_of(None) == python_tag()
    assert lane_of({"zoo": 1, "gpu": 2}) == ",".join(sorted(["gpu", python_tag(), "zoo"]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"priority": 1001}, "expected priority to be a whole number from -1000 to 1000; got 1001"),
        ({"priority": 1.5}, "expected priority"),
        ({"priority": True}, "expected priority"),
        ({"retries": -1}, "expected retries"),
        ({"timeout": 0}, "expected timeout to be a finite number of seconds, at least 0.001; got"),
        ({"timeout": math.nan}, "expected timeout to be a finite number of seconds, at least 0.001; got"),
        ({"timeout": math.inf}, "expected timeout to be a finite number of seconds, at least 0.001; got inf; give"),
        ({"retry_delay": math.inf}, "expected retry_delay to be a finite number of seconds, at least 0; got inf; give"),
        ({"retry_delay": -1}, "expected retry_delay"),
        ({"max_deaths": 0}, "expected max_deaths"),
        ({"tags": ["x" * 41]}, "expected at most 5 tags of 1 to 40 characters"),
        ({"tags": [""]}, "expected at most 5 tags"),
        ({"tags": list("abcdef")}, "expected at most 5 tags"),
        ({"capabilities": ["a,b"]}, "expected capability names"),
        ({"capabilities": [""]}, "expected capability names"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        task_options(**options)


def test_only_exceptions_can_be_retried() -> None:
    with pytest.raises(TypeError, match="expected retry_on to be an exception class"):
        task_options(retry_on=(OSError, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [1e9, 1e306, 10**400])
def test_a_time_of_ages_is_cut_to_what_the_schedulers_take(seconds: float) -> None:
    assert task_options(retry_delay=seconds, timeout=seconds) == {
        "retry_delay_ms": LONGEST_MILLISECONDS,
        "run": {"timeout_ms": LONGEST_MILLISECONDS},
    }
