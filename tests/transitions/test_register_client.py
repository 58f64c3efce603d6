"""register_client: the record and the inbox begin here, and only here."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from support.driver import CALL, Driver, PlayedClient


def test_a_client_gets_a_record_a_lease_and_an_answer(driver: Driver) -> None:
    client = PlayedClient(driver)

    assert client.register(lease_ms=5_000, name="mine", host="there", pid=7) == "applied"
    record = client.record()
    assert {name: record[name] for name in ("registration", "batch", "lease_ms", "name", "host", "pid")} == {
        "registration": "1", "batch": "0", "lease_ms": "5000", "name": "mine", "host": "there", "pid": "7",
    }  # fmt: skip
    assert driver.database.zset(driver.keys.clients()) == {client.id: 5_000}
    assert client.inbox() == [("registered", {"registration": 1})]


def test_the_lease_is_counted_on_the_observed_clock(driver: Driver) -> None:
    driver.database.run("HSET", driver.keys.clock(), "observed", 1_000_000)
    client = driver.client(lease_ms=5_000)

    assert driver.database.zset(driver.keys.clients()) == {client.id: 1_005_000}


def test_the_same_registration_again_is_answered_again_and_changes_nothing(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)
    before = client.record()
    client.register()

    assert client.record() == before
    assert client.told("registered") == [{"registration": 1}, {"registration": 1}]
    assert driver.state(client.task(1)) == "inactive"


def test_a_later_registration_starts_the_batch_numbers_again_and_keeps_the_tasks(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)
    client.submit(2, batch=5)
    client.register(registration=2)

    record = client.record()
    assert (record["batch"], record["registration"], record["last"]) == ("0", "2", "2")
    assert not driver.database.exists(driver.keys.client_batches(client.id))
    client.batch = 0
    assert client.submit(3) == "applied"
    assert driver.database.set(driver.keys.client_tasks(client.id)) == {client.task(number) for number in (1, 2, 3)}


def test_an_earlier_registration_that_comes_late_changes_nothing(driver: Driver) -> None:
    client = driver.client()
    client.register(registration=3)
    client.submit(1)
    client.register(registration=2)

    assert (client.record()["registration"], client.record()["batch"]) == ("3", "1")


def test_a_client_that_has_ended_is_refused(driver: Driver) -> None:
    client = driver.client()
    client.disconnect()
    driver.settle()

    assert client.register(registration=2) == "refused"
    assert "ended" in client.record()
    assert client.told("refused")
    assert driver.database.zset(driver.keys.clients()) == {}


# --- inside a task ------------------------------------------------------------------------------------------


def test_a_nested_client_is_entered_in_its_parent_task(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    nested = driver.client(parent=client.task(1), parent_attempt=1)

    assert nested.record()["parent"] == client.task(1)
    assert driver.record(client.task(1))["nested"] == nested.id


@pytest.mark.parametrize("end", ["succeed", "fail", "retry", "give_back"])
def test_a_nested_client_ends_with_the_attempt_of_its_parent(driver: Driver, end: str) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"retries": 1}])
    worker.read()
    nested = driver.client(parent=client.task(1), parent_attempt=1)
    nested.submit(1, [2, 0, CALL, {"lane": "elsewhere"}])
    getattr(worker, end)(client.task(1))
    driver.settle()

    assert "ended" in nested.record()
    assert driver.state(nested.task(2)) == ""


def test_a_nested_client_ends_when_the_worker_of_its_parent_is_lost(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    nested = driver.client(parent=client.task(1), parent_attempt=1)
    nested.submit([1, 0, CALL, {"lane": "elsewhere"}])
    worker.lose()

    assert "ended" in nested.record()
    assert driver.state(nested.task(1)) == ""


@pytest.mark.parametrize("parent_attempt", [0, 2])
def test_a_nested_client_of_another_attempt_is_refused(driver: Driver, parent_attempt: int) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    nested = PlayedClient(driver)

    assert nested.register(parent=client.task(1), parent_attempt=parent_attempt) == "refused"
    assert nested.record() == {}
    assert nested.told("refused")


def test_a_nested_client_of_a_task_that_nobody_knows_is_refused(driver: Driver) -> None:
    nested = PlayedClient(driver)

    assert nested.register(parent="nobody.0000001", parent_attempt=1) == "refused"


def test_a_nested_client_of_an_attempt_that_has_gone_back_to_its_lane_is_refused(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit([1, 0, CALL, {"retries": 1, "retry_delay_ms": 60_000}])
    worker.read()
    worker.retry(client.task(1))
    nested = PlayedClient(driver)

    assert driver.record(client.task(1))["attempt"] == "1"
    assert nested.register(parent=client.task(1), parent_attempt=1) == "refused"


def test_a_nested_client_of_a_finished_task_is_refused(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, [2, 0, CALL, {"dependencies": [client.task(1)]}])
    worker.read()
    worker.succeed(client.task(1))
    nested = PlayedClient(driver)

    assert driver.state(client.task(1)) == "success"
    assert nested.register(parent=client.task(1), parent_attempt=1) == "refused"


# --- what cannot be understood ------------------------------------------------------------------------------

BAD: dict[str, dict[str, Any]] = {
    "a client with a dot": {"client": "a.b"},
    "a client with a colon": {"client": "a:b"},
    "an empty client": {"client": ""},
    "a client that is a number": {"client": 5},
    "no registration": {"registration": None},
    "no lease": {"lease_ms": None},
    "a lease that is text": {"lease_ms": "long"},
    "a parent that is a number": {"parent": 5},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
def test_a_registration_that_is_none_is_set_aside(driver: Driver, changes: dict[str, Any]) -> None:
    client = PlayedClient(driver)

    assert client.register(**changes) in ("malformed", "refused")
    assert client.record() == {}
    assert driver.database.zset(driver.keys.clients()) == {}


@pytest.mark.parametrize("lease", [b"NaN", b"1e999", b"-1e999", b"-1", b"0.5"])
def test_a_lease_that_is_no_time_is_set_aside(driver: Driver, lease: bytes) -> None:
    body = b'{"version":1,"client":"aaaa","registration":1,"lease_ms":%s}' % lease

    assert driver.request(Request.CLIENT, body) == "malformed"
