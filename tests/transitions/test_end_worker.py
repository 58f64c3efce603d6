"""end_worker: what a lost worker held moves on, in slices; what executed is charged with a death."""

from __future__ import annotations

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, LANE, Driver, numbers
from support.waiting import wait_until


def test_the_oldest_entry_of_each_processor_is_charged_and_nothing_else(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(3)
    client.submit(1, 2, 3, 4)
    worker.read(2, processor=1)
    worker.read(1, processor=2)
    worker.lose()

    deaths = {number: driver.record(client.task(number)).get("deaths", "0") for number in (1, 2, 3, 4)}
    assert deaths == {1: "1", 2: "0", 3: "1", 4: "0"}
    assert numbers(driver.ready()) == [1, 2, 3, 4]


def test_everything_goes_to_another_worker_as_the_next_attempt(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read()
    other = driver.worker(2)
    worker.lose()

    assert sorted(numbers(other.queue())) == [1, 2]
    assert {driver.record(client.task(number))["attempt"] for number in (1, 2)} == {"2"}


def test_after_its_last_death_the_task_fails_and_says_why(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)
    for _ in range(3):
        worker = driver.worker(1)
        driver.duty("run_alone", LANE)
        worker.read()
        worker.lose()

    outcome = client.outcome(1)
    assert (outcome.state, outcome.attempt) == ("failed_worker_died", 3)
    assert outcome.payload["error"] == "WorkerDiedError"
    assert worker.id in outcome.payload["message"]


def test_a_task_may_ask_for_fewer_deaths(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"max_deaths": 1}])
    worker.read()
    worker.lose()

    assert client.outcome(1).state == "failed_worker_died"


def test_waiting_tasks_may_be_passed_on_as_often_as_it_takes(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, 2)
    for _ in range(5):
        worker = driver.worker(2)
        assert len(worker.queue()) == 2
        worker.lose()

    assert numbers(driver.ready()) == [1, 2]


