"""cancel_client: all tasks of one client are cancelled; the client lives on."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import Driver


def test_what_waits_is_canceled_and_what_is_held_is_asked_for(driver: Driver) -> None:
    client, other, worker = driver.client(), driver.client(), driver.worker(2)
    client.submit(1, 2, 3, 4)
    other.submit(1)
    worker.read(1)

    assert (
        driver.request(Request.CANCEL_CLIENT, {"client": client.id, "by": "ada", "reason": "wrong input"}) == "applied"
    )
    assert driver.state(client.task(1)) == "canceling"
    assert {outcome.number: outcome.state for outcome in client.outcomes()} == dict.fromkeys((2, 3, 4), "canceled")
    assert other.outcomes() == []
    assert client.record()
    (written,) = driver.audit()
    assert (written["action"], written["target"], written["reason"]) == ("cancel_client", client.id, "wrong input")

    assert client.submit(5) == "applied"


def test_many_tasks_are_canceled_in_slices(driver: Driver) -> None:
    client = driver.client()
    for start in range(1, 1001, 100):
        client.submit(*range(start, start + 100))

    driver.request(Request.CANCEL_CLIENT, {"client": client.id, "by": "ada"})
    assert 0 < len(client.outcomes()) < 1000
    assert [kind for kind, _ in driver.settle()].count("cancel_client") >= 2

    assert {outcome.state for outcome in client.outcomes()} == {"canceled"}
    assert len(client.outcomes()) == 1000
    assert len(driver.audit()) == 1


def test_a_client_that_is_not_there_is_said_to_have_gone(driver: Driver) -> None:
    assert driver.request(Request.CANCEL_CLIENT, {"client": "nobody", "by": "ada"}) == "unknown"
    assert driver.audit()[0]["answer"] == "it has gone"


def test_a_reason_that_is_none_is_left_out(driver: Driver) -> None:
    client = driver.client()
    for first in range(0, 1000, 200):
        client.submit(*range(first, first + 200))
    body = f'{{"version":1,"client":"{client.id}","by":"ada","reason":1e999}}'

    assert driver.request(Request.CANCEL_CLIENT, body.encode()) == "applied"
    driver.settle()
    assert len(client.outcomes()) == 1000


@pytest.mark.parametrize("cursor", [5, None, {}, "x", "1x", "-1"])
def test_a_cursor_that_is_none_is_refused(driver: Driver, cursor: Any) -> None:
    client = driver.client()
    client.submit(1)

    assert driver.request(Request.CANCEL_CLIENT, {"client": client.id, "by": "ada", "cursor": cursor}) == "malformed"
    assert driver.state(client.task(1)) == "inactive"
