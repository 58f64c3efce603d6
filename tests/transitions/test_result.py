"""result: outcomes end tasks, free their places, and let the next ones start."""

from __future__ import annotations

import json

import pytest

from support.driver import (
    CALL,
    FAILURE,
    LANE,
    LONG_CALL,
    VALUE,
    Driver,
    PlayedClient,
    PlayedWorker,
    numbers,
    write_object,
)

# --- ends ---------------------------------------------------------------------------------------------------


def test_a_success_ends_the_task_and_tells_its_client(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()

    assert worker.succeed(client.task(1)) == "applied"
    assert client.outcome(1)[:4] == (1, 1, "success", VALUE)
    assert driver.record(client.task(1)) == {}
    assert worker.entries() == []
    assert driver.database.set(driver.keys.client_tasks(client.id)) == set()
    assert driver.counts()["state:success"] == 1
    assert driver.counts()["function:tests.function:success"] == 1
    assert "state:running" not in driver.counts()


def test_a_failure_ends_the_task_and_carries_its_exception(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    worker.fail(client.task(1))

    assert client.outcome(1)[:4] == (1, 1, "failed", FAILURE)


def test_a_processor_that_died_for_the_last_time_ends_the_task_by_name(
    client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    worker.died(client.task(1))

    assert client.outcome(1).state == "failed_worker_died"
    assert client.outcome(1).payload["error"] == "ProcessorDiedError"


def test_the_notice_names_worker_durations_and_waiting_time(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    worker.send_outcomes([client.task(1), 1, "success", VALUE, 1234, 1000, 4096, None])
    (notice,) = client.told("outcomes")

    assert notice["worker"] == worker.id
    assert notice["rows"][0][4:7] == [1234, 1000, 4096]
    assert notice["rows"][0][7] >= 0


def test_an_end_is_an_event_with_its_figures_and_its_error(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    worker.send_outcomes([client.task(1), 1, "failed", FAILURE, 5, 4, 3, 'ValueError: "no"\n'])

    assert driver.events()[-1] == [
        client.task(1), "failed", 1, worker.id, "tests.function", 5, 4, 3, 'ValueError: "no"\n',
    ]  # fmt: skip


def test_the_traceback_of_a_failed_attempt_is_kept_for_people(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit([1, 0, CALL, {"retries": 1}], 2, 3)
    worker.read()
    worker.send_outcomes([*worker.row(client.task(1), "retry", FAILURE), "first"])
    worker.read()
    worker.send_outcomes([*worker.row(client.task(1), "failed", FAILURE), "second"], worker.row(client.task(2)))
    worker.send_outcomes([*worker.row(client.task(3), "failed", FAILURE), "é" * 9000])
    # An attempt that is not the one in the record tells nothing.
    worker.send_outcomes([client.task(3), 1, "failed", FAILURE, 1, 1, 1, "late", "late"])

    failures = driver.database.stream(driver.keys.failures())
    assert [entry.fields for entry in failures[:2]] == [
        {"task": client.task(1), "attempt": str(attempt), "worker": worker.id, "traceback": text}
        for attempt, text in ((1, "first"), (2, "second"))
    ]
    assert [entry.fields["traceback"] for entry in failures[2:]] == ["é" * 4096]


def test_a_batch_of_outcomes_is_one_notice(client: PlayedClient, driver: Driver) -> None:
    worker = driver.worker(4)
    client.submit(1, 2, 3)
    worker.read(3)
    worker.send_outcomes(worker.row(client.task(1)), worker.row(client.task(2), "failed", FAILURE))

    assert [(outcome.number, outcome.state) for outcome in client.outcomes()] == [(1, "success"), (2, "failed")]
    assert len(client.told("outcomes")) == 1
    assert numbers(worker.queue()) == [3]


def test_outcomes_of_several_clients_reach_each_its_own(driver: Driver, client: PlayedClient) -> None:
    worker, other = driver.worker(2), driver.client()
    client.submit(1)
    other.submit(1)
    worker.read(2)
    worker.succeed(client.task(1), other.task(1))

    assert [outcome.number for outcome in client.outcomes()] == [1]
    assert [outcome.number for outcome in other.outcomes()] == [1]


def test_a_longer_call_is_removed_with_its_task(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit([1, 0, LONG_CALL, None])
    worker.read()
    worker.succeed(client.task(1))

    assert not driver.database.exists(driver.keys.payload(client.task(1)))


def test_an_outcome_for_a_client_that_has_gone_ends_the_task_without_a_trace(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    client.disconnect()
    driver.settle()
    large = write_object(driver, f"{client.task(1)}.1", b"result")
    worker.succeed(client.task(1), payload={"object": large, "size": 6})

    assert driver.record(client.task(1)) == {}
    assert not driver.database.exists(driver.keys.object(large))
    assert not driver.database.exists(driver.keys.client_inbox(client.id))


# --- large results ------------------------------------------------------------------------------------------


def test_a_large_result_is_held_by_its_client_until_it_is_released(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    large = write_object(driver, f"{client.task(1)}.1", b"first", b"second")
    worker.succeed(client.task(1), payload={"object": large, "size": 11})

    assert client.outcome(1).payload == {"object": large, "size": 11}
    assert driver.database.set(driver.keys.holders(large)) == {client.id}
    assert driver.database.lifetime_ms(driver.keys.object_chunk(large, "1")) == -1

    client.release(large)
    assert not driver.database.exists(driver.keys.object(large))
    assert not driver.database.exists(driver.keys.object_chunk(large, "1"))


def test_a_large_result_that_is_gone_fails_the_task_by_name(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    worker.succeed(client.task(1), payload={"object": f"{client.task(1)}.1-1", "size": 6})

    assert client.outcome(1).state == "failed"
    assert client.outcome(1).payload["error"] == "MissingObjectError"


def test_a_large_result_lives_while_its_client_or_a_dependent_needs_it(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, [2, 0, CALL, {"dependencies": [client.task(1)]}])
    worker.read()
    large = write_object(driver, f"{client.task(1)}.1", b"result")
    worker.succeed(client.task(1), payload={"object": large, "size": 6})
    client.release(large)
    assert driver.database.exists(driver.keys.object(large))
    (entry,) = worker.read()
    assert json.loads(entry.fields["values"]) == {client.task(1): {"object": large, "size": 6}}

    worker.succeed(client.task(2))
    assert not driver.database.exists(driver.keys.object(large))


# --- retries ------------------------------------------------------------------------------------------------


def test_a_retry_goes_back_to_its_lane_and_starts_as_the_next_attempt(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit([1, 0, CALL, {"retries": 2}])
    worker.read()
    worker.retry(client.task(1))

    assert ["inactive", 1, 50_000, "ValueError: no", {"event": "ResultFailedRetry"}] in [
        [*row[1:3], *row[5:6], *row[8:]] for row in driver.events()
    ]
    assert driver.record(client.task(1))["attempt"] == "2"
    assert worker.entries()[0].fields["attempt"] == "2"
    assert client.outcomes() == []


def test_a_retry_keeps_its_place_in_its_lane(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit([1, 0, CALL, {"retries": 1}], 2, 3, 4)
    worker.read()
    worker.retry(client.task(1), ms=1000)

    assert numbers([*worker.queue(), *driver.ready()]) == [2, 1, 3, 4]


def test_attempts_end(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit([1, 0, CALL, {"retries": 2}])
    for _ in range(3):
        worker.read()
        worker.retry(client.task(1))

    assert client.outcome(1)[:3] == (1, 3, "failed")


def test_without_retries_a_retry_is_a_failure(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1)
    worker.read()
    worker.retry(client.task(1))

    assert client.outcome(1)[:3] == (1, 1, "failed")


def test_a_delayed_retry_waits_its_time(driver: Driver, client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit([1, 0, CALL, {"retries": 1, "retry_delay_ms": 60_000}])
    worker.read()
    before = driver.now_ms()
    worker.retry(client.task(1))
    after = driver.now_ms()
    due = driver.database.zset(driver.keys.delayed())[client.task(1)]

    assert driver.state(client.task(1)) == "inactive"
    assert before + 60_000 <= due <= after + 60_000


# --- room and dispatch --------------------------------------------------------------------------------------


def test_a_free_place_is_filled_in_the_same_step(client: PlayedClient, worker: PlayedWorker) -> None:
    client.submit(1, 2, 3)
    worker.read(2)
    worker.succeed(client.task(1), ms=1000)

    assert numbers(worker.queue()) == [2, 3]


def test_short_tasks_make_the_room_grow_at_most_twofold_a_batch(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(*range(1, 100))
    queues = [int(worker.record()["queue"])]
    for _ in range(5):
        worker.read(100)
        worker.succeed(*worker.queue(), ms=0.1)
        queues.append(int(worker.record()["queue"]))

    assert queues == [1, 2, 4, 8, 16, 32]
    assert int(worker.record()["room"]) == 33


@pytest.mark.parametrize(
    ("first_ms", "second_ms", "service_us"),
    [
        (10, 20, 10_196),  # 10,000 and a fifty-first of what it is longer
        (10, 90, 11_568),
        (0.1, 15, 392),  # ten times as long, but still short
        (10, 1000, 1_000_000),  # another kind of work
    ],
)
def test_the_service_time_is_a_mean_of_some_fifty_tasks_until_they_are_of_another_kind(
    client: PlayedClient, worker: PlayedWorker, first_ms: float, second_ms: float, service_us: int
) -> None:
    client.submit(1, 2)
    worker.read()
    worker.succeed(client.task(1), ms=first_ms)
    assert worker.record()["service_us"] == str(int(first_ms * 1000))
    worker.read()
    worker.succeed(client.task(2), ms=second_ms)

    assert worker.record()["service_us"] == str(service_us)


def test_the_room_never_exceeds_the_queue_size_of_the_worker(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1, queue_size=3)
    client.submit(*range(1, 50))
    for _ in range(4):
        worker.read(100)
        worker.succeed(*worker.queue(), ms=0.1)

    assert worker.record()["room"] == "4"


def test_long_tasks_make_the_room_shrink_and_the_unread_surplus_goes_back(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(*range(1, 60))
    for _ in range(3):
        worker.read(100)
        worker.succeed(*worker.queue(), ms=0.1)
    first = worker.read(1)[0].fields["task"]
    worker.succeed(first, ms=60_000)

    assert worker.record()["room"] == "2"
    assert len(worker.queue()) == 2
    assert numbers([*worker.queue(), *driver.ready()]) == list(range(12, 60))


def test_a_worker_of_several_lanes_takes_from_the_one_whose_first_task_is_first(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1, capabilities={LANE: -1, "gpu": -1})
    client.submit(1, 2, [3, 0, CALL, {"lane": f"gpu,{LANE}"}], 4, 5)
    worker.read(2)
    worker.succeed(client.task(1), client.task(2), ms=1000)

    assert numbers(worker.queue()) == [3, 4]


def test_an_outcome_brings_nothing_to_a_worker_without_processors(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1, 2, 3)
    worker.read()
    worker.beat(0)
    worker.succeed(client.task(1))

    assert worker.queue() == []
    assert numbers(driver.ready()) == [2, 3]


def test_of_a_task_that_came_at_an_unknown_time_no_waiting_is_told(
    driver: Driver, client: PlayedClient, worker: PlayedWorker
) -> None:
    client.submit(1)
    worker.read()
    driver.database.run("HDEL", driver.keys.task(client.task(1)), "submitted")
    worker.succeed(client.task(1))

    assert client.outcome(1).state == "success"
    assert client.told("outcomes")[0]["rows"][0][7] == 0
