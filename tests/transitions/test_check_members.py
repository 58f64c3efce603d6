"""check_members: a client is told which of its tasks have no record any more."""

from __future__ import annotations

from gristmill.protocol.keys import Keys
from support.database import Database
from support.driver import Driver


def test_a_task_without_a_record_is_told_once(driver: Driver, database: Database, keys: Keys) -> None:
    client = driver.client()
    client.submit(1, 2)
    database.run("DEL", keys.task(client.task(1)))
    database.run("ZREM", keys.ready("python3.11"), client.task(1))
    database.run("HINCRBY", keys.counts(), "state:inactive", -1)
    for _ in range(2):
        assert (
            driver.duty("check_members", client.id, f"{client.task(1)} {client.task(2)} {client.task(3)}") == "checked"
        )

    assert client.told("lost") == [{"tasks": [1]}]
    assert database.set(keys.client_tasks(client.id)) == {client.task(2)}
    assert driver.counts()["repaired:record_gone"] == 1


def test_what_is_no_task_is_taken_off_and_nobody_is_told(driver: Driver, database: Database, keys: Keys) -> None:
    client = driver.client()
    database.run("SADD", keys.client_tasks(client.id), "nonsense")
    driver.duty("check_members", client.id, "nonsense")

    assert database.set(keys.client_tasks(client.id)) == set()
    assert client.told("lost") == []
