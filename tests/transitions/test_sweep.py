"""sweep: the observed clock advances, and leases that have run out end."""

from __future__ import annotations

import pytest

from gristmill.protocol.kinds import Request
from support.driver import Driver


def observed(driver: Driver) -> int:
    return int(driver.database.hash(driver.keys.clock()).get("observed", "0"))


def pretend_last_sweep(driver: Driver, ago_ms: int) -> int:
    """Answers when that was, on Redis's clock."""
    swept = driver.now_ms() - ago_ms
    driver.database.run("HSET", driver.keys.clock(), "swept", swept)
    return swept


def test_the_first_sweep_only_starts_the_clock(driver: Driver) -> None:
    assert driver.duty("sweep", 1000) == "swept"
    assert observed(driver) == 0


def test_the_clock_advances_by_what_has_passed(driver: Driver) -> None:
    swept = pretend_last_sweep(driver, 1200)
    driver.duty("sweep", 60_000)

    assert 1200 <= observed(driver) <= driver.now_ms() - swept


def test_the_clock_advances_by_two_periods_at_most(driver: Driver) -> None:
    pretend_last_sweep(driver, 3_600_000)
    driver.duty("sweep", 1000)

    assert observed(driver) == 2000


def test_a_clock_that_went_back_does_not_take_the_observed_one_along(driver: Driver) -> None:
    driver.database.run("HSET", driver.keys.clock(), "observed", 500)
    pretend_last_sweep(driver, -3_600_000)
    driver.duty("sweep", 1000)

    assert observed(driver) == 500


def test_after_an_hour_without_schedulers_nobody_expires_at_once(driver: Driver) -> None:
    worker, client = driver.worker(1), driver.client()
    pretend_last_sweep(driver, 3_600_000)
    driver.duty("sweep", 1000)
    driver.settle()

    assert "gone" not in worker.record()
    assert "ended" not in client.record()


def test_a_worker_whose_lease_has_run_out_goes(driver: Driver) -> None:
    worker, other = driver.worker(1, lease_ms=1_000), driver.worker(1)
    driver.database.run("HSET", driver.keys.clock(), "observed", 1_500)
    driver.duty("sweep", 1000)
    driver.settle()

    assert worker.record()["gone"] == "expired"
    assert "gone" not in other.record()


def test_a_client_whose_lease_has_run_out_goes(driver: Driver) -> None:
    client = driver.client(lease_ms=1_000)
    driver.database.run("HSET", driver.keys.clock(), "observed", 1_500)
    driver.duty("sweep", 1000)
    driver.settle()

    assert "ended" in client.record()


def test_nobody_expires_while_an_old_heartbeat_waits(driver: Driver) -> None:
    worker = driver.worker(1, lease_ms=1_000)
    driver.database.run("HSET", driver.keys.clock(), "observed", 1_500)
    body = b'{"version":1,"worker":"%s","processors_ready":1}' % worker.id.encode()
    driver.database.run("XADD", driver.keys.heartbeats(), "*", "beat", body)
    seconds, _ = driver.database.run("TIME")
    driver.database.run("DEL", driver.keys.heartbeats())
    driver.database.run("XADD", driver.keys.heartbeats(), f"{(int(seconds) - 10) * 1000}-0", "beat", body)
    driver.database.run("XGROUP", "CREATE", driver.keys.heartbeats(), "schedulers", "0")
    driver.duty("sweep", 1000)
    driver.settle()

    assert "gone" not in worker.record()


@pytest.mark.requests_stay
def test_a_heartbeat_that_only_a_newer_scheduler_understands_keeps_nobody_for_ever(driver: Driver) -> None:
    worker = driver.worker(1, lease_ms=1_000)
    driver.database.run("HSET", driver.keys.clock(), "observed", 1_500)
    driver.database.run("DEL", driver.keys.heartbeats())
    sent = driver.now_ms() - 120_000
    driver.database.run("XADD", driver.keys.heartbeats(), f"{sent}-0", "beat", b'{"version":2}')
    driver.database.run("XGROUP", "CREATE", driver.keys.heartbeats(), "schedulers", "0")
    driver.duty("sweep", 1000)
    driver.settle()

    assert worker.record()["gone"] == "expired"


def test_sweeping_twice_ends_nobody_twice(driver: Driver) -> None:
    worker = driver.worker(1, lease_ms=1_000)
    driver.database.run("HSET", driver.keys.clock(), "observed", 1_500)
    driver.duty("sweep", 1000)
    driver.duty("sweep", 1000)

    assert [kind for kind, _ in driver.settle()] == [Request.END_WORKER.value]
    assert worker.record()["gone"] == "expired"


def test_many_expire_in_slices(driver: Driver) -> None:
    clients = [driver.client(lease_ms=1_000) for _ in range(60)]
    driver.database.run("HSET", driver.keys.clock(), "observed", 1_500)
    driver.duty("sweep", 1000)
    driver.duty("sweep", 1000)
    driver.settle()

    assert all("ended" in client.record() for client in clients)
