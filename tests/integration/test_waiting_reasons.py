"""A task that nobody can run does not wait in silence."""

from __future__ import annotations

import concurrent.futures
import logging
import sys

import pytest

from conftest import Starter
from gristmill import Client
from gristmill.client import lookout
from gristmill.cluster import LocalCluster
from support.waiting import wait_until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "CHECK_SECONDS", 0.2)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned of: a machine that stalls may make others speak as well."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == lookout.logger.name and record.levelno == logging.WARNING
    ]


@pytest.fixture
def cluster(start_cluster: Starter) -> LocalCluster:
    # With a lease that does not end by itself: without a worker there would be another reason.
    return start_cluster(workers=1, schedulers=1, worker_options={"worker_lease_seconds": 60.0})


def test_the_client_says_which_capability_is_missing_until_a_worker_has_it(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(cluster) as client:
        future = client.options(capabilities=["gpu"]).submit(abs, -1)
        wait_until(lambda: future.waiting_for, "the reason is known", timeout=60)

        assert future.waiting_for == "no worker offers gpu; start one: gristmill worker --capabilities gpu"
        assert said(caplog) == [f"a task waits: {future.waiting_for}"]
        with pytest.raises(concurrent.futures.TimeoutError, match="no worker offers gpu"):
            future.result(timeout=0)
        assert client.submit(abs, -2).result(timeout=60) == 2  # it blocks nobody

        cluster.add_worker(capabilities="gpu")
        assert future.result(timeout=60) == 1
        assert future.waiting_for == ""


def test_the_client_says_that_no_worker_has_its_python(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("gristmill.client.options.python_tag", lambda: "python3.99")
        client = Client(cluster)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with client:
        future = client.submit(abs, -1)
        wait_until(lambda: future.waiting_for, "the reason is known", timeout=60)

        assert f"no worker has Python 3.99, by which it was sent; the workers here have {here}" in future.waiting_for
        assert future.cancel()


def test_a_task_that_takes_long_needs_no_reason(cluster: LocalCluster, caplog: pytest.LogCaptureFixture) -> None:
    from support import tasks

    with Client(cluster) as client:
        looked: list[bool] = []
        look = client._session.lookout.look
        client._session.lookout.look = lambda: looked.append(look() is None)  # type: ignore[method-assign]
        future = client.submit(tasks.sleep_long, 600)
        wait_until(lambda: looked, "it was looked", timeout=60)

        assert future.waiting_for == ""
        assert said(caplog) == []
        assert future.cancel()
