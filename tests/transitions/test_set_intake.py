"""set_intake: the intake opens and closes, also when Redis is full."""

from __future__ import annotations

from support.driver import Driver


def set_intake(driver: Driver, state: str) -> str:
    return driver.scripts.apply(driver.connection, driver.scripts.duty("set_intake", state))


def test_it_closes_with_the_reason(driver: Driver) -> None:
    assert set_intake(driver, "3 tasks wait") == "set"
    assert driver.database.string(driver.keys.intake()) == "3 tasks wait"


def test_it_opens_again(driver: Driver) -> None:
    set_intake(driver, "3 tasks wait")
    set_intake(driver, "open")
    assert driver.database.string(driver.keys.intake()) == "open"


def test_a_full_redis_does_not_keep_it_from_closing(driver: Driver) -> None:
    driver.database.run("CONFIG", "SET", "maxmemory", 1)
    try:
        assert set_intake(driver, "full") == "set"
    finally:
        driver.database.run("CONFIG", "SET", "maxmemory", 0)
    assert driver.database.string(driver.keys.intake()) == "full"
