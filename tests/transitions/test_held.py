"""held: after another server has taken over, what a worker was given and does not hold goes back."""

from __future__ import annotations

import pytest

from gristmill.protocol.keys import GROUP_PROCESSORS, GROUP_SCHEDULERS
from gristmill.protocol.kinds import Request
from support.driver import Driver, PlayedClient, PlayedWorker, numbers


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


@pytest.fixture
def worker(driver: Driver) -> PlayedWorker:
    return driver.worker(2)


def held(worker: PlayedWorker, *rows: tuple[str, int], number: int = 1) -> str:
    """The worker says what its processor 1 holds, as (task, attempt)."""
    tasks = [[task, attempt, f"{worker.id}|1"] for task, attempt in rows]
    return worker.driver.request(Request.HELD, {"worker": worker.id, "number": number, "tasks": tasks})


def settled(worker: PlayedWorker) -> list[int]:
    return [body["number"] for kind, body in worker.control() if kind == "settled"]


def pending(worker: PlayedWorker) -> dict[str, str]:
    """Tasks that are on record as delivered, with the processor."""
    database, key = worker.driver.database, worker.driver.keys.worker_tasks(worker.id)
    entries = {entry.id: entry.fields["task"] for entry in worker.entries()}
    return {entries[item.id]: item.consumer.rpartition("|")[2] for item in database.pending(key, GROUP_PROCESSORS)}


def test_what_was_delivered_and_is_not_held_goes_back_uncharged(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2, 3)
    worker.read(2)
    assert held(worker, (client.task(1), 1)) == "applied"

    assert driver.record(client.task(2))["attempt"] == "2"
    assert "deaths" not in driver.record(client.task(2))
    assert numbers(worker.queue()) == [1, 3, 2]
    assert pending(worker) == {client.task(1): "1"}
    assert settled(worker) == [1]


