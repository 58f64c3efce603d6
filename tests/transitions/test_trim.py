"""trim: the newest changes stay in `events`, counted in changes and not in entries."""

from __future__ import annotations

from support.driver import Driver


def test_what_is_beyond_the_newest_changes_goes(driver: Driver) -> None:
    client = driver.client()
    for start in (1, 101, 201):
        client.submit(*range(start, start + 100))

    assert driver.duty("trim", 150) == "trimmed"
    assert [row[0] for row in driver.events()] == [client.task(number) for number in range(101, 301)]


def test_nothing_goes_while_there_are_few(driver: Driver) -> None:
    client = driver.client()
    client.submit(1, 2, 3)
    before = driver.events()
    driver.duty("trim", 3)

    assert driver.events() == before


def test_without_events_there_is_nothing_to_do(driver: Driver) -> None:
    assert driver.duty("trim", 10) == "trimmed"
    assert not driver.database.exists(driver.keys.events())


def test_changes_from_before_the_count_was_lost_are_old(driver: Driver) -> None:
    client = driver.client()
    for start in (1, 101, 201):
        client.submit(*range(start, start + 100))
    counts = driver.database.hash(driver.keys.counts())
    driver.database.run("HDEL", driver.keys.counts(), "events")
    client.submit(301)
    driver.duty("trim", 150)

    assert [row[0] for row in driver.events()] == [client.task(301)]
    driver.database.run("HSET", driver.keys.counts(), "events", counts["events"])
