"""check_loads: who has no record takes no place in the load of a lane."""

from __future__ import annotations

from gristmill.protocol.keys import Keys
from support.database import Database
from support.driver import LANE, Driver


def test_only_workers_with_a_record_stay(driver: Driver, database: Database, keys: Keys) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    database.run("ZADD", keys.load(LANE), 0, "here|1|ghost|x")
    driver.duty("check_loads", f"{LANE} no-lane")

    assert list(driver.load()) == [worker.id]
    assert driver.counts()["repaired:load"] == 1
