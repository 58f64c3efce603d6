"""check_leftovers: what belonged to a task that is not there goes."""

from __future__ import annotations

from gristmill.protocol.keys import Keys
from support.database import Database
from support.driver import LONG_CALL, Driver


def test_what_belongs_to_a_task_stays_and_the_rest_goes(driver: Driver, database: Database, keys: Keys) -> None:
    client = driver.client()
    client.submit([1, 0, LONG_CALL, None])
    for key in (keys.payload(client.task(2)), keys.value(client.task(2))):
        database.run("SET", key, "x")
    database.run("SADD", keys.dependents(client.task(2)), client.task(3))
    database.run("SET", keys.value(client.task(4)), "x", "EX", 1000)
    driver.duty("check_leftovers", " ".join(map(client.task, (1, 2, 4))))

    assert database.exists(keys.payload(client.task(1)))
    assert database.exists(keys.value(client.task(4)))
    for part in (keys.payload, keys.value, keys.dependents):
        assert not database.exists(part(client.task(2)))
    assert driver.counts()["repaired:leftover"] == 3
    database.run("DEL", keys.value(client.task(4)))
