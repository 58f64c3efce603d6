"""output: lines of a task reach its client, unless that is gone or far behind."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import Driver, PlayedClient

LINES = [["out", "text"], ["err", 'with "quotes" and \u2028']]


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


def send(driver: Driver, task: Any, **changes: Any) -> str:
    return driver.request(Request.OUTPUT, {"task": task, "lines": LINES, "dropped": 3, **changes})


def test_the_client_is_told(driver: Driver, client: PlayedClient) -> None:
    assert send(driver, client.task(1)) == "applied"
    assert send(driver, client.task(1), attempt=2, number=0) == "applied"
    for told in client.told("output"):
        assert (told["task"], told["lines"], told["dropped"]) == (client.task(1), LINES, 3)
    assert [(told.get("attempt"), told.get("number")) for told in client.told("output")] == [(None, None), (2, 0)]


def test_a_client_that_is_gone_is_told_nothing(driver: Driver) -> None:
    assert send(driver, "nobody.0000001") == "applied"
    assert not driver.database.exists(driver.keys.client_inbox("nobody"))


def test_one_that_is_far_behind_is_spared(driver: Driver, client: PlayedClient) -> None:
    for _ in range(5000):
        driver.database.run("XADD", driver.keys.client_inbox(client.id), "*", "registered", "{}")
    assert send(driver, client.task(1)) == "applied"
    assert client.told("output") == []
    assert driver.counts()["dropped:lines"] == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"task": "a b"},
        {"task": 5},
        {"lines": "text"},
        {"lines": None},
        {"dropped": -1},
        {"dropped": "x"},
        {"attempt": -1},
        {"attempt": None},
        {"number": -2},
        {"number": 0.5},
        {"number": "1"},
    ],
)
def test_what_is_no_output_is_set_aside(driver: Driver, client: PlayedClient, bad: dict[str, Any]) -> None:
    assert send(driver, bad.pop("task", client.task(1)), **bad) == "malformed"
    assert client.told("output") == []
