"""One certain reply is lost with its connection: what Redis has applied is not done again, and nobody hangs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gristmill import Client, LocalCluster, QueueFullError
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.proxy import PASS, Command, Fault, FaultProxy, Verdict
from support.server import RedisServer
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]

OWN = os.getpid()


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[FaultProxy]:
    """Between everybody and Redis. Ask for it before the cluster, which needs it to its end."""
    with FaultProxy(server.socket) as proxy:
        yield proxy


@pytest.mark.parametrize("name", [b"INFO", b"XADD", b"XREAD"])
def test_a_client_whose_registration_is_interrupted_registers_within_its_time(
    proxy: FaultProxy, start_cluster: Starter, name: bytes
) -> None:
    cluster = start_cluster(workers=1)
    lost = proxy.lose_reply(lambda command: command.name == name and command.pid == OWN)
    with Client(proxy.address, namespace=cluster.namespace, connect_timeout=60) as client:
        assert lost.is_set()
        assert client.submit(abs, -3).result(timeout=60) == 3


def test_a_client_that_registers_while_redis_loads_its_data_waits_for_it(
    proxy: FaultProxy, start_cluster: Starter
) -> None:
    cluster = start_cluster(workers=1)
    loading = proxy.refuse(
        lambda command: command.name == b"XADD" and command.pid == OWN, b"LOADING Redis is loading the dataset"
    )
    with Client(proxy.address, namespace=cluster.namespace, connect_timeout=60) as client:
        assert loading.is_set()
        assert client.submit(abs, -3).result(timeout=60) == 3


@pytest.mark.parametrize("name", [b"XADD", b"XREAD"])
def test_a_client_that_loses_a_reply_has_every_task_run_once(
    proxy: FaultProxy, start_cluster: Starter, tmp_path: Path, name: bytes
) -> None:
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    log = tmp_path / "log"
    with Client(proxy.address, namespace=cluster.namespace, connect_timeout=60) as client:
        lost = proxy.lose_reply(lambda command: command.name == name and command.pid == OWN)
        futures = [client.submit(tasks.note_start, str(log), str(number)) for number in range(200)]

        assert client.gather(futures, timeout=60) == [str(number) for number in range(200)]
        wait_until(lost.is_set, f"a reply to {name.decode()} was lost")
    assert Counter(tasks.started_lines(log)) == Counter(str(number) for number in range(200))


@pytest.mark.parametrize("name", [b"XADD", b"XREADGROUP"])
def test_a_processor_that_loses_a_reply_runs_every_task_once(
    proxy: FaultProxy, start_cluster: Starter, tmp_path: Path, name: bytes
) -> None:
    cluster = start_cluster(workers=0, redis=proxy.address, worker_options=LONG_LEASE)
    worker = cluster.add_worker()
    log = tmp_path / "log"
    with Client(cluster.address, namespace=cluster.namespace, connect_timeout=60) as client:
        schedulers = {scheduler.pid for scheduler in cluster.schedulers}
        not_processors = {OWN, worker.pid, *schedulers}
        lost = proxy.lose_reply(lambda command: command.name == name and command.pid not in not_processors)
        futures = [client.submit(tasks.note_start, str(log), str(number)) for number in range(200)]

        assert client.gather(futures, timeout=60) == [str(number) for number in range(200)]
        wait_until(lost.is_set, f"a reply to {name.decode()} was lost")
    assert Counter(tasks.started_lines(log)) == Counter(str(number) for number in range(200))


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "on its way"])
def test_a_client_whose_last_batch_was_refused_leaves_without_it(
    proxy: FaultProxy, start_cluster: Starter, database: Database, heard: bool
) -> None:
    cluster = start_cluster(workers=1)

    def full(command: Command) -> Verdict:
        if command.name == b"XADD" and command.words[3] == b"tasks":
            return Verdict(Fault.REFUSE, error=b"OOM command not allowed when used memory > 'maxmemory'.")
        return PASS

    with Client(proxy.address, namespace=cluster.namespace, connect_timeout=60) as client:
        assert client.submit(abs, -3).result(timeout=60) == 3
        proxy.on_command = full
        future = client.submit(abs, -4)
        if heard:
            assert isinstance(future.exception(timeout=60), QueueFullError)
    # Had it named the refused batch, the schedulers would have waited a minute for that.
    wait_until(lambda: not database.zset(cluster.keys.clients()), "the client is gone", timeout=45)
