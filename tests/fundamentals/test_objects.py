"""References to objects that were sent, `clear`, and serializers of the user's own."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import (
    Client,
    DeserializationError,
    LocalCluster,
    MissingObjectError,
    ObjectReference,
    ResultSerializationError,
    SerializationError,
    Serializer,
    SettingError,
)
from support import tasks
from support.database import Database
from support.waiting import wait_until


@pytest.fixture
def database(cluster: LocalCluster) -> Iterator[Database]:
    database = Database(cluster.address)
    yield database
    database.close()


def sent(database: Database, cluster: LocalCluster, client: Client) -> int:
    """How many objects, but for functions, Redis has of the client."""
    begin = cluster.keys.object(f"{client.client_id}.o")
    return len(
        {key[len(begin) :].partition(":")[0] for key in database.keys(cluster.keys.prefix) if key.startswith(begin)}
    )


class TestReferences:
    def test_a_task_finds_the_value_in_its_place_wherever_that_is(self, client: Client) -> None:
        table = client.send_object({"one": [1], "array": np.arange(100_000)}, name="table")

        def look(first: Any, *, deep: Any) -> Any:
            return first["one"][0], int(deep[0]["here"]["array"][5]), first is deep[0]["here"]

        assert client.submit(look, table, deep=[{"here": table}]).result() == (1, 5, True)
        assert client.map(lambda given, at: int(given["array"][at]), [table] * 20, range(20)) == list(range(20))
        assert repr(table).startswith("<ObjectReference table: 8")
        assert table.size > 800_000

    def test_it_is_uploaded_once_and_no_task_sees_another_s_changes(
        self, client: Client, cluster: LocalCluster, database: Database
    ) -> None:
        value = [1, 2, 3]
        reference = client.send_object(value)

        def append(given: list[int]) -> int:
            given.append(4)
            return len(given)

        assert client.gather([client.submit(append, reference) for _ in range(20)]) == [4] * 20
        assert sent(database, cluster, client) == 1

    def test_it_can_be_in_a_closure_and_under_a_task_of_a_task(self, client: Client) -> None:
        reference = client.send_object("sent")

        def with_client(client: Client, given: ObjectReference) -> Any:
            return client.submit(lambda text: text + " on", given).result()

        travelling = pickle.dumps(reference)
        assert client.submit(lambda: reference + " along").result() == "sent along"  # type: ignore[operator]
        assert client.submit(lambda client: with_client(client, pickle.loads(travelling)), client).result() == "sent on"

    def test_it_is_freed_when_nobody_needs_it(self, client: Client, cluster: LocalCluster, database: Database) -> None:
        reference = client.send_object("x" * 10)
        other = pickle.loads(pickle.dumps(reference))
        assert other == reference
        assert hash(other) == hash(reference)
        client.submit(len, reference).result()

        del reference
        wait_until(lambda: not sent(database, cluster, client), "the object is freed")
        assert isinstance(client.submit(len, other).exception(30), Exception)

    def test_what_cannot_be_serialised_is_said(self, client: Client) -> None:
        with pytest.raises(SerializationError, match=r"the object, of type _thread\.lock"):
            client.send_object(threading.Lock())


class TestClear:
    def test_it_cancels_frees_and_goes_on(self, client: Client, cluster: LocalCluster, database: Database) -> None:
        done = client.submit(pow, 2, 3)
        assert done.result() == 8
        reference = client.send_object("sent")
        client.submit(len, reference).result()
        running = client.submit(time.sleep, 60)
        client.clear()

        assert running.cancelled()
        assert done.result() == 8
        with pytest.raises(MissingObjectError, match="was cleared; send it again"):
            client.submit(len, reference)
        with pytest.raises(MissingObjectError, match="was cleared"):
            client.submit(len, [reference])
        wait_until(lambda: not sent(database, cluster, client), "the object is freed")
        assert client.submit(pow, 2, 4).result() == 16


class Json(Serializer):
    @staticmethod
    def serialize(value: Any) -> bytes:
        return json.dumps(value).encode()

    @staticmethod
    def deserialize(data: bytes) -> Any:
        return json.loads(data)


class Marked(Serializer):
    """Says by each text through whose hands it went."""

    @staticmethod
    def serialize(value: Any) -> bytes:
        return pickle.dumps(f"{value}>" if isinstance(value, str) else value)

    @staticmethod
    def deserialize(data: bytes) -> Any:
        value = pickle.loads(data)
        return f"{value}<" if isinstance(value, str) else value


@pytest.fixture
def marked(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, serializer=Marked) as client:
        yield client


class TestSerializer:
    def test_arguments_and_values_go_through_its_hands(self, cluster: LocalCluster) -> None:
        with Client(cluster, serializer=Json) as client:
            assert client.submit(lambda pair, **more: [pair, more], (1, 2), key=(3,)).result() == [[1, 2], {"key": [3]}]
            assert client.map(lambda pair: pair, [(1, 2), (3, 4)]) == [[1, 2], [3, 4]]
            assert client.submit(lambda given: given, "x" * 300_000).result() == "x" * 300_000

    def test_each_argument_and_value_once_there_and_back(self, marked: Client) -> None:
        assert marked.submit(lambda text: text + "!", "a").result() == "a><!><"
        assert marked.map(lambda text: text, ["a", "b"]) == ["a><><", "b><><"]

    def test_values_go_from_task_to_task(
        self, marked: Client, cluster: LocalCluster, database: Database, tmp_path: Path
    ) -> None:
        started, gate = str(tmp_path / "started"), str(tmp_path / "gate")

        def first_half(text: str) -> str:
            tasks.wait_for_file(started, gate)
            return text

        # Held at the gate until the second has its place: a value that the client has already goes by another way.
        first = marked.submit(first_half, "a")
        second = marked.submit(str, first)
        wait_until(lambda: database.exists(cluster.keys.task(second.task_id)), "the second has its place")
        Path(gate).touch()
        assert second.result() == "a><><><"

    def test_a_value_that_the_client_has_is_an_argument_like_any_other(self, marked: Client) -> None:
        first = marked.submit(str, "a")
        assert first.result() == "a><><"
        assert marked.submit(str, first).result() == "a><><><><"

    def test_an_object_that_is_sent_goes_through_its_hands(self, marked: Client) -> None:
        assert marked.submit(str, marked.send_object("a")).result() == "a><><"

    def test_a_client_that_travels_keeps_it_and_one_made_in_a_task_has_it(self, marked: Client) -> None:
        def by_argument() -> str:
            with Client() as client:
                return str(client.submit(str, "b").result())

        assert marked.submit(by_argument).result() == "b><><><"
        with pickle.loads(pickle.dumps(marked)) as again:
            assert again.submit(str, "a").result() == "a><><"

    def test_exceptions_travel_as_ever(self, marked: Client) -> None:
        with pytest.raises(ZeroDivisionError):
            marked.submit(lambda number: 1 // number, 0).result()

    def test_what_it_cannot_take_is_said(self, cluster: LocalCluster) -> None:
        with Client(cluster, serializer=Json) as client:
            with pytest.raises(SerializationError, match=r"positional argument 2 of .*, of type builtins\.set"):
                client.submit(max, 1, {2})
            with pytest.raises(ResultSerializationError, match=r"of type builtins\.set.*JSON serializable"):
                client.submit(lambda: {1}).result()
            with pytest.raises(SerializationError, match="the object, of type"):
                client.send_object({1})

    def test_what_it_cannot_load_fails_that_task(self, cluster: LocalCluster) -> None:
        class Fails(Serializer):
            @staticmethod
            def deserialize(data: bytes) -> Any:
                raise ValueError("not today")

        with Client(cluster, serializer=Fails) as client, pytest.raises(DeserializationError, match="not today"):
            client.submit(str, 1).result()

    @pytest.mark.parametrize("bad", [5, object(), "json"])
    def test_what_is_none_is_refused(self, cluster: LocalCluster, bad: object) -> None:
        with pytest.raises(SettingError, match="expected a serializer with the methods serialize and deserialize"):
            Client(cluster, serializer=bad)
