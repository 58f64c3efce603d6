"""With a signing key, what is planted or altered in Redis is refused before anything of it is unpickled."""

from __future__ import annotations

import base64
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gristmill import Client, LocalCluster, SignatureError
from gristmill.protocol import signing
from gristmill.protocol.records import unpack_record
from support import tasks
from support.database import Database
from support.leases import LONG_LEASE
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]
KEY = "k" * 40


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(signing.VARIABLE, KEY)
    monkeypatch.setattr(signing, "off", False)
    return KEY


class Evil:
    """What makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.path,))


def test_everything_works_as_without(start_cluster: Starter) -> None:
    cluster = start_cluster(workers=1)
    large = b"x" * 3_000_000
    with Client(cluster) as client:

        def nested(number: int) -> int:
            from gristmill import Client

            with Client() as inner:
                value: int = inner.submit(abs, -number).result()
                return value + len(large)

        first = client.submit(tasks.echo, 5)
        assert client.submit(lambda value, more: value + more, first, client.submit(abs, -2)).result(timeout=60) == 7
        assert client.submit(len, large).result(timeout=60) == len(large)
        assert client.submit(bytes, 3_000_000).result(timeout=60) == bytes(3_000_000)
        assert client.submit(len, client.submit(bytes, 3_000_000)).result(timeout=60) == 3_000_000
        assert client.map(tasks.double, range(300)) == [2 * number for number in range(300)]
        assert client.submit(nested, 3).result(timeout=60) == 3 + len(large)
        with pytest.raises(ValueError, match="no"):
            client.submit(tasks.raise_value_error, "no").result(timeout=60)


def test_a_call_or_function_that_was_planted_is_not_unpickled(
    start_cluster: Starter, database: Database, tmp_path: Path
) -> None:
    cluster = start_cluster(workers=0, schedulers=1)
    evil = tmp_path / "evil"
    with Client(cluster) as client:
        called = client.submit(tasks.echo, 1)
        other = client.submit(lambda: 1)
        good = client.submit(abs, -1)
        client.flush()
        records = {future: cluster.keys.task(future.task_id) for future in (called, other, good)}
        wait_until(lambda: all(map(database.exists, records.values())), "the tasks are there")
        text = base64.b64encode(pickle.dumps(((Evil(evil),), {}))).decode()
        if database.exists(cluster.keys.payload(called.task_id)):
            database.run("SET", cluster.keys.payload(called.task_id), text)
        else:
            database.run("HSET", records[called], "call", text)
        function = database.hash(records[other])["function"].split(" ")[0]
        database.run("SET", cluster.keys.object(function), pickle.dumps(Evil(evil)))
        cluster.add_worker()

        for future in (called, other):
            assert isinstance(future.exception(timeout=60), SignatureError)
        assert good.result(timeout=60) == 1
    assert not evil.exists()


@pytest.mark.parametrize("status", ["success", "failed"])
def test_an_outcome_that_was_planted_is_not_unpickled(
    start_cluster: Starter, database: Database, tmp_path: Path, status: str
) -> None:
    cluster = start_cluster(workers=1, schedulers=1, worker_options=LONG_LEASE)
    evil, started, gate = tmp_path / "evil", tmp_path / "started", tmp_path / "gate"
    with Client(cluster) as client:
        future = client.submit(tasks.wait_for_file, str(started), str(gate))
        wait_until(started.exists, "the task executes")
        data = pickle.dumps(Evil(evil))
        if status == "failed":
            text = base64.b64encode(data).decode()
            data = json.dumps({"type": "x", "message": "", "traceback": "", "pickle": text}).encode()
        record = unpack_record(database.hash(cluster.keys.task(future.task_id)))
        row = [future.task_id, int(record["attempt"]), status, base64.b64encode(data).decode(), 1, 1, 1, None]
        body = json.dumps({"version": 1, "worker": record["worker"], "outcomes": [row]})
        database.run("XADD", cluster.keys.results(), "*", "outcomes", body)

        assert isinstance(future.exception(timeout=60), SignatureError)
        gate.touch()
        assert client.submit(abs, -1).result(timeout=60) == 1
    assert not evil.exists()


def test_who_has_no_key_is_told_so_and_keys_can_be_replaced(
    start_cluster: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(signing.VARIABLE, f"{'n' * 40},{KEY}")
    cluster = start_cluster(workers=1, schedulers=1)
    monkeypatch.setenv(signing.VARIABLE, f"{KEY},{'n' * 40}")
    with Client(cluster) as client:
        assert client.submit(abs, -1).result(timeout=60) == 1
    monkeypatch.delenv(signing.VARIABLE)
    monkeypatch.setattr(signing, "off", True)
    with Client(cluster) as client:
        error = client.submit(abs, -1).exception(timeout=60)
        assert error is not None
        assert "SignatureError" in str(error)
        assert signing.VARIABLE in str(error)