def test_what_was_being_cancelled_is_cancelled(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    client.cancel(1)
    worker.lose()

    assert client.outcome(1).state == "canceled"


def test_what_was_asked_back_goes_on(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read(2)
    other = driver.worker(1)
    driver.duty("balance", "python3.11")
    assert driver.state(client.task(2)) == "balance_canceling"
    worker.lose()

    assert sorted(numbers(other.queue())) == [1, 2]


def test_the_worker_is_told_in_case_it_comes_back(driver: Driver) -> None:
    worker = driver.worker(1)
    worker.lose()

    assert worker.record()["gone"] == "expired"
    assert worker.control()[-1] == ("unknown", {})
    assert not driver.database.exists(driver.keys.worker_tasks(worker.id))


def test_more_than_a_slice_is_left_to_the_next_one(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(300)
    for start in range(1, 301, 100):
        client.submit(*range(start, start + 100))
    worker.read(50, processor=1)
    words = worker.lose()

    assert [word for kind, word in words if kind == "end_worker"] == ["applied"] * 3
    assert len(driver.ready()) == 300


def test_more_processors_than_a_slice_are_each_charged_once(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(150)
    for start in range(1, 201, 100):
        client.submit(*range(start, start + 100))
    for processor in range(150):
        worker.read(1, processor=processor)
    worker.lose()

    charged = [number for number in range(1, 201) if "deaths" in driver.record(client.task(number))]
    assert charged == list(range(1, 151))


def test_it_waits_for_what_the_worker_had_reported(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    driver.send(Request.OUTCOMES, {"worker": worker.id, "outcomes": [worker.row(client.task(1))]})
    driver.send(Request.END_WORKER, {"worker": worker.id, "reason": "expired"})
    (end,) = driver.read("continued")
    before = driver.snapshot()

    assert driver.apply_entry("continued", end) == "early"
    assert driver.snapshot() == before
    (outcomes,) = driver.read("results")
    driver.apply_entry("results", outcomes)
    assert driver.apply_entry("continued", end) == "applied"
    assert client.outcome(1).state == "success"


def test_it_does_not_wait_for_what_was_reported_later(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    sent = driver.send(Request.END_WORKER, {"worker": worker.id, "reason": "expired"})
    wait_until(lambda: driver.now_ms() > int(sent.partition("-")[0]), "a millisecond has passed")
    driver.send(Request.OUTCOMES, {"worker": worker.id, "outcomes": [worker.row(client.task(1))]})
    (end,) = driver.read("continued")

    assert driver.apply_entry("continued", end) == "applied"
    driver.settle()
    assert driver.record(client.task(1))["deaths"] == "1"
    assert driver.counts()["stale:outcomes"] == 1


def test_a_worker_without_a_record_is_no_trouble(driver: Driver) -> None:
    assert driver.request(Request.END_WORKER, {"worker": "nobody", "reason": "expired"}) == "applied"


def test_a_task_whose_record_is_gone_leaves_nothing_in_the_stream(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read()
    driver.database.run("DEL", driver.keys.task(client.task(1)))
    driver.database.run("SREM", driver.keys.client_tasks(client.id), client.task(1))
    driver.database.run("HINCRBY", driver.keys.counts(), "state:running", -1)
    worker.lose()

    assert numbers(driver.ready()) == [2]


def test_of_what_one_processor_has_read_only_the_oldest_is_charged_however_many_slices_it_takes(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1, queue_size=1000)
    client.submit(1)
    worker.read()
    for number in range(1, 12):
        # Short tasks: its room doubles with each batch.
        worker.succeed(*worker.queue(), ms=0.01)
        client.submit(*range(number * 1000, number * 1000 + 90))
        worker.read(100)
    client.submit(*range(20_000, 20_100))
    client.submit(*range(20_100, 20_200))
    worker.read(1000)
    held = worker.entries()
    assert len(held) > 150, "more than a slice"
    worker.lose()

    charged = [entry.fields["task"] for entry in held if driver.record(entry.fields["task"]).get("deaths")]
    assert charged == [held[0].fields["task"]]


def test_an_entry_whose_task_has_moved_on_touches_nothing(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    (entry,) = worker.read()
    worker.give_back(client.task(1))
    assert numbers(worker.queue()) == [1], "it comes back as another attempt"
    other = driver.worker(1)
    for target, old in ((worker, entry), (other, entry)):
        packed = f"{client.task(1)} 1 - {client.function} tests.function"
        driver.database.run("XADD", driver.keys.worker_tasks(target.id), "*", "task", packed)
        assert old.fields["task"] == client.task(1)
    other.lose()
    assert (driver.state(client.task(1)), driver.record(client.task(1))["worker"]) == ("running", worker.id)
    worker.lose()

    assert driver.record(client.task(1))["attempt"] == "2"
    assert numbers(driver.ready()) == [1]


def test_a_group_that_is_gone_hinders_nobody(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    driver.database.run("XGROUP", "DESTROY", driver.keys.worker_tasks(worker.id), "processors")
    worker.lose()

    assert numbers(driver.ready()) == [1]


def test_an_entry_that_was_deleted_after_it_was_read_hinders_nobody(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(2)
    client.submit(1, 2)
    first, _ = worker.read(1, processor=1) + worker.read(1, processor=2)
    driver.database.run("XDEL", driver.keys.worker_tasks(worker.id), first.id)
    worker.lose()

    assert numbers(driver.ready()) == [2]
    client.disconnect()
    driver.database.run("DEL", driver.keys.task(client.task(1)))
    driver.database.run("SREM", driver.keys.client_tasks(client.id), client.task(1))
    driver.database.run("HINCRBY", driver.keys.counts(), "state:running", -1)


def test_it_does_not_wait_for_ever_for_an_old_report_that_nobody_here_understands(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    now = driver.now_ms()
    body = b'{"version":2}'
    driver.database.run("XADD", driver.keys.results(), f"{now - 90_000}-0", "outcomes", body)
    for stream, kind, age, word in (("continued", Request.END_WORKER, 80_000, "applied"),):
        text = f'{{"version":1,"worker":"{worker.id}","reason":"expired"}}'
        driver.database.run("XADD", getattr(driver.keys, stream)(), f"{now - age}-0", kind.value, text)
        (entry,) = driver.read(stream)
        assert driver.apply_entry(stream, entry) == word
    assert numbers(driver.ready()) == [1]
    driver.database.run("XTRIM", driver.keys.results(), "MAXLEN", 0)


@pytest.mark.parametrize("reason", [b"{}", b"1e999", b"null"])
def test_a_reason_that_is_none_is_the_end_of_the_lease(driver: Driver, reason: bytes) -> None:
    client, worker = driver.client(), driver.worker(200)
    for first in range(0, 400, 100):
        client.submit(*range(first, first + 100))

    body = b'{"version":1,"worker":"%s","reason":%s}' % (worker.id.encode(), reason)
    assert driver.request(Request.END_WORKER, body) == "applied"
    driver.settle()
    assert worker.record()["gone"] == "expired"
    assert len(driver.ready()) == 400


def test_an_end_that_comes_again_changes_neither_its_time_nor_its_reason(driver: Driver) -> None:
    worker = driver.worker(1)
    worker.lose()
    before = worker.record()

    assert driver.request(Request.END_WORKER, {"worker": worker.id, "reason": "left"}) == "applied"
    assert worker.record() == before


def test_an_entry_of_the_same_id_in_another_worker_s_stream_is_not_touched(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    (entry,) = worker.read()
    other = driver.worker(1)
    packed = f"{client.task(1)} 1 - {client.function} tests.function"
    driver.database.run("XADD", driver.keys.worker_tasks(other.id), entry.id, "task", packed)
    other.lose()

    assert (driver.state(client.task(1)), driver.record(client.task(1))["worker"]) == ("running", worker.id)
    assert worker.queue() == [client.task(1)]


def test_what_a_worker_said_last_may_be_anything(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"max_deaths": 1}])
    worker.read()
    driver.database.run("HSET", driver.keys.worker(worker.id), "heartbeat", "5")
    worker.lose()

    assert client.outcome(1).payload["error"] == "WorkerDiedError"


def test_of_a_worker_whose_record_is_gone_the_error_has_its_id_alone(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"max_deaths": 1}])
    worker.read()
    driver.database.run("DEL", driver.keys.worker(worker.id))
    driver.database.run("DEL", driver.keys.load(LANE))
    worker.lose()

    assert client.outcome(1).payload["message"].endswith(f"the last was {worker.id}")


def test_the_error_names_the_memory_of_the_task_s_own_processor(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(2)
    client.submit([1, 0, CALL, {"max_deaths": 1}])
    worker.read()
    task, mib = client.task(1), 1048576
    odd = [5, None, {"task": task}, {"task": task, "rss_bytes": "much"}, {"task": client.task(2), "rss_bytes": 7 * mib}]
    worker.beat(2, processors=[*odd, {"task": task, "rss_bytes": 40 * mib}])
    worker.lose()

    told = client.outcome(1).payload["message"]
    assert told.count("its processor used") == told.count("used 40 MiB") == 1


def test_an_entry_of_an_earlier_attempt_is_no_death(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    stale = f"{client.task(1)} 0 - {client.function} tests.function"
    driver.database.run("XADD", driver.keys.worker_tasks(worker.id), "*", "task", stale)
    client.submit(1)
    worker.read()
    worker.lose()

    assert driver.record(client.task(1)).get("deaths", "0") == "0"
    assert numbers(driver.ready()) == [1]


def test_only_what_was_read_is_suspected(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(3)
    client.submit(1, 2, 3)
    worker.read(2)
    worker.lose()

    assert [driver.record(client.task(number)).get("suspect") for number in (1, 2, 3)] == ["1", "1", None]


def test_a_task_that_is_not_claimed_any_more_stays_where_it_is(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(0)
    client.submit(1)
    other = driver.worker(1)
    client.submit(2, 3)
    for number in (1, 2, 3, 9):
        driver.database.run("SADD", driver.keys.worker_claimed(worker.id), client.task(number))
    worker.lose()

    assert (numbers(other.queue()), numbers(driver.ready())) == ([1, 2], [3])
    assert "deaths" not in driver.record(client.task(2))


def test_what_has_an_entry_is_not_charged_as_claimed(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(150)
    client.submit(*range(1, 151))
    driver.database.run("SADD", driver.keys.worker_claimed(worker.id), client.task(150))
    worker.lose()

    assert "deaths" not in driver.record(client.task(150))
    assert numbers(driver.ready()) == list(range(1, 151))


def test_more_claimed_tasks_than_a_slice_are_left_to_the_next_one(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(0)
    driver.request(Request.PAUSE, {"by": "ada", "paused": True})
    client.submit(*range(1, 151))
    for number in range(1, 151):
        client.claim(worker, number, claim=number)
    assert driver.ready() == []
    words = worker.lose()

    assert [word for kind, word in words if kind == "end_worker"] == ["applied"] * 2
    assert numbers(driver.ready()) == list(range(1, 151))


def test_a_worker_that_has_left_is_charged_with_nothing_and_told_nothing(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    worker.leave()
    driver.settle()

    assert "deaths" not in driver.record(client.task(1))
    assert numbers(driver.ready()) == [1]
    assert worker.control() == []
