"""run_alone: a task that was there when two workers died gets a worker of its own."""

from __future__ import annotations

import pytest

from gristmill.protocol.keys import Keys
from support.database import Database
from support.driver import CALL, LANE, Driver, PlayedClient, numbers

SUSPECTS = LANE + "!"


def suspect(driver: Driver, client: PlayedClient, *tasks: int) -> None:
    """These were executing when two workers died."""
    client.submit(*tasks)
    for _ in range(2):
        worker = driver.worker(len(tasks))
        for processor, _ in enumerate(tasks):
            worker.read(1, processor=processor)
        worker.lose()


def test_after_two_deaths_it_waits_in_a_lane_of_its_own(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(2)
    client.submit(2)

    assert numbers(driver.ready(SUSPECTS)) == [1]
    assert numbers(worker.queue()) == [2]


def test_an_idle_worker_gets_it_and_nothing_else_meanwhile(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(2)
    driver.duty("run_alone", LANE)
    client.submit(2, 3)
    worker.beat(2)
    driver.duty("dispatch_waiting", LANE)
    driver.duty("run_alone", LANE)

    assert numbers(worker.queue()) == [1]
    assert numbers(driver.ready()) == [2, 3]
    assert worker.record()["draining"] == "alone"


def test_afterwards_its_worker_gets_the_others(driver: Driver, database: Database, keys: Keys) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(2)
    driver.duty("run_alone", LANE)
    client.submit(2, 3)
    worker.read()
    worker.succeed(client.task(1))
    assert worker.queue() == []
    driver.duty("run_alone", LANE)

    assert numbers(worker.queue()) == [2, 3]
    assert "draining" not in worker.record()
    assert not database.exists(keys.alone())


def test_one_after_the_other_when_there_is_one_worker(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1, 2)
    worker = driver.worker(2)
    for number in (1, 2):
        driver.duty("run_alone", LANE)
        assert numbers(worker.queue()) == [number]
        worker.read()
        worker.succeed(client.task(number))
    driver.duty("run_alone", LANE)

    assert "draining" not in worker.record()


def test_half_of_the_workers_run_suspects_and_half_the_others(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, *range(6))
    workers = [driver.worker(1) for _ in range(4)]
    driver.duty("run_alone", LANE)
    driver.duty("run_alone", LANE)

    assert sorted(len(worker.queue()) for worker in workers) == [0, 0, 1, 1]
    assert len(driver.ready(SUSPECTS)) == 4


def test_when_none_is_idle_one_is_emptied(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(2)
    client.submit(2, 3, 4)
    worker.read(2, processor=1)
    for _ in range(2):
        driver.duty("run_alone", LANE)

    assert numbers(worker.queue()) == [2, 3]
    assert [body["task"] for body in worker.asked("give_back")] == [client.task(3)]
    assert worker.record()["draining"] == "alone"
    worker.confirm(client.task(3), "canceled")
    worker.succeed(client.task(2))
    driver.duty("run_alone", LANE)
    assert numbers(worker.queue()) == [1]
    assert numbers(driver.ready()) == [3, 4]


def test_a_worker_that_was_emptied_for_nothing_goes_on(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(1)
    client.submit(2, 3)
    worker.read()
    driver.duty("run_alone", LANE)
    client.cancel(1)
    assert client.outcome(1).state == "canceled"
    driver.duty("run_alone", LANE)

    assert numbers(worker.queue()) == [2, 3]
    assert "draining" not in worker.record()


def test_a_worker_that_drains_or_dies_meanwhile_is_kept_for_nothing(
    driver: Driver, database: Database, keys: Keys
) -> None:
    client = driver.client()
    suspect(driver, client, 1, 2)
    drained, lost = driver.worker(1), driver.worker(1)
    driver.duty("run_alone", LANE)
    driver.duty("run_alone", LANE)
    (kept,) = database.hash(keys.alone())
    worker = drained if kept == drained.id else lost
    worker.drain()
    worker.read()
    worker.succeed(client.task(1))
    driver.duty("run_alone", LANE)

    assert worker.record()["draining"] == "1"
    assert kept not in database.hash(keys.alone())


def test_a_worker_that_has_vanished_is_kept_for_nothing(driver: Driver, database: Database, keys: Keys) -> None:
    database.run("HSET", keys.alone(), "here|1|vanished|1", f"{LANE} -")
    driver.duty("run_alone", LANE)

    assert not database.exists(keys.alone())


def test_a_worker_that_is_being_emptied_after_its_death_is_kept_for_nothing(
    driver: Driver, database: Database, keys: Keys
) -> None:
    client = driver.client()
    suspect(driver, client, 1, 2)
    worker = driver.worker(1)
    driver.duty("run_alone", LANE)
    worker.read()
    worker.succeed(client.task(1))
    database.run("HSET", keys.worker(worker.id), "gone", 1)
    driver.duty("run_alone", LANE)

    assert not database.exists(keys.alone())
    assert worker.queue() == []
    worker.lose()


@pytest.mark.parametrize("why", ["vanished", "drains", "has no processors"])
def test_one_that_takes_no_tasks_is_not_used_though_it_is_listed(
    driver: Driver, database: Database, keys: Keys, why: str
) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(0 if why == "has no processors" else 1)
    if why == "drains":
        worker.drain()
    listed = "here|1|vanished|1" if why == "vanished" else worker.id
    before = worker.record()
    database.run("ZADD", keys.load(LANE), -1, listed)

    assert driver.duty("run_alone", LANE) == "done"
    assert worker.record() == before or why == "vanished"
    assert listed not in database.hash(keys.alone())
    database.run("ZREM", keys.load(LANE), listed)


def test_the_suspects_of_another_lane_do_not_use_its_workers(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(1)
    driver.duty("run_alone", LANE)
    worker.read()
    worker.succeed(client.task(1))
    driver.duty("run_alone", "another")

    assert worker.record()["draining"] == "alone"


def test_the_third_death_is_its_own_and_tells_the_story(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1, 2)
    worker = driver.worker(2)
    driver.duty("run_alone", LANE)
    worker.read()
    figures = {"processor": "p1", "pid": 1, "ready": True, "task": client.task(1), "rss_bytes": 812 << 20}
    worker.beat(2, processors=[figures], host_memory_percent=96.4)
    worker.lose()

    outcome = client.outcome(1)
    assert outcome.state == "failed_worker_died"
    for part in (worker.id, "3 workers", "host here (pid 1)", "not heard for", "812 MiB", "96 %"):
        assert part in outcome.payload["message"]
    assert driver.record(client.task(2))["deaths"] == "2"


def test_what_a_dead_worker_had_read_is_marked(driver: Driver) -> None:
    client = driver.client()
    worker = driver.worker(3)
    client.submit(1, 2, 3, [4, 0, CALL, {"run": {"timeout_ms": 5}}])
    worker.read(2)
    worker.lose()
    other = driver.worker(4)

    options = {entry.fields["task"]: entry.fields.get("options") for entry in other.entries()}
    assert options[client.task(1)] == '{"suspect":true}'
    assert options[client.task(2)] == '{"suspect":true}'
    assert options[client.task(3)] is None
    other.read(4)
    other.lose()
    another = driver.worker(4)
    options = {entry.fields["task"]: entry.fields.get("options") for entry in another.entries()}
    assert options[client.task(4)] == '{"suspect":true,"timeout_ms":5}'


def test_a_worker_that_leaves_marks_nothing(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(2)
    client.submit(1, 2)
    worker.read(2)
    worker.leave()
    driver.settle()

    assert all("suspect" not in driver.record(client.task(number)) for number in (1, 2))


def test_a_task_that_waits_for_the_suspect_does_not_hold_it_up(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(1)
    client.submit(2, priority=1)
    worker.read()
    driver.duty("run_alone", LANE)
    assert numbers(worker.queue()) == [2]
    worker.suspend(client.task(2), number=1, ready=2)
    driver.duty("run_alone", LANE)

    assert numbers(worker.queue()) == [2, 1]


def test_its_worker_goes_on_when_a_task_that_had_waited_executes_behind_it(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(1)
    client.submit(2)
    worker.read()
    worker.suspend(client.task(2), number=1, ready=2)
    driver.duty("run_alone", LANE)
    worker.read()
    worker.suspend(number=2, ready=2)
    driver.duty("run_alone", LANE)
    assert worker.record()["draining"] == "alone"
    worker.succeed(client.task(1))
    driver.duty("run_alone", LANE)

    assert numbers(worker.queue()) == [2]
    assert "draining" not in worker.record()


def test_a_worker_whose_suspect_has_gone_to_another_one_goes_on(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(1)
    client.submit(2)
    worker.read()
    worker.suspend(client.task(2), number=1, ready=2)
    driver.duty("run_alone", LANE)
    worker.read()
    worker.suspend(number=2, ready=2)
    worker.give_back(client.task(1))
    others = [driver.worker(1) for _ in range(3)]
    driver.duty("run_alone", LANE)
    assert [numbers(other.queue()) for other in others].count([1]) == 1
    driver.duty("run_alone", LANE)

    assert numbers(worker.queue()) == [2]
    assert "draining" not in worker.record()


def test_what_a_suspect_waits_for_runs_on_its_worker(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(1)
    driver.duty("run_alone", LANE)
    worker.read()
    client.submit(2, priority=1)
    driver.duty("run_alone", LANE)
    assert numbers(worker.queue()) == [1]
    worker.suspend(client.task(1), number=1, ready=2)
    driver.duty("run_alone", LANE)

    assert numbers(worker.queue()) == [1, 2]


def test_a_worker_that_runs_a_claimed_task_gets_none(driver: Driver) -> None:
    client = driver.client()
    suspect(driver, client, 1)
    worker = driver.worker(1)
    client.submit(2)
    worker.read()
    nested = driver.client(parent=client.task(2), parent_attempt=1)
    nested.submit(1)
    worker.suspend(client.task(2), number=1, ready=1)
    nested.claim(worker, 1)
    driver.duty("run_alone", LANE)
    assert numbers(driver.ready(SUSPECTS)) == [1]
    worker.suspend(client.task(2), nested.task(1), number=2, ready=1)
    driver.duty("run_alone", LANE)

    assert numbers(worker.queue()) == [2, 1]
