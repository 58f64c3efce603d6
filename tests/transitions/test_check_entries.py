"""check_entries: an entry that no record names takes a worker's place no longer."""

from __future__ import annotations

from gristmill.protocol.keys import GROUP_PROCESSORS, Keys
from support.database import Database
from support.driver import Driver, numbers


def test_where_all_is_well_nothing_changes(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)
    worker.read()
    before = driver.snapshot()

    assert driver.duty("check_entries", worker.id, "-") == "checked"
    assert driver.duty("check_entries", "nobody", "-") == "checked"
    assert driver.snapshot() == before


def test_the_entry_of_a_task_without_a_record_goes_and_the_next_takes_its_place(
    driver: Driver, database: Database, keys: Keys
) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3)
    worker.read()
    database.run("DEL", keys.task(client.task(1)))
    database.run("SREM", keys.client_tasks(client.id), client.task(1))
    database.run("HINCRBY", keys.counts(), "state:running", -1)
    driver.duty("check_entries", worker.id, "-")

    assert numbers(worker.queue()) == [2, 3]
    assert driver.counts()["repaired:entry"] == 1
    assert ("cancel", {"version": 1, "task": client.task(1), "attempt": 1, "request": 0}) in worker.control()


def test_what_the_group_lists_and_is_not_there_goes(driver: Driver, database: Database, keys: Keys) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    (entry,) = worker.read()
    database.run("XDEL", keys.worker_tasks(worker.id), entry.id)
    driver.duty("check_entries", worker.id, "-")

    assert database.pending(keys.worker_tasks(worker.id), GROUP_PROCESSORS) == []
    driver.duty("check_tasks", client.task(1))
    assert numbers(worker.queue()) == [1]


def test_a_long_stream_takes_several_slices(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(300)
    for first in range(0, 300, 100):
        client.submit(*range(first, first + 100))
    after = driver.duty("check_entries", worker.id, "-")

    assert after == f"({worker.entries()[199].id}"
    assert driver.duty("check_entries", worker.id, after) == "checked"


def test_an_entry_with_the_id_of_one_of_another_worker_goes(driver: Driver, database: Database, keys: Keys) -> None:
    client, worker, other = driver.client(), driver.worker(1), driver.worker(0)
    client.submit(1)
    (entry,) = worker.read()
    database.run("XADD", keys.worker_tasks(other.id), entry.id, "task", f"{client.task(1)} 1 - -")
    driver.duty("check_entries", other.id, "-")

    assert other.queue() == []
    assert driver.duty("check_entries", worker.id, "-") == "checked"
    assert numbers(worker.queue()) == [1]


def test_an_entry_that_names_no_task_goes_and_the_worker_is_told_nothing(
    driver: Driver, database: Database, keys: Keys
) -> None:
    worker = driver.worker(1)
    database.run("XADD", keys.worker_tasks(worker.id), "*", "task", "nonsense")
    driver.duty("check_entries", worker.id, "-")

    assert database.length(keys.worker_tasks(worker.id)) == 0
    assert worker.asked("cancel") == []


def test_a_worker_whose_stream_has_vanished_is_passed_over(driver: Driver, database: Database, keys: Keys) -> None:
    worker = driver.worker(1)
    database.run("DEL", keys.worker_tasks(worker.id))

    assert driver.duty("check_entries", worker.id, "-") == "checked"
    database.run("XGROUP", "CREATE", keys.worker_tasks(worker.id), GROUP_PROCESSORS, "0", "MKSTREAM")


def test_an_entry_of_an_earlier_attempt_goes(driver: Driver, database: Database, keys: Keys) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    database.run("XADD", keys.worker_tasks(worker.id), "*", "task", f"{client.task(1)} 0 - -")
    driver.duty("check_entries", worker.id, "-")

    (left,) = worker.entries()
    assert (left.fields["task"], left.fields["attempt"]) == (client.task(1), "1")
    assert [asked["attempt"] for asked in worker.asked("cancel")] == [0]
