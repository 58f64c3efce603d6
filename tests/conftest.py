"""Fixtures that every test may ask for."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from gristmill import LocalCluster
from gristmill.protocol.keys import Keys
from support.database import Database
from support.invariants import wait_for_invariants
from support.leaks import Leaks, mark_children, own_temporary_folder
from support.server import RedisServer
from support.story import tell

# A shell that starts a job in the background has it ignore SIGINT, nohup SIGHUP, and so would all that the tests start.
if threading.current_thread() is threading.main_thread():
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
mark_children()
TEMPORARY = own_temporary_folder()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "requests_stay: the test leaves requests in their streams on purpose")


def pytest_unconfigure() -> None:
    shutil.rmtree(TEMPORARY, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RedisServer]:
    """One Redis for all tests of this process that neither stop nor configure it."""
    server = RedisServer()
    server.start()
    yield server
    server.discard()


@pytest.fixture
def server(shared_server: RedisServer) -> Iterator[RedisServer]:
    """The shared Redis, empty before and after the test."""
    shared_server.empty()
    yield shared_server
    shared_server.empty()


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A Redis for this test alone, which it may stop, fill and configure; its data survive a restart."""
    server = RedisServer(persistent=True)
    server.start()
    yield server
    server.discard()


@pytest.fixture
def database(server: RedisServer) -> Iterator[Database]:
    """What lies in the shared Redis, read by hand."""
    database = Database(server.address)
    yield database
    database.close()


@pytest.fixture
def namespace() -> str:
    """A name that no other test uses."""
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture
def keys(namespace: str) -> Keys:
    """The keys of the test's namespace."""
    return Keys(namespace)


@pytest.fixture
def no_leaks(shared_server: RedisServer) -> Iterator[Leaks]:
    """Afterwards no process, thread or file of the test is left. Ask for it first, so that it looks last.

    What tests share is there before.
    """
    leaks = Leaks()
    yield leaks
    leaks.check()


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the person who runs the tests do not reach them."""
    for name in list(os.environ):
        if name.startswith("GRISTMILL_") and not name.startswith("GRISTMILL_TEST_"):
            monkeypatch.delenv(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure says what its clusters did."""
    report = yield
    if report.when == "call" and report.failed:
        starter = getattr(item, "funcargs", {}).get("start_cluster")
        for cluster in getattr(starter, "clusters", ()):
            try:
                report.sections.append((f"What happened at {cluster.address}", tell(cluster)))
            except Exception as error:  # the failure is the news; a server that is gone tells nothing
                report.sections.append((f"What happened at {cluster.address}", repr(error)))
    return report


Starter = Callable[..., LocalCluster]


@pytest.fixture
def start_cluster(no_leaks: Leaks, server: RedisServer, namespace: str) -> Iterator[Starter]:
    """Starts real schedulers and workers on the shared Redis, in the namespace of the test; takes what `LocalCluster`
    takes. Leases are short. Afterwards everything has come to rest, all invariants hold, and nothing is left.
    """
    clusters: list[LocalCluster] = []

    def start(**options: Any) -> LocalCluster:
        options = {"redis": server.address, "namespace": namespace, "workers": 2, "schedulers": 2, **options}
        options["worker_options"] = {"worker_lease_seconds": 3.0, **options.get("worker_options", {})}
        options["scheduler_options"] = {"takeover_seconds": 0.5, "sweep_seconds": 0.5} | options.get(
            "scheduler_options", {}
        )
        clusters.append(LocalCluster(**options))
        return clusters[-1]

    start.clusters = clusters  # type: ignore[attr-defined]
    yield start
    try:
        for cluster in clusters:
            database = Database(cluster.address)
            wait_for_invariants(database, cluster.keys)
            database.close()
    finally:
        for cluster in clusters:
            cluster.close()
