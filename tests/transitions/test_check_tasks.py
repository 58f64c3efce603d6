"""check_tasks: what is in no place, because keys vanished, goes back to where it belongs."""

from __future__ import annotations

import pytest

from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import Request
from support.database import Database
from support.driver import CALL, FAILURE, Driver, PlayedClient, PlayedWorker, numbers


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


def check(driver: Driver, *tasks: str) -> dict[str, int]:
    """Look at these; what was repaired."""
    assert driver.duty("check_tasks", " ".join(tasks)) == "checked"
    return {name.partition(":")[2]: n for name, n in driver.counts().items() if name.startswith("repaired:")}


def behind(number: int, *needs: str) -> list[object]:
    return [number, 0, CALL, {"dependencies": list(needs)}]


def test_where_all_is_well_nothing_changes(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit(1, 2, 3, 4)
    client.submit(behind(5, client.task(3)), behind(6, client.task(5), client.task(1)))
    client.submit([7, 0, CALL, {"retries": 1, "retry_delay_ms": 60_000}])
    worker.read()
    client.cancel(1)
    before = driver.snapshot()

    assert check(driver, *(client.task(number) for number in range(9)), "no-task", "x.y") == {}
    assert driver.snapshot() == before


def test_tasks_that_need_much_are_looked_at_in_slices(driver: Driver, client: PlayedClient) -> None:
    client.submit(*range(300))
    needs = [*map(client.task, range(300))]
    client.submit(*(behind(number, *needs) for number in range(300, 304)))
    some = [client.task(number) for number in range(300, 304)]

    assert driver.duty("check_tasks", " ".join(some)) == some[2]
    assert driver.duty("check_tasks", " ".join(some[2:])) == "checked"


def test_what_waits_in_no_lane_is_put_back_to_its_place(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    client.submit(1, 2, 3)
    database.run("DEL", keys.ready("python3.11"))

    assert check(driver, *map(client.task, (3, 1, 2))) == {"nowhere": 3}
    assert numbers(driver.ready()) == [1, 2, 3]


def test_a_retry_that_is_due_later_stays(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit([1, 0, CALL, {"retries": 1, "retry_delay_ms": 60_000}])
    worker.read()
    worker.send_outcomes(worker.row(client.task(1), "retry", FAILURE))

    assert check(driver, client.task(1)) == {}


def test_a_task_whose_entry_has_vanished_goes_elsewhere(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    worker = driver.worker(1)
    client.submit(1, 2)
    worker.read()
    for entry in worker.entries():
        database.run("XACK", keys.worker_tasks(worker.id), "processors", entry.id)
        database.run("XDEL", keys.worker_tasks(worker.id), entry.id)

    assert check(driver, client.task(1), client.task(2)) == {"entry_gone": 2}
    assert driver.record(client.task(1))["attempt"] == "2"
    assert numbers(worker.queue()) == [1, 2]


def test_a_cancelled_task_whose_entry_has_vanished_is_cancelled(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    worker = driver.worker(1)
    client.submit(1)
    (entry,) = worker.read()
    client.cancel(1)
    database.run("XACK", keys.worker_tasks(worker.id), "processors", entry.id)
    database.run("XDEL", keys.worker_tasks(worker.id), entry.id)
    check(driver, client.task(1))

    assert client.outcome(1).state == "canceled"


def test_the_tasks_of_a_worker_whose_record_and_lease_have_vanished_move_on(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    worker = driver.worker(1)
    client.submit(1, 2)
    worker.read()
    database.run("DEL", keys.worker(worker.id))
    database.run("ZREM", keys.workers(), worker.id)
    database.run("DEL", keys.load("python3.11"))

    assert check(driver, client.task(1), client.task(2)) == {"worker_gone": 1}
    driver.settle()
    assert numbers(driver.ready()) == [1, 2]


def test_a_list_of_dependents_that_has_vanished_is_made_anew(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    client.submit(1, 2)
    client.submit(behind(3, client.task(1), client.task(2)))
    database.run("DEL", keys.dependents(client.task(1)))

    assert check(driver, client.task(3)) == {"dependencies": 1}
    assert database.set(keys.dependents(client.task(1))) == {client.task(3)}
    assert driver.record(client.task(3))["dependencies"] == "2"


def test_a_count_of_dependencies_that_is_too_high_is_put_right(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    worker = driver.worker(1)
    client.submit(1)
    client.submit(behind(2, client.task(1)))
    database.run("HINCRBY", keys.task(client.task(2)), "dependencies", 1)
    worker.read()
    worker.succeed(client.task(1))
    assert driver.state(client.task(2)) == "inactive"

    assert check(driver, client.task(2)) == {"dependencies": 1}
    assert driver.state(client.task(2)) == "running"


def test_a_task_whose_dependency_has_vanished_is_sent_again_by_its_client(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    client.submit(1, 2)
    client.submit(behind(3, client.task(1), client.task(2)))
    database.run("DEL", keys.task(client.task(1)), keys.dependents(client.task(1)))
    database.run("ZREM", keys.ready("python3.11"), client.task(1))
    database.run("HINCRBY", keys.counts(), "state:inactive", -1)
    driver.duty("check_members", client.id, client.task(1))

    assert check(driver, client.task(3))["dependency_gone"] == 1
    assert client.told("missing") == [{"tasks": [[3, [client.task(1)]]]}]
    assert driver.state(client.task(3)) == ""
    assert client.submit(3) == "applied"


def test_a_broken_record_goes_and_its_client_is_told(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    client.submit(1)
    database.run("DEL", keys.task(client.task(1)))
    database.run("HINCRBY", keys.task(client.task(1)), "users", 1)
    database.run("ZREM", keys.ready("python3.11"), client.task(1))
    database.run("HINCRBY", keys.counts(), "state:inactive", -1)

    assert check(driver, client.task(1)) == {"record": 1}
    assert client.told("lost") == [{"tasks": [1]}]
    assert not database.exists(keys.task(client.task(1)))


def test_a_task_that_its_client_does_not_list_is_listed(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    client.submit(1)
    database.run("DEL", keys.client_tasks(client.id))

    assert check(driver, client.task(1)) == {"unlisted": 1}
    assert database.set(keys.client_tasks(client.id)) == {client.task(1)}


def test_a_finished_task_that_nobody_needs_goes(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    worker: PlayedWorker = driver.worker(1)
    client.submit(1)
    client.submit(behind(2, client.task(1)))
    worker.read()
    worker.succeed(client.task(1))
    assert check(driver, client.task(1)) == {}
    database.run("HSET", keys.task(client.task(1)), "users", 0)
    database.run("HDEL", keys.task(client.task(2)), "needs")

    assert check(driver, client.task(1)) == {"finished": 1}
    assert not database.exists(keys.value(client.task(1)))


def test_a_broken_record_of_a_task_that_has_ended_goes_and_nobody_sends_it_again(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    worker.succeed(client.task(1))
    database.run("HSET", keys.task(client.task(1)), "users", 1)

    assert check(driver, client.task(1)) == {"record": 1}
    assert client.told("lost") == []
    assert not database.exists(keys.task(client.task(1)))


def test_what_has_succeeded_is_not_waited_for_again(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit(1, 2)
    client.submit(behind(3, client.task(1), client.task(2)))
    worker.read()
    worker.succeed(client.task(1))
    before = driver.snapshot()

    assert check(driver, client.task(3)) == {}
    assert driver.snapshot() == before


def test_what_is_let_go_on_in_slices_is_not_counted_as_let_go(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    worker = driver.worker(1)
    client.submit(0, 1)
    for first in range(2, 602, 100):
        client.submit(*(behind(number, client.task(0), client.task(1)) for number in range(first, first + 100)))
    worker.read()
    driver.send(Request.OUTCOMES, {"worker": worker.id, "outcomes": [worker.row(client.task(0))]})
    (entry,) = driver.read("results")
    driver.apply_entry("results", entry)
    still = sorted(database.set(keys.dependents(client.task(0))))
    assert still

    assert check(driver, *still) == {}
    driver.settle()
    assert {driver.record(task)["dependencies"] for task in still} == {"1"}


def test_a_waiting_task_whose_record_has_lost_its_place_goes_and_its_client_is_told(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    client.submit(1)
    database.run("HDEL", keys.task(client.task(1)), "place")
    database.run("ZREM", keys.ready("python3.11"), client.task(1))

    assert check(driver, client.task(1)) == {"record": 1}
    assert client.told("lost") == [{"tasks": [1]}]
    assert not database.exists(keys.task(client.task(1)))


def test_an_assigned_task_whose_record_names_no_entry_is_assigned_again(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    database.run("HDEL", keys.task(client.task(1)), "assignment")

    assert check(driver, client.task(1)) == {"record": 1, "nowhere": 1}
    driver.duty("check_entries", worker.id, "-")
    assert numbers(worker.queue()) == [1]
    assert driver.state(client.task(1)) == "running"


def test_what_waits_elsewhere_than_in_its_lane_stays(driver: Driver, client: PlayedClient) -> None:
    client.submit(1)
    for _ in range(2):
        worker = driver.worker(1)
        worker.read()
        worker.lose()
    client.submit(4, [2, 0, CALL, {"dependencies": [client.task(4)], "incomplete": True}])
    claimer = driver.worker(0)
    client.submit(3)
    client.claim(claimer, 3)
    before = driver.snapshot()

    assert numbers(driver.ready("python3.11!")) == [1], "after two deaths it runs alone"
    assert check(driver, *map(client.task, (1, 2, 3, 4))) == {}
    assert driver.snapshot() == before
    client.cancel(2)


@pytest.mark.parametrize("gone", ["record", "lease"])
def test_a_worker_of_which_something_is_there_is_left_to_its_lease(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys, gone: str
) -> None:
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    saved = database.run("DUMP", keys.worker(worker.id))
    if gone == "record":
        database.run("DEL", keys.worker(worker.id))
    else:
        database.run("ZREM", keys.workers(), worker.id)

    assert check(driver, client.task(1)) == {}
    database.run("RESTORE", keys.worker(worker.id), 0, saved, "REPLACE")
    worker.beat()


def test_a_detached_task_is_not_listed_and_its_outcome_stays_for_its_time(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    worker = driver.worker(1)
    client.submit([1, 0, CALL, {"keep_ms": 60_000}], [2, 0, CALL, {"keep_ms": 60_000}])
    worker.read()
    worker.succeed(client.task(1))

    assert check(driver, client.task(1), client.task(2)) == {}
    assert database.set(keys.client_tasks(client.id)) == set()
    assert driver.state(client.task(1)) == "success"


def test_the_tasks_of_a_client_that_has_ended_are_not_listed_again(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys
) -> None:
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    client.disconnect()
    driver.settle()

    assert check(driver, client.task(1)) == {}
    database.run("DEL", keys.client(client.id))
    assert check(driver, client.task(1)) == {}
    worker.confirm(client.task(1), "canceled")


@pytest.mark.parametrize("field", ["state", "users"])
def test_a_record_under_an_id_of_no_task_is_passed_over(
    driver: Driver, client: PlayedClient, database: Database, keys: Keys, field: str
) -> None:
    client.submit(1)
    database.run("HSET", keys.task("nonsense"), field, "inactive")

    assert check(driver, "nonsense", client.task(1)) == {}
    database.run("DEL", keys.task("nonsense"))
