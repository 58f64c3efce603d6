"""joblib runs its batches as tasks, so that scikit-learn's `n_jobs` works on a cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator

import joblib
import pytest

import gristmill.compat.joblib  # noqa: F401 - importing it registers the backend
from gristmill import Client, LocalCluster
from support import tasks
from support.waiting import wait_until


@pytest.fixture(autouse=True)
def backend(client: Client) -> Iterator[None]:
    with joblib.parallel_backend("gristmill", client=client):
        yield


def test_values_come_in_order() -> None:
    assert joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(300)) == [n * n for n in range(300)]


def test_it_runs_in_the_workers() -> None:
    pids = joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(6))

    assert os.getpid() not in pids


def test_all_jobs_are_all_processors_of_the_cluster(client: Client) -> None:
    wait_until(lambda: client.capacity() == 2, "both workers have their processor")
    assert joblib.effective_n_jobs(-1) == 2
    assert joblib.effective_n_jobs(5) == 5


def test_what_a_job_raises_is_raised_and_the_client_goes_on(client: Client) -> None:
    with pytest.raises(ZeroDivisionError):
        joblib.Parallel(n_jobs=2)(joblib.delayed(divmod)(1, n - 3) for n in range(50))

    assert client.submit(abs, -1).result(timeout=30) == 1
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-n) for n in range(3)) == [0, 1, 2]


def test_values_may_come_by_and_by() -> None:
    parallel = joblib.Parallel(n_jobs=2, return_as="generator")

    assert list(parallel(joblib.delayed(tasks.double)(n) for n in range(20))) == list(range(0, 40, 2))


def test_a_job_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(multiprocessing.TimeoutError):
        joblib.Parallel(n_jobs=2, timeout=0.3)(joblib.delayed(tasks.sleep_long)(s) for s in (60, 60))


def test_no_jobs_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="n_jobs"):
        joblib.effective_n_jobs(0)


def test_without_a_client_the_environment_says_where(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_REDIS", cluster.address)
    with joblib.parallel_backend("gristmill", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)) == [0, 1, 2]
