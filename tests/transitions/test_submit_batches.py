"""submit: batches are applied in order and once each; what cannot be understood is set aside row by row."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from gristmill.protocol.keys import GROUP_SCHEDULERS
from gristmill.protocol.kinds import Request
from support.driver import CALL, LANE, Driver, numbers

# --- batches ------------------------------------------------------------------------------------------------


def test_the_record_keeps_the_number_up_to_which_all_batches_are_applied(driver: Driver) -> None:
    client = driver.client()
    bodies = [client.body([number]) for number in (1, 2, 3, 4)]
    waiting = driver.keys.client_batches(client.id)

    driver.request(Request.TASKS, bodies[2])
    assert (client.record()["batch"], driver.database.set(waiting)) == ("0", {"3"})
    driver.request(Request.TASKS, bodies[0])
    assert (client.record()["batch"], driver.database.set(waiting)) == ("1", {"3"})
    driver.request(Request.TASKS, bodies[1])
    assert (client.record()["batch"], driver.database.set(waiting)) == ("3", set())
    driver.request(Request.TASKS, bodies[3])
    assert (client.record()["batch"], driver.database.set(waiting)) == ("4", set())


@pytest.mark.parametrize("number", [1, 3])
def test_a_batch_that_is_sent_twice_is_dropped(driver: Driver, number: int) -> None:
    client, worker = driver.client(), driver.worker(1)
    body = client.body([1, 2, 3], batch=number)
    assert driver.request(Request.TASKS, body) == "applied"
    before = driver.snapshot()

    assert driver.request(Request.TASKS, body) == "duplicate"
    assert driver.snapshot() == before
    assert len(worker.queue()) == 2


@pytest.mark.parametrize("number", [0, -1, 0.5, 1e300, "1", None])
def test_a_batch_number_that_is_none_is_refused(driver: Driver, number: Any) -> None:
    client = driver.client()
    before = driver.snapshot()

    assert client.submit(1, batch=number) in ("malformed", "duplicate")
    after = driver.snapshot()
    after.pop(driver.keys.quarantine(), None)
    assert after == before


def test_a_batch_that_needs_an_earlier_one_waits_for_it(driver: Driver) -> None:
    client = driver.client()
    first, second = client.body([1]), client.body([2], after=1)
    driver.send(Request.TASKS, second)
    (entry,) = driver.read("submit")
    before = driver.snapshot()

    assert driver.apply_entry("submit", entry) == "early"
    assert driver.snapshot() == before
    assert driver.pending("submit") == [entry]

    driver.request(Request.TASKS, first)
    assert driver.apply_entry("submit", entry) == "applied"


def test_a_known_task_in_a_batch_sent_again_is_passed_over(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)
    client.submit(1, 2, 3, 4)

    assert numbers(worker.queue()) == [1, 2]
    assert numbers(driver.ready()) == [3, 4]


def test_a_number_that_comes_twice_in_a_batch_is_one_task(driver: Driver) -> None:
    client = driver.client()
    driver.worker(1)
    client.submit(1, 1, 2, 2, 3, 3)

    assert driver.counts()["state:running"] + driver.counts().get("state:inactive", 0) == 3


def test_a_number_that_exists_is_not_entered_a_second_time(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)
    client.submit(1, 2, 3)

    assert numbers([*worker.queue(), *driver.ready()]) == [1, 2, 3]


def test_tasks_of_an_unknown_client_are_dropped(driver: Driver) -> None:
    client = driver.client()
    driver.database.run("DEL", driver.keys.client(client.id), driver.keys.client_inbox(client.id))
    driver.database.run("ZREM", driver.keys.clients(), client.id)

    assert client.submit(1) == "unknown"
    assert driver.record(client.task(1)) == {}


def test_a_batch_as_large_as_they_come_is_applied_whole(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(4)
    client.submit(*range(1, 101))

    assert len(worker.queue()) + len(driver.ready()) == 100


def test_a_batch_far_beyond_the_limit_harms_nobody(driver: Driver) -> None:
    client = driver.client()
    word = client.submit(*range(1, 9001))

    assert (word, len(driver.ready())) in (("applied", 9000), ("malformed", 0))


# --- the intake ---------------------------------------------------------------------------------------------


def test_a_batch_that_meets_a_closed_intake_is_refused_task_by_task(driver: Driver) -> None:
    client = driver.client()
    driver.database.run("SET", driver.keys.intake(), "10 tasks wait, the limit is 10")

    assert client.submit(1, 2) == "applied"
    assert client.told("refused") == [{"reason": "intake: 10 tasks wait, the limit is 10", "tasks": [1, 2]}]
    assert client.record()["batch"] == "1"
    assert driver.record(client.task(1)) == {}


def test_an_open_intake_takes_everything(driver: Driver) -> None:
    client = driver.client()
    driver.database.run("SET", driver.keys.intake(), "open")
    client.submit(1)

    assert numbers(driver.ready()) == [1]


# --- rows that cannot be understood -------------------------------------------------------------------------

BAD_ROWS: dict[str, Any] = {
    "no list": 7.5,
    "text": "row",
    "null": None,
    "empty": [],
    "no number": [None, 0, CALL, None],
    "text for a number": ["1", 0, CALL, None],
    "a negative number": [-1, 0, CALL, None],
    "half a number": [1.5, 0, CALL, None],
    "a huge number": [1e300, 0, CALL, None],
    "an unknown function": [1, 5, CALL, None],
    "text for a function": [1, "f", CALL, None],
    "no call": [1, 0, None, None],
    "a number for a call": [1, 0, 7, None],
    "an object id with a space": [1, 0, None, {"object": "a b", "size": 1}],
    "a lane with a colon": [1, 0, CALL, {"lane": "a:b"}],
    "a dependency with a space": [1, 0, CALL, {"dependencies": ["a b"]}],
    "a dependency that is a number": [1, 0, CALL, {"dependencies": [3]}],
    "retries that are no whole number": [1, 0, CALL, {"retries": 0.5}],
    "huge retries": [1, 0, CALL, {"retries": 1e300}],
    "negative retries": [1, 0, CALL, {"retries": -3}],
    "half a death": [1, 0, CALL, {"max_deaths": 0.5}],
    "a negative delay": [1, 0, CALL, {"retries": 1, "retry_delay_ms": -5}],
}


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_set_aside_and_the_rest_of_its_batch_goes_on(driver: Driver, row: Any) -> None:
    client = driver.client()
    body = client.body([2], tasks=[row, [2, 0, CALL, None], row])
    assert driver.request(Request.TASKS, body) == "applied"

    assert driver.ready() == [client.task(2)]
    assert len(driver.quarantine()) == 2
    assert client.record()["batch"] == "1"


def test_the_client_is_told_the_numbers_of_bad_rows(driver: Driver) -> None:
    client = driver.client()
    client.submit([1, 0, None, None], [2, 9, CALL, None])

    assert [notice["tasks"] for notice in client.told("refused")] == [[1, 2]]


@pytest.mark.parametrize("text", [b"1e999", b"-1e999", b"NaN"])
def test_a_number_that_is_none_is_set_aside(driver: Driver, text: bytes) -> None:
    client = driver.client()
    body = b'{"version":1,"client":"%s","batch":1,"lane":"%s","functions":[["%s","f"]],'
    body += b'"tasks":[[%s,0,"AA==",null],[2,0,"AA==",null]]}'
    driver.request(Request.TASKS, body % (client.id.encode(), LANE.encode(), client.function.encode(), text))

    assert driver.ready() == [client.task(2)]


@pytest.mark.parametrize(
    "change",
    [{"tasks": "x"}, {"tasks": None}, {"functions": 7}, {"lane": "a b"}, {"lane": None}],
    ids=["tasks are text", "no tasks", "functions are a number", "a lane with a space", "no lane"],
)
def test_a_batch_that_is_set_aside_counts_as_applied(driver: Driver, change: dict[str, Any]) -> None:
    client = driver.client()

    assert client.submit(1, **change) == "malformed"
    assert client.record()["batch"] == "1"
    assert client.submit(2, after=1) == "applied"


def test_names_that_are_cut_stay_readable(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, functions=[[client.function, "ä" * 33 + "b" * 40]])
    client.submit(2, functions=[[client.function, "b" * 63 + "ä"]])

    assert [row[4][:1] for row in driver.events()] == ["ä", "b"]


def test_a_hostile_name_stays_a_name(driver: Driver) -> None:
    client = driver.client()
    name = '"],["evil","success",1,-1,-1],["\\\n\x00'
    client.submit(1, functions=[[client.function, name]])

    assert [row[4] for row in driver.events()] == [name]


def test_calls_are_carried_whatever_they_hold(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    odd = base64.b64encode(bytes(range(256))).decode()
    client.submit([1, 0, odd, None])

    assert worker.entries()[0].fields["call"] == odd


def test_what_a_client_that_has_ended_sends_under_a_later_registration_waits_for_nothing(driver: Driver) -> None:
    client = driver.client()
    client.disconnect()
    driver.settle()

    assert client.submit(1, registration=2) == "unknown"


def test_another_client_whose_id_is_none_is_not_waited_for(driver: Driver) -> None:
    client = driver.client()

    assert client.submit(1, others={f"{client.id}:inbox": 7, "": 3, "a b": 1}) == "applied"
    assert numbers(driver.ready()) == [1]


def test_a_batch_of_a_later_registration_waits_for_it_and_one_of_an_earlier_is_void(driver: Driver) -> None:
    client = driver.client()
    driver.send(Request.TASKS, client.body([1], registration=2))
    (entry,) = driver.read("submit")
    assert driver.apply_entry("submit", entry) == "early"
    client.register(registration=2)
    assert driver.apply_entry("submit", entry) == "applied"

    assert client.submit(2, batch=2, registration=1) == "duplicate"
    assert numbers(driver.ready()) == [1]
    assert client.submit(3, batch=2, registration=2) == "applied"


def test_a_batch_of_a_registration_that_never_came_is_not_applied(driver: Driver) -> None:
    client = driver.client()
    body = json.dumps({"version": 1, **client.body([1], registration=2)})
    driver.database.run("DEL", driver.keys.submit())
    driver.database.run("XGROUP", "CREATE", driver.keys.submit(), GROUP_SCHEDULERS, "0", "MKSTREAM")
    driver.database.run("XADD", driver.keys.submit(), f"{driver.now_ms() - 90_000}-0", "tasks", body)
    (entry,) = driver.read("submit")

    assert driver.apply_entry("submit", entry) == "unknown"
    assert driver.ready() == []


@pytest.mark.parametrize("why", ["the intake is closed", "the batch has no lane", "the rows are odd"])
def test_of_what_is_refused_the_client_is_told_the_numbers_that_can_be_read(driver: Driver, why: str) -> None:
    client = driver.client()
    if why == "the intake is closed":
        driver.database.run("SET", driver.keys.intake(), "full")
    rows = [5, None, "row", [], [None], [1.5], ["2"], [-1], [3, 9, CALL, None]]
    client.submit(tasks=rows, **({"lane": None} if why == "the batch has no lane" else {}))

    assert [notice["tasks"] for notice in client.told("refused")] == [[3]]
    assert driver.ready() == []


def test_functions_that_are_none_keep_their_places(driver: Driver) -> None:
    client = driver.client()
    odd = [5, None, [], ["a b", "f"], [client.function, 5], [client.function, "f", 5]]
    rows = [[index, index, CALL, None] for index in range(len(odd) + 1)]
    client.submit(tasks=rows, functions=[*odd, [client.function, "f", [5]]])

    assert numbers(driver.ready()) == [5]
    assert [notice["tasks"] for notice in client.told("refused")] == [[0, 1, 2, 3, 4], [6]]


def test_numbers_that_come_late_keep_their_place_where_the_lane_has_come_far(driver: Driver) -> None:
    client = driver.client()
    driver.database.run("HSET", driver.keys.lanes(), LANE, 100)
    first, second = client.body([1, 2]), client.body([3, 4])
    driver.request(Request.TASKS, second)
    driver.request(Request.TASKS, first)

    assert numbers(driver.ready()) == [1, 2, 3, 4]
    worker = driver.worker(6)
    client.submit(6)
    driver.request(Request.TASKS, client.body([5], batch=4))
    assert numbers(worker.queue()) == [1, 2, 3, 4, 6, 5]
    assert driver.database.hash(driver.keys.lanes())[LANE] == str(97 + 6), "a lane does not go back"


def test_of_a_batch_that_is_accepted_whole_the_client_is_told_nothing(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, 2)

    assert [kind for kind, _ in client.inbox()] == ["registered"]


def test_of_numbers_in_whatever_order_none_is_entered_a_second_time(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(3)
    client.submit(5, 3)
    client.submit(5, 3, 4)

    assert numbers(worker.queue()) == [5, 3, 4]
    assert driver.counts()["state:running"] == 3
