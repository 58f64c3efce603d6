"""cancel: a waiting or unread task ends at once; of a held one the worker is asked."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, LONG_CALL, Driver, PlayedClient, PlayedWorker, numbers


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


def test_a_waiting_task_is_canceled_at_once(driver: Driver, client: PlayedClient) -> None:
    client.submit(1, [2, 0, LONG_CALL, None])

    assert client.cancel(1, 2) == "applied"
    assert [(outcome.number, outcome.state, outcome.payload) for outcome in client.outcomes()] == [
        (1, "canceled", None),
        (2, "canceled", None),
    ]
    assert driver.ready() == []
    assert driver.database.keys(driver.keys.task("")) == []
    assert driver.database.keys(driver.keys.payload("")) == []


def test_an_unread_task_is_canceled_at_once_and_never_starts(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit(1, 2, 3)
    client.cancel(1)

    assert client.outcome(1).state == "canceled"
    assert 1 not in numbers(entry.fields["task"] for entry in worker.read(10))


def test_a_place_that_a_cancel_frees_is_filled(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit(1, 2, 3)
    client.cancel(1)

    assert numbers(worker.queue()) == [2, 3]


def test_of_a_held_task_the_worker_is_asked(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    client.cancel(1)

    assert driver.state(client.task(1)) == "canceling"
    assert client.outcomes() == []
    assert worker.asked("cancel") == [{"version": 1, "task": client.task(1), "attempt": 1, "request": 1}]


def test_a_second_cancel_asks_nobody_again(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    client.cancel(1)
    client.cancel(1)

    assert len(worker.asked("cancel")) == 1
    assert driver.record(client.task(1))["request"] == "1"


def test_a_task_that_is_named_twice_is_canceled_once(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit(1, 2, 3)
    worker.read()
    client.cancel(1, 1, 2, 2, 3, 3)

    assert sorted(outcome.number for outcome in client.outcomes()) == [2, 3]
    assert len(worker.asked("cancel")) == 1
    assert driver.counts()["state:canceled"] == 2


def test_a_task_behind_dependencies_is_canceled_and_taken_off_them(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit(1, [2, 0, CALL, {"dependencies": [client.task(1)]}])
    client.cancel(2)
    assert client.outcome(2).state == "canceled"
    assert driver.database.set(driver.keys.dependents(client.task(1))) == set()

    worker.read()
    worker.succeed(client.task(1))
    assert driver.record(client.task(1)) == {}


def test_a_cancel_cancels_everything_downstream(driver: Driver, client: PlayedClient) -> None:
    client.submit(
        1,
        [2, 0, CALL, {"dependencies": [client.task(1)]}],
        [3, 0, CALL, {"dependencies": [client.task(2)]}],
    )
    client.cancel(1)

    assert {(outcome.number, outcome.state, outcome.because) for outcome in client.outcomes()} == {
        (1, "canceled", None),
        (2, "canceled", client.task(1)),
        (3, "canceled", client.task(2)),
    }
    assert driver.database.keys(driver.keys.task("")) == []


def test_a_delayed_retry_is_canceled(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit([1, 0, CALL, {"retries": 1, "retry_delay_ms": 60_000}])
    worker.read()
    worker.retry(client.task(1))
    client.cancel(1)

    assert client.outcome(1).state == "canceled"
    assert driver.database.zset(driver.keys.delayed()) == {}


def test_a_cancel_of_a_finished_task_changes_nothing_and_says_unknown(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    worker.succeed(client.task(1))
    client.cancel(1)

    assert [outcome.state for outcome in client.outcomes()] == ["success"]
    assert client.told("unknown") == [{"tasks": [1]}]


def test_a_cancel_of_a_finished_task_whose_value_is_still_needed_changes_nothing(
    driver: Driver, client: PlayedClient
) -> None:
    worker = driver.worker(1)
    client.submit(1, [2, 0, CALL, {"dependencies": [client.task(1)]}])
    worker.read()
    worker.succeed(client.task(1))
    client.cancel(1)

    assert client.outcome(1).state == "success"
    assert driver.state(client.task(2)) == "running"


def test_a_cancel_waits_for_the_batch_that_it_needs(driver: Driver, client: PlayedClient) -> None:
    batch = client.body([1])
    driver.send(Request.CANCEL, {"client": client.id, "tasks": [client.task(1)], "after": 1, "reason": ""})
    (entry,) = driver.read("cancels")
    before = driver.snapshot()
    assert driver.apply_entry("cancels", entry) == "early"
    assert driver.snapshot() == before

    driver.request(Request.TASKS, batch)
    assert driver.apply_entry("cancels", entry) == "applied"
    assert client.outcome(1).state == "canceled"


def test_a_cancel_of_tasks_of_several_batches_waits_for_all_up_to_the_last(
    driver: Driver, client: PlayedClient
) -> None:
    first, second = client.body([1]), client.body([2])
    driver.request(Request.TASKS, second)
    tasks = [client.task(1), client.task(2)]
    driver.send(Request.CANCEL, {"client": client.id, "tasks": tasks, "after": 2, "reason": ""})
    (entry,) = driver.read("cancels")
    assert driver.apply_entry("cancels", entry) == "early"

    driver.request(Request.TASKS, first)
    assert driver.apply_entry("cancels", entry) == "applied"
    assert [client.outcome(number).state for number in (1, 2)] == ["canceled", "canceled"]


def test_a_cancel_for_a_client_that_is_gone_waits_for_nothing(driver: Driver) -> None:
    body = {"client": "nobody", "tasks": ["nobody.0000001"], "after": 5, "reason": ""}

    assert driver.request(Request.CANCEL, body) == "applied"


def test_a_person_may_cancel(driver: Driver, client: PlayedClient) -> None:
    client.submit(1)
    driver.request(Request.CANCEL, {"tasks": [client.task(1)]})

    assert client.outcome(1).state == "canceled"


def test_more_than_a_slice_is_left_to_the_next_one(driver: Driver, client: PlayedClient) -> None:
    for start in range(1, 1201, 100):
        client.submit(*range(start, start + 100))
    client.cancel(*range(1, 1201))
    assert driver.counts()["state:inactive"] >= 600
    assert driver.database.length(driver.keys.continued()) == 1

    driver.settle()
    assert driver.counts()["state:canceled"] == 1200
    assert "state:inactive" not in driver.counts()


@pytest.mark.parametrize(
    "bad", [5, None, "", "no dot", "a.b", "a.1.2x", "x" * 300, {"task": 1}, ["a.1"], "a.*", "a.1\n"]
)
def test_a_bad_id_is_set_aside_and_the_others_count(driver: Driver, client: PlayedClient, bad: Any) -> None:
    client.submit(1)
    driver.request(Request.CANCEL, {"client": client.id, "tasks": [bad, client.task(1)], "after": 0, "reason": ""})

    assert client.outcome(1).state == "canceled"
    assert len(driver.quarantine()) == 1


def test_the_last_processor_read_decides(driver: Driver, client: PlayedClient) -> None:
    worker: PlayedWorker = driver.worker(1)
    client.submit(1, 2)
    worker.read()
    client.cancel(1, 2)

    assert (driver.state(client.task(1)), client.outcome(2).state) == ("canceling", "canceled")


def test_the_reason_stands_in_the_story(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read(1)
    tasks = [client.task(1), client.task(2)]
    driver.request(Request.CANCEL, {"tasks": tasks, "client": "", "after": 0, "reason": "wrong input"})

    reasons = {row[0]: row[8] for row in driver.events() if row[1] in ("canceling", "canceled")}
    assert reasons == {tasks[0]: "wrong input", tasks[1]: "wrong input"}


def test_what_a_person_cancels_is_in_the_audit_and_what_a_client_cancels_is_not(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, 2)
    client.cancel(1)
    assert driver.audit() == []

    driver.request(Request.CANCEL, {"tasks": [client.task(2)], "by": "ada", "reason": "wrong input"})

    (order,) = driver.audit()
    assert order == {
        "action": "cancel", "target": client.task(2), "by": "ada", "reason": "wrong input", "answer": "inactive"
    }  # fmt: skip


def test_a_client_cancels_only_its_own_tasks(driver: Driver, client: PlayedClient) -> None:
    other = driver.client()
    client.submit(1)
    body = {"client": other.id, "tasks": [client.task(1)], "after": 0, "reason": ""}

    assert driver.request(Request.CANCEL, body) == "applied"
    assert driver.state(client.task(1)) == "inactive"
    assert other.told("unknown") == [{"tasks": [1]}]


def test_of_known_tasks_nothing_is_said(driver: Driver, client: PlayedClient) -> None:
    client.submit(1, 2)
    client.cancel(1, 2)

    assert client.told("unknown") == []


def test_a_person_may_name_a_task_that_nobody_knows(driver: Driver, client: PlayedClient) -> None:
    assert driver.request(Request.CANCEL, {"client": "", "tasks": [client.task(7)], "after": 0}) == "applied"


def test_a_cancel_of_what_has_ended_or_is_being_cancelled_is_no_refusal_of_the_table(
    driver: Driver, client: PlayedClient
) -> None:
    worker = driver.worker(2)
    client.submit(1, 2, [3, 0, CALL, {"dependencies": [client.task(1), client.task(2)]}])
    worker.read(2)
    worker.succeed(client.task(1))
    client.cancel(1, 2)
    client.cancel(1, 2)

    assert driver.state(client.task(1)) == "success", "its value is needed"
    assert driver.state(client.task(2)) == "canceling"
    assert [name for name in driver.counts() if name.startswith("refused:")] == []


def test_tasks_that_need_much_are_cancelled_in_slices(driver: Driver, client: PlayedClient) -> None:
    needed = [client.task(number) for number in range(1, 101)]
    client.submit(*range(1, 101))
    client.submit(*([200 + n, 0, CALL, {"dependencies": needed}] for n in range(8)), after=client.batch)
    client.cancel(*range(200, 208), after=client.batch)

    assert 0 < len(client.outcomes()) < 8
    driver.settle()
    assert sorted(outcome.number for outcome in client.outcomes()) == list(range(200, 208))


def test_of_very_many_the_odd_ones_are_set_aside_in_their_slice(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)
    text = ",".join(['"nobody.0000001"'] * 500 + ["1e999", "{}", f'"{client.task(1)}"'])
    body = f'{{"version":1,"client":"","tasks":[{text}],"reason":1e999}}'

    assert driver.request(Request.CANCEL, body.encode()) == "applied"
    driver.settle()
    assert client.outcome(1).state == "canceled"
    assert len(driver.quarantine()) == 2


def test_a_person_waits_for_no_batch(driver: Driver, client: PlayedClient) -> None:
    client.submit(1)

    assert driver.request(Request.CANCEL, {"client": "", "tasks": [client.task(1)], "after": 5}) == "applied"
    assert client.outcome(1).state == "canceled"


def test_a_person_may_cancel_a_task_that_is_still_on_its_way(driver: Driver, client: PlayedClient) -> None:
    driver.send(Request.TASKS, client.body([1]))
    driver.send(Request.CANCEL, {"client": "", "tasks": [None, client.task(1)]})
    (batch,) = driver.read("submit")
    (order,) = driver.read("cancels")
    assert driver.apply_entry("cancels", order) == "early"
    assert driver.quarantine() == []

    assert driver.apply_entry("submit", batch) == "applied"
    assert driver.apply_entry("cancels", order) == "applied"
    assert client.outcome(1).state == "canceled"


def test_of_what_a_person_cancels_the_odd_ones_are_not_in_the_audit(driver: Driver, client: PlayedClient) -> None:
    client.submit(1)
    tasks: list[Any] = [None, {}, 5, "a b", client.task(1)]

    assert driver.request(Request.CANCEL, {"tasks": tasks, "by": "ada"}) == "applied"
    assert [order["target"] for order in driver.audit()] == [client.task(1)]
    assert len(driver.quarantine()) == 4
