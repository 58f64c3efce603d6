"""submit: calls become tasks, each in exactly one place."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import Request
from support.database import Database
from support.driver import CALL, LANE, LONG_CALL, Driver, numbers
from support.invariants import PRIORITY_STEP
from support.server import RedisServer

# --- where a task goes --------------------------------------------------------------------------------------


def test_without_workers_tasks_wait_in_their_lane_in_order(driver: Driver) -> None:
    client = driver.client()

    assert client.submit(1, 2, 3) == "applied"
    assert numbers(driver.ready()) == [1, 2, 3]
    assert driver.counts()["state:inactive"] == 3


def test_a_worker_with_room_gets_the_task_at_once_and_it_never_enters_the_lane(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)

    assert worker.queue() == [client.task(1)]
    assert driver.ready() == []
    assert driver.state(client.task(1)) == "running"
    assert driver.counts()["state:running"] == 1


def test_the_record_holds_what_the_task_is(driver: Driver) -> None:
    client = driver.client()
    client.submit(7)
    record = driver.record(client.task(7))

    assert record.pop("submitted").isdigit()
    assert record == {
        "state": "inactive",
        "function": client.function,
        "name": "tests.function",
        "lane": LANE,
        "order": "7",
        "call": CALL,
    }


def test_the_record_of_an_assigned_task_names_worker_attempt_and_entry(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    record, (entry,) = driver.record(client.task(1)), worker.entries()

    assert (record["worker"], record["attempt"], record["entry"]) == (worker.id, "1", entry.id)


def test_the_entry_carries_what_a_processor_needs(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)

    assert worker.entries()[0].fields == {
        "task": client.task(1),
        "attempt": "1",
        "function": client.function,
        "name": "tests.function",
        "call": CALL,
    }


def test_more_tasks_than_room_wait_behind(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3, 4)

    assert numbers(worker.queue()) == [1, 2]
    assert numbers(driver.ready()) == [3, 4]


def test_tasks_are_spread_over_the_least_loaded_workers(driver: Driver) -> None:
    client, workers = driver.client(), [driver.worker(2), driver.worker(2), driver.worker(1)]
    client.submit(1, 2, 3, 4, 5)

    assert [len(worker.queue()) for worker in workers] == [2, 2, 1]


def test_a_task_does_not_overtake_what_waits_in_its_lane(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)
    worker = driver.worker(0)
    client.submit(2)
    worker.beat(1)

    assert numbers(worker.queue()) == [1, 2]


def test_a_worker_without_ready_processors_gets_nothing(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(0)
    client.submit(1)

    assert worker.queue() == []
    assert numbers(driver.ready()) == [1]


def test_the_load_follows_the_stream(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(2)
    client.submit(1)
    assert driver.load() == {worker.id: 0.5}

    client.submit(2, 3)
    assert driver.load() == {worker.id: 1_000_001.5}


def test_the_client_owns_its_tasks_and_its_function(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, 2)
    keys = driver.keys

    assert driver.database.set(keys.client_tasks(client.id)) == {client.task(1), client.task(2)}
    assert driver.database.set(keys.client_objects(client.id)) == {client.function}
    assert driver.database.set(keys.holders(client.function)) == {client.id}
    assert driver.database.lifetime_ms(keys.object(client.function)) == -1


def test_each_change_is_an_event_with_worker_and_function(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)

    assert driver.events() == [
        [client.task(1), "running", 1, worker.id, "tests.function"],
        [client.task(2), "running", 1, worker.id, "tests.function"],
        [client.task(3), "inactive", 0, "", "tests.function"],
    ]


def test_what_people_may_know_of_a_task_lies_in_its_first_event_and_nowhere_else(driver: Driver) -> None:
    about = {"graph": "g1", "key": "sum", "tags": ["nightly"]}
    client = driver.client()
    client.submit(1, [2, 0, CALL, {"about": about, "dependencies": [client.task(1)], "lane": "gpu,python3.11"}], 3)

    rows = {row[0]: row[5:] for row in driver.events()}
    assert rows == {
        client.task(1): [],
        client.task(2): [None, None, None, None, {**about, "lane": "gpu,python3.11", "needs": [1]}],
        client.task(3): [],
    }
    assert "about" not in driver.record(client.task(2))


@pytest.mark.parametrize("about", ["text", 5, {"key": "x" * 2100}])
def test_any_other_about_is_refused_by_number(driver: Driver, about: Any) -> None:
    client = driver.client()
    client.submit([1, 0, CALL, {"about": about}], 2)

    assert driver.state(client.task(1)) == ""
    assert driver.state(client.task(2)) == "inactive"
    assert "expected about to be an object" in driver.quarantine()[0]["reason"]


def test_a_short_task_is_kept_small_in_redis(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)

    assert driver.database.run("OBJECT", "ENCODING", driver.keys.task(client.task(1))) in (b"listpack", b"ziplist")


# --- calls --------------------------------------------------------------------------------------------------


def test_a_longer_call_lies_beside_the_record_and_rides_in_the_entry(driver: Driver) -> None:
    client = driver.client()
    client.submit([1, 0, LONG_CALL, None])
    assert driver.database.string(driver.keys.payload(client.task(1))) == LONG_CALL
    assert "call" not in driver.record(client.task(1))

    worker = driver.worker(1)
    assert worker.entries()[0].fields["call"] == LONG_CALL


def test_a_longer_call_rides_in_the_entry_when_it_is_assigned_at_once(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, LONG_CALL, None])

    assert worker.entries()[0].fields["call"] == LONG_CALL


def test_a_large_call_is_an_object_that_belongs_to_the_task(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    large = client.object("c1", b"first", b"second")
    client.submit([1, 0, None, {"object": large, "size": 11}])
    fields = worker.entries()[0].fields

    assert (fields["object"], fields["size"]) == (large, "11")
    assert "call" not in fields
    assert driver.database.lifetime_ms(driver.keys.object(large)) == -1
    assert driver.database.lifetime_ms(driver.keys.object_chunk(large, "1")) == -1

    worker.read()
    worker.succeed(client.task(1))
    assert not driver.database.exists(driver.keys.object(large))
    assert not driver.database.exists(driver.keys.object_chunk(large, "1"))


def test_run_options_travel_as_they_are(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"run": {"timeout_ms": 1500}}], [2, 0, CALL, {"run": {"timeout_ms": 2}}])

    assert [entry.fields["options"] for entry in worker.entries()] == ['{"timeout_ms":1500}', '{"timeout_ms":2}']


@pytest.mark.parametrize("gone", ["whole", "second chunk"])
def test_a_call_whose_object_is_gone_is_refused_by_number_and_leaves_nothing(driver: Driver, gone: str) -> None:
    client = driver.client()
    large = client.object("c1", b"first", b"second")
    lost = driver.keys.object(large) if gone == "whole" else driver.keys.object_chunk(large, "1")
    driver.database.run("DEL", lost)
    client.submit([1, 0, None, {"object": large, "size": 11}], 2)

    (notice,) = client.told("refused")
    assert notice["tasks"] == [1]
    assert notice["reason"].startswith("object: ")
    assert numbers(driver.ready()) == [2]


def test_an_object_of_countless_chunks_does_not_block_redis(own_server: RedisServer, keys: Keys) -> None:
    database = Database(own_server.address)
    driver = Driver(database, keys)
    client = driver.client()
    client.submit([1, 0, None, {"object": f"{client.id}.c1-99999999999", "size": 1}], 2)

    assert numbers(driver.ready()) == [2]
    driver.close()
    database.close()


def test_a_call_whose_function_is_gone_is_refused_by_number(driver: Driver) -> None:
    client = driver.client()
    driver.database.run("DEL", driver.keys.object(client.function))
    client.submit(1, 2)

    assert client.told("refused")[0]["tasks"] == [1, 2]
    assert driver.database.set(driver.keys.client_objects(client.id)) == set()


# --- lanes and priorities -----------------------------------------------------------------------------------


def test_a_new_lane_is_made_known_to_the_workers_that_can_serve_it(driver: Driver) -> None:
    client = driver.client()
    with_gpu = driver.worker(1, capabilities={LANE: -1, "gpu": 1})
    without = driver.worker(1)
    client.submit([1, 0, CALL, {"lane": f"gpu,{LANE}"}])

    assert with_gpu.queue() == [client.task(1)]
    assert without.queue() == []
    assert set(driver.load(f"gpu,{LANE}")) == {with_gpu.id}


def test_a_task_that_no_worker_can_serve_waits_and_blocks_nobody(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"lane": f"gpu,{LANE}"}], 2)

    assert numbers(worker.queue()) == [2]
    assert numbers(driver.ready(f"gpu,{LANE}")) == [1]


def test_a_batch_of_several_lanes_does_not_overfill_a_worker(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1, capabilities={LANE: -1, "a": -1, "b": -1})
    client.submit(
        *([number, 0, CALL, {"lane": f"{'ab'[number % 2]},{LANE}"}] for number in range(1, 9)),
        9,
    )

    assert len(worker.queue()) == int(worker.record()["room"])


def test_higher_priority_comes_first_and_equal_ones_in_order(driver: Driver) -> None:
    client = driver.client()
    priorities = {1: -5, 2: 0, 3: None, 4: 7, 5: 50, 6: 0, 7: 1000, 8: -1000}
    client.submit(
        *(
            [number, 0, CALL, None if priority is None else {"priority": priority}]
            for number, priority in priorities.items()
        )
    )

    assert numbers(driver.ready()) == [7, 5, 4, 2, 3, 6, 1, 8]


def test_the_score_is_order_minus_priority_in_large_steps(driver: Driver) -> None:
    client = driver.client()
    client.submit([3, 0, CALL, {"priority": 2}])

    assert driver.database.zset(driver.keys.ready(LANE)) == {client.task(3): 3 - 2 * PRIORITY_STEP}


@pytest.mark.parametrize("priority", [1001, -1001, 0.5, "high", True, 1e300])
def test_any_other_priority_is_refused_by_number(driver: Driver, priority: Any) -> None:
    client = driver.client()
    client.submit([1, 0, CALL, {"priority": priority}], 2)

    assert [notice["tasks"] for notice in client.told("refused")] == [[1]]
    assert numbers(driver.ready()) == [2]


def test_tasks_of_one_client_stay_in_order_whichever_batch_is_applied_first(driver: Driver) -> None:
    client = driver.client()
    first, second = client.body([1, 2]), client.body([3, 4])
    driver.request(Request.TASKS, second)
    driver.request(Request.TASKS, first)

    assert numbers(driver.ready()) == [1, 2, 3, 4]


def test_a_client_that_comes_later_is_not_put_behind_a_million_tasks(driver: Driver) -> None:
    worker, early, late = driver.worker(1), driver.client(), driver.client()
    early.submit(*range(1, 90))
    for _ in range(5):
        worker.read(10)
        worker.succeed(*worker.queue(), ms=1000)
    late.submit(1)

    place = driver.ready().index(late.task(1))
    assert place <= 2


@pytest.mark.parametrize("tasks", [30, 40, 60])
def test_of_many_workers_nobody_queues_while_another_is_idle(driver: Driver, tasks: int) -> None:
    client, workers = driver.client(), [driver.worker(1) for _ in range(40)]
    client.submit(*range(tasks))

    queues = [len(worker.queue()) for worker in workers]
    assert sum(queues) == tasks
    assert max(queues) - min(queues) <= 1


OPTIONS = ("priority", "retries", "retry_delay_ms", "max_deaths", "keep_ms", "about", "run", "dependencies", "objects")
EMPTY: dict[str, Any] = {"run": {}, "dependencies": [], "objects": [], "about": {}, "priority": 0}


@pytest.mark.parametrize("options", [dict.fromkeys(OPTIONS), EMPTY], ids=["null", "empty"])
def test_an_option_that_is_null_or_empty_is_none(driver: Driver, options: dict[str, Any]) -> None:
    client = driver.client()
    client.submit([1, 0, CALL, options], 2)

    record, plain = driver.record(client.task(1)), driver.record(client.task(2))
    assert {**record, "order": "2"} == plain


def test_of_options_that_say_nothing_to_people_no_event_tells(driver: Driver) -> None:
    client = driver.client()
    client.submit([1, 0, CALL, {"retries": 1, "lane": LANE}])

    assert [row[5:] for row in driver.events()] == [[]]
