"""result: what is late, foreign, sent twice or cannot be understood changes nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import (
    CALL,
    FAILURE,
    VALUE,
    Driver,
    PlayedClient,
    PlayedWorker,
)

# --- what changes nothing -----------------------------------------------------------------------------------


@pytest.fixture
def running(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> str:
    client.submit([1, 0, CALL, {"retries": 3}], 2)
    worker.read()
    return client.task(1)


def test_an_outcome_that_is_sent_twice_counts_once(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, running: str
) -> None:
    row = worker.row(running)
    worker.send_outcomes(row, row)
    worker.send_outcomes(row)

    assert [outcome.number for outcome in client.outcomes()] == [1]
    assert driver.counts()["stale:outcomes"] == 2
    assert driver.counts()["state:success"] == 1


def test_the_same_entry_is_applied_once_whichever_replica_applies_it(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, running: str
) -> None:
    driver.send(Request.OUTCOMES, {"worker": worker.id, "outcomes": [worker.row(running)]})
    (entry,) = driver.read("results")
    assert driver.apply_entry("results", entry) == "applied"
    before = driver.snapshot()

    assert driver.apply_entry("results", entry) == "duplicate"
    assert driver.snapshot() == before


@pytest.mark.parametrize("attempt", [0, 2, 1e14, -1, 1.5])
def test_an_outcome_of_another_attempt_changes_nothing(
    driver: Driver, worker: PlayedWorker, running: str, attempt: float
) -> None:
    before = driver.snapshot()
    row = worker.row(running)
    row[1] = attempt
    worker.send_outcomes(row)

    assert driver.snapshot() == before
    assert driver.counts()["stale:outcomes"] == 1


def test_an_outcome_of_another_worker_changes_nothing(driver: Driver, running: str) -> None:
    other = driver.worker(1)
    before = driver.snapshot()
    other.succeed(running)

    assert driver.snapshot() == before
    assert driver.counts()["stale:outcomes"] == 1


def test_an_outcome_of_a_worker_that_nobody_knows_changes_nothing(driver: Driver, running: str) -> None:
    before = driver.snapshot()
    PlayedWorker(driver, "here|1|nobody|000000").succeed(running)

    assert driver.snapshot() == before


def test_a_late_outcome_of_a_lost_worker_changes_nothing(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, running: str
) -> None:
    row = worker.row(running)
    worker.lose()
    other = driver.worker(1)
    assert other.queue()[0] == running
    worker.send_outcomes(row)
    assert client.outcomes() == []

    other.read()
    other.succeed(running)
    worker.send_outcomes(row)
    assert client.outcome(1)[:3] == (1, 2, "success")


def test_an_outcome_of_a_task_that_waits_changes_nothing(driver: Driver, client: PlayedClient) -> None:
    client.submit(1)
    worker = driver.worker(0)
    before = driver.snapshot()
    worker.succeed(client.task(1))

    assert driver.snapshot() == before


# --- what cannot be understood ------------------------------------------------------------------------------

BAD_ROWS: dict[str, Any] = {
    "no list": 5,
    "null": None,
    "empty": [],
    "no task": [None, 1, "success", VALUE, 1, 1, 1, None],
    "a task with a space": ["a b", 1, "success", VALUE, 1, 1, 1, None],
    "an unknown status": ["T", 1, "perhaps", VALUE, 1, 1, 1, None],
    "no base64": ["T", 1, "success", 'x"],["', 1, 1, 1, None],
    "a payload that is a number": ["T", 1, "success", 7, 1, 1, 1, None],
    "an object with a space": ["T", 1, "success", {"object": "a b", "size": 1}, 1, 1, 1, None],
    "an object without size": ["T", 1, "success", {"object": "a-1"}, 1, 1, 1, None],
    "a negative duration": ["T", 1, "success", VALUE, -1, 1, 1, None],
    "a duration that is text": ["T", 1, "success", VALUE, "1", 1, 1, None],
    "a huge duration": ["T", 1, "success", VALUE, 1e300, 1, 1, None],
    "too short": ["T", 1, "success"],
    "text for an attempt": ["T", "1", "success", VALUE, 1, 1, 1, None],
}


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_set_aside_and_the_rest_of_its_batch_counts(driver: Driver, bad: Any) -> None:
    client, worker = driver.client(), driver.worker(2)
    client.submit(1, 2)
    worker.read(2)
    row = [client.task(1) if item == "T" else item for item in bad] if isinstance(bad, list) else bad

    assert worker.send_outcomes(row, worker.row(client.task(2))) == "applied"
    assert client.outcome(2).state == "success"
    assert len(driver.quarantine()) == 1


def test_a_bad_row_whose_attempt_cannot_be_read_is_nobodys(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()

    assert worker.send_outcomes([client.task(1), "1", "success", VALUE, 1, 1, 1, None]) == "applied"
    assert driver.state(client.task(1)) == "running"
    assert not [name for name in driver.counts() if name.startswith("stale")]


@pytest.mark.parametrize("number", [b"1e999", b"NaN", b"-1e999"])
def test_a_row_with_a_number_that_is_none_is_set_aside(driver: Driver, number: bytes) -> None:
    client, worker = driver.client(), driver.worker(2)
    client.submit(1, 2)
    worker.read(2)
    row = b'["%s",1,"success","AA==",%s,1,1,null]'
    rows = row % (client.task(1).encode(), number), row % (client.task(2).encode(), b"1")
    body = b'{"version":1,"worker":"%s","outcomes":[%s]}' % (worker.id.encode(), b",".join(rows))

    assert driver.request(Request.OUTCOMES, body) == "applied"
    assert client.outcome(2).state == "success"
    assert [aside["reason"] for aside in driver.quarantine()] == ["expected a number"]


def test_a_row_that_cannot_be_understood_fails_its_task(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    worker.send_outcomes([client.task(1), 1, "success", 'x"]', 1, 1, 1, None])

    assert client.outcome(1).state == "failed"
    assert worker.entries() == []


def test_errors_that_are_cut_stay_readable(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    worker.send_outcomes([client.task(1), 1, "failed", FAILURE, 1, 1, 1, "x" + "ä" * 400])

    assert driver.events()[-1][8].startswith("xää")


def test_an_error_by_name_is_carried_as_text_whatever_it_says(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    payload = {"error": "ProcessorDiedError", "message": 'signal "9"\\ \x00 ä'}
    worker.send_outcomes([client.task(1), 1, "failed", payload, 1, 1, 1, None])

    assert client.outcome(1).payload == payload


def test_a_batch_far_beyond_the_limit_is_applied_or_refused_whole(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    rows = [worker.row(client.task(1)), *(worker.row(client.task(number), attempt=1) for number in range(2, 9001))]

    word = worker.send_outcomes(*rows)
    assert (word, driver.state(client.task(1))) in (("applied", ""), ("malformed", "running"))


def test_more_than_a_thousand_outcomes_are_refused(driver: Driver) -> None:
    worker = driver.worker(1)
    rows = [worker.row(f"abcdefghij.{number:07d}", attempt=1) for number in range(1001)]

    assert worker.send_outcomes(*rows) == "malformed"
    assert worker.send_outcomes(*rows[:1000]) == "applied"


@pytest.mark.parametrize("columns", [7, 8])
def test_a_success_has_no_error_in_its_story(driver: Driver, columns: int) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    worker.send_outcomes(worker.row(client.task(1))[:columns])
    (ended,) = [row for row in driver.events() if row[1] == "success"]

    assert [column for column in ended[5:] if isinstance(column, str)] == []
