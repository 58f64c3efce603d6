"""recount: a gauge is put right, unless anything has changed since it was counted."""

from __future__ import annotations

from gristmill.protocol.keys import Keys
from support.database import Database
from support.driver import Driver


def test_a_gauge_is_put_right_when_nothing_has_moved(driver: Driver, database: Database, keys: Keys) -> None:
    client = driver.client()
    client.submit(1, 2)
    database.run("HSET", keys.counts(), "state:inactive", 7)
    events = driver.counts()["events"]
    assert driver.duty("recount", events, "inactive", 2) == "set"
    assert driver.counts()["state:inactive"] == 2

    client.submit(3)
    assert driver.duty("recount", events, "inactive", 2) == "kept"
    assert driver.counts()["state:inactive"] == 3
