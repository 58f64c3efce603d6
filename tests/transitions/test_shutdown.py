"""shutdown: a client ends everything, unless the schedulers are protected."""

from __future__ import annotations

import pytest

from support.driver import Driver


def shutdown(driver: Driver, client: str) -> str:
    return driver.request("shutdown", {"client": client})


def facts(driver: Driver) -> dict[str, str]:
    return driver.database.hash(driver.keys.namespace_facts())


@pytest.mark.parametrize("protected", ["1", None])
def test_protected_schedulers_refuse_and_nothing_ends(driver: Driver, protected: str | None) -> None:
    client, worker = driver.client(), driver.worker()
    if protected:
        driver.database.run("HSET", driver.keys.namespace_facts(), "protected", protected)

    assert shutdown(driver, client.id) == "applied"
    assert client.told("shutdown") == [{"accepted": False}]
    assert worker.asked("stop") == []
    assert "shutdown" not in facts(driver)


def test_else_every_worker_is_told_to_stop_and_the_time_is_noted(driver: Driver) -> None:
    client, workers = driver.client(), [driver.worker() for _ in range(3)]
    driver.database.run("HSET", driver.keys.namespace_facts(), "protected", "0")
    before = driver.now_ms()

    assert shutdown(driver, client.id) == "applied"
    assert client.told("shutdown") == [{"accepted": True}]
    assert [len(worker.asked("stop")) for worker in workers] == [1, 1, 1]
    assert int(facts(driver)["shutdown"]) >= before


def test_many_workers_are_told_in_slices(driver: Driver) -> None:
    client, workers = driver.client(), [driver.worker() for _ in range(450)]
    driver.database.run("HSET", driver.keys.namespace_facts(), "protected", "0")
    shutdown(driver, client.id)
    assert not all(worker.asked("stop") for worker in workers)
    driver.settle()

    assert all(worker.asked("stop") for worker in workers)
    assert client.told("shutdown") == [{"accepted": True}]


@pytest.mark.parametrize("body", [{"client": ""}, {"client": "abc", "cursor": "x"}, {"client": "abc", "cursor": []}])
def test_what_cannot_be_understood_is_set_aside(driver: Driver, body: dict[str, str]) -> None:
    assert driver.request("shutdown", body) == "malformed"
    assert len(driver.quarantine()) == 1
