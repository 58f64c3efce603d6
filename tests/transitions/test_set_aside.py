"""set_aside: what no script can apply goes to the quarantine, exactly once."""

from __future__ import annotations

from support.driver import Driver


def set_aside(driver: Driver, entry: str) -> str:
    stream = driver.keys.cancels()
    command = driver.scripts.request_duty("set_aside", stream, entry, '{"version":1}', "nobody knows this kind")
    return driver.scripts.apply(driver.connection, command)


def test_the_entry_leaves_its_stream_and_lies_in_the_quarantine_with_the_reason(driver: Driver) -> None:
    entry = driver.send("riddle", {}, "cancels")
    driver.read("cancels")

    assert set_aside(driver, entry) == "applied"
    assert driver.database.length(driver.keys.cancels()) == 0
    (kept,) = driver.quarantine()
    assert (kept["reason"], kept["entry"]) == ("nobody knows this kind", entry)


def test_a_second_replica_changes_nothing(driver: Driver) -> None:
    entry = driver.send("riddle", {}, "cancels")
    driver.read("cancels")
    set_aside(driver, entry)

    assert set_aside(driver, entry) == "duplicate"
    assert len(driver.quarantine()) == 1
