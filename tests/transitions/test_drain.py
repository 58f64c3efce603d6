"""drain: no more tasks; what is unread goes back at once."""

from __future__ import annotations

from support.driver import Driver, PlayedWorker, numbers


def test_what_is_unread_goes_back_to_its_place_and_what_is_held_stays(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(3)
    client.submit(1, 2, 3, 4, 5)
    worker.read(1)

    assert worker.drain() == "applied"
    assert numbers(worker.queue()) == [1]
    assert numbers(driver.ready()) == [2, 3, 4, 5]
    assert driver.load() == {}


def test_what_goes_back_is_taken_by_the_others_in_the_same_step(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read(1)
    other = driver.worker(1)
    worker.drain()

    assert numbers(other.queue()) == [2]


def test_a_worker_that_is_being_emptied_after_its_end_has_no_more_to_give(driver: Driver) -> None:
    worker = driver.worker(1)
    driver.database.run("HSET", driver.keys.worker(worker.id), "gone", 1)

    assert worker.drain() == "unknown"
    assert "draining" not in worker.record()
    worker.lose()


def test_what_is_held_may_end_and_frees_no_place(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)
    worker.read(1)
    worker.drain()
    worker.succeed(client.task(1))

    assert client.outcome(1).state == "success"
    assert worker.queue() == []


def test_more_than_a_slice_is_left_to_the_next_one(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(450)
    for start in range(1, 401, 100):
        client.submit(*range(start, start + 100))
    assert len(worker.queue()) == 400
    worker.drain()
    driver.settle()

    assert worker.queue() == []
    assert len(driver.ready()) == 400


def test_a_drain_twice_changes_nothing_more(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read(1)
    worker.drain()
    before = driver.snapshot()
    worker.drain()

    assert driver.snapshot() == before


def test_a_worker_that_nobody_knows_gets_no_record(driver: Driver) -> None:
    worker = PlayedWorker(driver)

    assert worker.drain() == "unknown"
    assert worker.record() == {}


def test_a_worker_whose_stream_is_gone_drains_all_the_same(driver: Driver) -> None:
    worker = driver.worker(1)
    driver.database.run("DEL", driver.keys.worker_tasks(worker.id))

    assert worker.drain() == "applied"
    assert driver.load() == {}
    worker.lose()


def test_a_stale_entry_goes_and_its_task_runs_on(driver: Driver) -> None:
    client, worker, other = driver.client(), driver.worker(1), driver.worker(0)
    client.submit(1)
    (entry,) = worker.read()
    stale = f"{client.task(1)} 0 - {client.function} tests.function"
    driver.database.run("XADD", driver.keys.worker_tasks(worker.id), "*", "task", stale)
    driver.database.run("XADD", driver.keys.worker_tasks(other.id), entry.id, "task", stale)
    worker.drain()
    other.drain()

    assert (worker.entries(), other.entries(), driver.ready()) == ([entry], [], [])
    assert driver.record(client.task(1))["attempt"] == "1"
