"""order_worker: a person tells a worker to leave."""

from __future__ import annotations

import pytest

from gristmill.protocol.kinds import Request
from support.driver import Driver


@pytest.mark.parametrize("order", ["drain", "stop"])
def test_the_worker_is_told_and_the_audit_says_so(driver: Driver, order: str) -> None:
    worker = driver.worker(1)
    body = {"worker": worker.id, "order": order, "by": "ada", "reason": "a new disk"}

    assert driver.request(Request.ORDER_WORKER, body) == "applied"
    assert [kind for kind, _ in worker.control()] == ["registered", order]
    (written,) = driver.audit()
    assert written == {"action": order, "target": worker.id, "by": "ada", "reason": "a new disk", "answer": "applied"}


def test_one_that_has_gone_is_told_nothing(driver: Driver) -> None:
    worker = driver.worker(1)
    worker.leave()
    driver.settle()
    before = worker.control()

    assert driver.request(Request.ORDER_WORKER, {"worker": worker.id, "order": "stop", "by": "ada"}) == "unknown"
    assert worker.control() == before
    assert driver.audit()[-1]["answer"] == "it has gone"


@pytest.mark.parametrize("wrong", [{"order": "dance"}, {"by": ""}, {"by": None}, {"worker": "a:b"}])
def test_an_order_that_makes_no_sense_is_set_aside(driver: Driver, wrong: dict[str, str]) -> None:
    worker = driver.worker(1)
    body = {"worker": worker.id, "order": "stop", "by": "ada", **wrong}

    assert driver.request(Request.ORDER_WORKER, body) == "malformed"
    assert [kind for kind, _ in worker.control()] == ["registered"]