def test_what_is_not_held_while_it_is_cancelled_is_cancelled(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    client.cancel(1)
    assert held(worker) == "applied"

    assert client.outcome(1).state == "canceled"


def test_what_is_held_although_its_delivery_was_lost_is_not_delivered_again(
    client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2, 3)
    assert held(worker, (client.task(2), 1)) == "applied"

    assert pending(worker) == {client.task(2): "1"}
    # The first had been delivered as well, and is not held: it has come back as another attempt.
    assert [entry.fields["task"] for entry in worker.read(5, processor=2)] == [client.task(3), client.task(1)]


def test_an_entry_under_another_name_goes_to_the_processor_that_holds_it(
    client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read(1, processor=2)
    held(worker, (client.task(1), 1))

    assert pending(worker) == {client.task(1): "1"}


def test_another_attempt_than_that_on_record_is_not_held(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    held(worker, (client.task(1), 7))

    assert driver.record(client.task(1))["attempt"] == "2"


def test_outcomes_that_were_sent_before_count_first(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    row = [client.task(1), 1, "success", "gAVLAS4=", 1, 1, 1, None]
    driver.send(Request.OUTCOMES, {"worker": worker.id, "outcomes": [row]})
    driver.send(Request.HELD, {"worker": worker.id, "number": 1, "tasks": []})
    outcome, request = driver.read("results")
    before = driver.snapshot()

    assert driver.apply_entry("results", request) == "early"
    assert driver.snapshot() == before
    assert driver.apply_entry("results", outcome) == "applied"
    assert driver.apply_entry("results", request) == "applied"
    assert client.outcome(1).state == "success"


def test_sent_twice_it_takes_nothing_back_that_was_read_meanwhile(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    held(worker)
    worker.read()

    assert held(worker) == "duplicate"
    assert driver.record(client.task(1))["attempt"] == "1"
    assert settled(worker) == [1]


def test_a_worker_that_is_not_known_is_told_to_register_anew(driver: Driver) -> None:
    worker = PlayedWorker(driver)
    assert held(worker) == "unknown"

    assert worker.control() == [("unknown", {})]


def test_a_long_list_of_what_is_not_held_takes_several_slices(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    worker.beat(1000)
    for first in range(0, 1000, 100):
        client.submit(*range(first, first + 100))
    worker.read(1000)
    driver.send(Request.HELD, {"worker": worker.id, "number": 1, "tasks": [[client.task(3), 1, f"{worker.id}|1"]]})
    (request,) = driver.read("results")
    driver.apply_entry("results", request)
    assert settled(worker) == []

    driver.settle()
    assert settled(worker) == [1]
    assert pending(worker) == {client.task(3): "1"}
    assert len(worker.queue()) + len(driver.ready()) == 1000


def test_of_a_long_list_the_odd_rows_are_set_aside_once(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    worker.beat(1000)
    for first in range(0, 1000, 100):
        client.submit(*range(first, first + 100))
    worker.read(1000)
    row = f'["{client.task(3)}",1,"{worker.id}|1"]'
    body = f'{{"version":1,"worker":"{worker.id}","number":1,"tasks":[["{client.task(4)}",1e999,"p"],{row}]}}'
    assert driver.request(Request.HELD, body.encode()) == "applied"

    driver.settle()
    assert pending(worker) == {client.task(3): "1"}
    assert len(driver.quarantine()) == 1


def test_a_list_without_form_is_set_aside(driver: Driver, worker: PlayedWorker) -> None:
    assert driver.request(Request.HELD, {"worker": worker.id, "number": 1, "tasks": "all"}) == "malformed"
    assert driver.request(Request.HELD, {"worker": worker.id, "number": 1, "tasks": [1]}) == "applied"
    assert len(driver.quarantine()) == 2


def test_a_worker_that_is_being_cleared_is_told_to_register_anew(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(250)
    for first in range(0, 250, 50):
        client.submit(*range(first, first + 50))
    worker.read(250)
    driver.send(Request.END_WORKER, {"worker": worker.id, "reason": "expired"})
    (end,) = driver.read("continued")
    driver.apply_entry("continued", end)
    left = worker.entries()
    assert left

    assert held(worker) == "unknown"
    assert worker.beat(250) == "unknown"
    assert worker.entries() == left
    assert settled(worker) == []


def test_what_is_left_for_the_next_slice_does_not_wait_for_later_outcomes(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    worker.beat(600)
    for first in range(0, 600, 100):
        client.submit(*range(first, first + 100))
    worker.read(600)
    held(worker)
    later = f"{driver.now_ms() + 5000}-0"
    driver.database.run("XADD", driver.keys.results(), later, "outcomes", b'{"version":2}')
    (request,) = driver.read("continued")

    assert driver.apply_entry("continued", request) == "applied"
    assert settled(worker) == [1]
    driver.database.run("XTRIM", driver.keys.results(), "MAXLEN", 0)


def test_it_does_not_wait_for_ever_for_an_outcome_that_nobody_here_understands(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    now = driver.now_ms()
    body = f'{{"version":1,"worker":"{worker.id}","number":1,"tasks":[]}}'
    for kind, age, text in (("outcomes", 90_000, '{"version":2}'), ("held", 80_000, body)):
        driver.database.run("XADD", driver.keys.results(), f"{now - age}-0", kind, text)
    outcome, request = driver.read("results")

    assert driver.apply_entry("results", request) == "applied"
    driver.database.run("XACK", driver.keys.results(), GROUP_SCHEDULERS, outcome.id)
    driver.database.run("XDEL", driver.keys.results(), outcome.id)


def test_a_slice_that_two_replicas_apply_takes_nothing_back_that_was_read_meanwhile(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    worker.beat(600)
    for first in range(0, 600, 100):
        client.submit(*range(first, first + 100))
    worker.read(600)
    held(worker)
    (request,) = driver.read("continued")
    driver.apply_entry("continued", request)
    worker.read(600)
    before = pending(worker)
    assert before

    assert driver.apply_entry("continued", request) == "duplicate"
    assert pending(worker) == before
    assert settled(worker) == [1]


@pytest.mark.parametrize("order", [(1, 3), (3, 1)])
def test_up_to_the_last_that_is_held_all_count_as_delivered_in_whatever_order_they_are_named(
    driver: Driver, client: PlayedClient, worker: PlayedWorker, order: tuple[int, int]
) -> None:
    client.submit(1, 2, 3)
    held(worker, *((client.task(number), 1) for number in order))

    assert pending(worker) == {client.task(1): "1", client.task(3): "1"}
    assert [entry.fields["task"] for entry in worker.read(5, processor=2)] == [client.task(2)]


def test_a_claimed_task_that_is_held_delivers_nothing(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2, 3, 4)
    client.claim(worker, 4)
    held(worker, (client.task(4), 1))

    assert pending(worker) == {}
    assert [driver.record(client.task(number))["attempt"] for number in (1, 2, 3, 4)] == ["1"] * 4


def test_an_earlier_list_that_comes_late_takes_nothing_back(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    held(worker, number=2)
    client.submit(1)
    worker.read()

    assert held(worker, number=1) == "duplicate"
    assert pending(worker) == {client.task(1): "1"}


def test_a_worker_whose_stream_was_lost_is_told_to_register_anew(driver: Driver, worker: PlayedWorker) -> None:
    driver.database.run("DEL", driver.keys.worker_tasks(worker.id))

    assert held(worker) == "unknown"
    worker.lose()


def test_what_is_held_although_its_entry_is_gone_delivers_what_there_is(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2)
    driver.database.run("XDEL", driver.keys.worker_tasks(worker.id), worker.entries()[1].id)
    assert held(worker, (client.task(1), 1), (client.task(2), 1)) == "applied"

    assert pending(worker) == {client.task(1): "1"}
    driver.duty("check_tasks", client.task(2))
    assert sorted(numbers(worker.queue())) == [1, 2]


def test_what_is_pending_although_its_entry_is_gone_is_listed_no_longer(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    (entry,) = worker.read()
    key = driver.keys.worker_tasks(worker.id)
    driver.database.run("XDEL", key, entry.id)
    assert held(worker) == "applied"

    assert driver.database.pending(key, GROUP_PROCESSORS) == []
    driver.duty("check_tasks", client.task(1))
    assert numbers(worker.queue()) == [1]


def test_a_stale_entry_that_is_not_held_goes_and_its_task_stays_where_it_is(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    stale = f"{client.task(1)} 0 - {client.function} tests.function"
    driver.database.run("XADD", driver.keys.worker_tasks(worker.id), "*", "task", stale)
    client.submit(1)
    other = driver.worker(0)
    entry = worker.entries()[1]
    driver.database.run("XADD", driver.keys.worker_tasks(other.id), entry.id, "task", stale)
    worker.read()
    other.read()
    held(worker)
    held(other)

    assert (numbers(worker.queue()), other.queue(), driver.ready()) == ([1], [], [])
    assert driver.record(client.task(1))["attempt"] == "1"
