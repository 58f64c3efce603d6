"""Clients: how they find their cluster, and how they leave."""

from __future__ import annotations

import os
import threading

import pytest

from gristmill import CancelledError, Client, ClientClosedError, ConnectionLostError, LocalCluster
from support import tasks
from support.waiting import wait_until


def test_a_client_takes_a_cluster(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        assert client.submit(abs, -1).result() == 1


def test_a_client_takes_an_address(cluster: LocalCluster) -> None:
    with Client(cluster.address) as client:
        assert client.submit(abs, -1).result() == 1


def test_a_client_finds_the_address_in_the_environment(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_REDIS", cluster.address)
    with Client() as client:
        assert client.submit(abs, -1).result() == 1


def test_without_an_address_a_client_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="GRISTMILL_REDIS"):
        Client()


def test_without_a_redis_a_client_says_what_it_cannot_reach() -> None:
    with pytest.raises(ConnectionLostError, match=r"/nowhere/redis\.sock"):
        Client("unix:///nowhere/redis.sock", connect_timeout=0.2)


def test_without_a_scheduler_a_client_says_so(cluster: LocalCluster) -> None:
    with pytest.raises(ConnectionLostError, match="no scheduler"):
        Client(cluster.address, namespace="nobody-is-here", connect_timeout=0.3)


def test_a_closed_client_takes_no_calls(cluster: LocalCluster) -> None:
    client = Client(cluster)
    client.disconnect()

    assert client.closed
    with pytest.raises(ClientClosedError):
        client.submit(abs, -1)


def test_closing_twice_is_harmless(cluster: LocalCluster) -> None:
    client = Client(cluster)
    client.disconnect()
    client.disconnect()


def test_closing_a_client_cancels_what_is_unfinished(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        future = client.submit(tasks.sleep_long, 600)

    with pytest.raises(CancelledError):
        future.result(timeout=60)


def test_values_that_have_arrived_outlive_their_client(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        future = client.submit(abs, -1)
        future.result()

    assert future.result() == 1


def test_two_clients_do_not_see_each_other(cluster: LocalCluster) -> None:
    with Client(cluster) as first, Client(cluster) as second:
        values = [first.submit(abs, -1), second.submit(abs, -2)]

        assert first.client_id != second.client_id
        assert [future.result() for future in values] == [1, 2]


def test_a_client_leaves_no_thread_behind(cluster: LocalCluster) -> None:
    before = set(threading.enumerate())
    with Client(cluster) as client:
        client.submit(abs, -1).result()

    wait_until(lambda: set(threading.enumerate()) <= before, "no thread is left")


def test_a_client_does_not_show_a_password() -> None:
    with pytest.raises(ConnectionLostError) as caught:
        Client("redis://:s3cret@127.0.0.1:1/0", connect_timeout=0.2)

    assert "s3cret" not in str(caught.value)


def test_a_forked_process_is_told_to_make_its_own_client(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                client.submit(abs, -1)
                os.write(writer, b"submitted")
            except ClientClosedError as error:
                os.write(writer, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        said = os.read(reader, 1000).decode()
        os.close(reader)

        assert "make a new client" in said
        assert client.submit(abs, -1).result() == 1


def test_a_notebook_shows_a_client_and_a_future(cluster: LocalCluster) -> None:
    with Client(cluster, namespace="default") as client:
        future = client.submit(abs, -1)
        future.result()

        assert f"<b>Client {client.client_id}</b>" in client._repr_html_()
        assert "unfinished tasks" in client._repr_html_()
        assert f"<b>Future {future.task_id}</b>" in future._repr_html_()
        assert "finished" in future._repr_html_()
        assert future.worker in future._repr_html_()
    assert "(closed)" in client._repr_html_()


def test_a_notebook_is_shown_text_and_no_markup() -> None:
    from gristmill.client.notebook import table

    assert "<script>" not in table("<script>", {"<script>": "<script>"})
