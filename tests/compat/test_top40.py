"""What a program written for opengris-scaler relies on, by the numbers of its forty behaviours.

Those that are not about a client are tested where they belong: `ELSEWHERE` says where.
"""

from __future__ import annotations

import concurrent.futures
import functools
import operator
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gristmill
from gristmill.cluster import LocalCluster
from gristmill.compat.scaler import (
    CancelledError,
    Client,
    DeserializeObjectError,
    ProcessorDiedError,
    ScalerFuture,
    SchedulerClusterCombo,
)
from support import tasks
from support.database import Database
from support.waiting import wait_until

TESTS = Path(__file__).parents[1]
ELSEWHERE = {
    13: "unit/test_settings.py::capabilities",
    21: "integration/test_shutdown.py::test_protected_schedulers_refuse_in_the_words_that_people_know",
    22: "integration/test_clients_lost.py::test_the_tasks_of_a_killed_client_are_cancelled",
    23: "integration/test_workers_lost.py::test_a_task_that_kills_every_worker_is_given_up_by_name",
    25: "integration/test_schedulers.py::test_with_all_replicas_killed_work_goes_on_when_another_starts",
    33: "transitions/test_even_load.py::test_a_task_that_asks_for_more_runs_anywhere",
    34: "transitions/test_balance.py::test_an_executing_task_never_moves",
    35: "integration/test_worker_deaths.py::test_a_preload_runs_before_the_first_task",
    37: "unit/test_settings.py::test_",
    39: "integration/test_snapshot.py::test_",
}


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.address) as client:
        yield client


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    gate = tmp_path / "gate"
    yield gate
    gate.touch()


def held_back(client: gristmill.Client, gate: Path) -> ScalerFuture:
    return client.submit(tasks.wait_for_file, str(gate.with_name("started")), str(gate))


def test_every_behaviour_has_a_test() -> None:
    here = {int(number) for number in re.findall(r"^def test_(\d\d)_", Path(__file__).read_text(), re.MULTILINE)}

    assert here | ELSEWHERE.keys() == set(range(1, 41))
    assert not here & ELSEWHERE.keys()
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert name in (TESTS / file).read_text(), place


def test_01_a_client_connects_and_may_leave_again_and_again(cluster: LocalCluster) -> None:
    with Client(address=cluster.address) as client:
        assert client.submit(abs, -1).result() == 1
    for _ in range(3):
        client.disconnect()


def test_02_submit_returns_a_future_of_the_standard_library(client: Client) -> None:
    future = client.submit(pow, 2, 10)

    assert isinstance(future, ScalerFuture)
    assert isinstance(future, concurrent.futures.Future)
    assert list(concurrent.futures.as_completed([future], timeout=30)) == [future]
    assert concurrent.futures.wait([future]).done == {future}


def test_03_arguments_are_bound_by_the_client(client: Client) -> None:
    def local(first: int, second: int = 2, *, third: int = 3) -> tuple[int, ...]:
        return first, second, third

    factor = 5
    assert client.submit(local, 1).result() == (1, 2, 3)
    assert client.submit(local, second=7, first=6, third=8).result() == (6, 7, 8)
    assert client.submit(functools.partial(local, 1), 9).result() == (1, 9, 3)
    assert client.submit(lambda number: factor * number, 3).result() == 15
    with pytest.raises(TypeError, match="first"):
        client.submit(local)
    with pytest.raises(TypeError, match="fourth"):
        client.submit(local, 1, fourth=4)


def test_04_map_and_starmap_return_lists_in_order(client: Client) -> None:
    assert client.map(operator.add, range(50), range(50)) == list(range(0, 100, 2))
    assert client.starmap(operator.sub, [(number, 1) for number in range(50)]) == list(range(-1, 49))


def test_05_the_first_exception_is_raised_with_its_type_and_the_remote_traceback(client: Client) -> None:
    with pytest.raises(ValueError, match="one hundred") as caught:
        client.map(tasks.raise_value_error, ["one hundred", "two hundred"])

    assert "in raise_value_error" in str(caught.value.__cause__)
    assert client.submit(abs, -1).result() == 1  # and the client is still connected


def test_06_a_future_runs_at_once_and_is_done_by_itself(client: Client, gate: Path) -> None:
    future = held_back(client, gate)
    assert (future.running(), future.done()) == (True, False)
    gate.touch()

    wait_until(future.done, "the future is done without anybody asking for its result", timeout=30)


def test_07_waiting_may_be_given_up(client: Client, gate: Path) -> None:
    future = held_back(client, gate)

    for timeout in (0, 0.01):
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(timeout=timeout)
        with pytest.raises(concurrent.futures.TimeoutError):
            future.exception(timeout=timeout)


def test_08_unassigned_queued_and_executing_tasks_are_cancelled(client: Client, gate: Path) -> None:
    unassigned = client.submit_verbose(abs, (-1,), {}, capabilities={"nobody-has-this": 1})
    held = [held_back(client, gate) for _ in range(4)]
    wait_until(gate.with_name("started").exists, "one executes", timeout=30)

    assert all(future.cancel() for future in [unassigned, *held])
    finished = client.submit(abs, -1)
    finished.result()
    assert not finished.cancel()
    assert finished.result() == 1


def test_09_a_cancelled_future_wakes_whoever_waits(client: Client, gate: Path) -> None:
    future = held_back(client, gate)
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())
    waiting = threading.Thread(target=concurrent.futures.wait, args=([future],))
    waiting.start()
    future.cancel()
    waiting.join(30)

    assert called.wait(30)
    assert future.cancelled()
    with pytest.raises(CancelledError):
        future.result()


def test_10_callbacks_are_called_and_may_ask_for_the_result(client: Client) -> None:
    seen: list[Any] = []
    called = threading.Event()

    def callback(future: Any) -> None:
        seen.append(future.result())
        called.set()

    client.submit(abs, -1).add_done_callback(callback)

    assert called.wait(30)
    assert seen == [1]


def test_11_a_future_knows_what_its_task_took(client: Client, gate: Path) -> None:
    future = client.submit(sum, range(200_000))
    future.result()
    profile = future.profiling_info()

    assert profile.duration_s > 0
    assert profile.cpu_time_s > 0
    assert profile.memory_peak >= 0
    with pytest.raises(ValueError, match="not done"):
        held_back(client, gate).profiling_info()


def test_12_a_task_waits_for_a_capable_worker_and_others_go_on(client: Client) -> None:
    future = client.submit_verbose(pow, args=(2, 3), kwargs={}, capabilities={"gpu": -1})
    assert client.submit(abs, -1).result(timeout=30) == 1

    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(timeout=0.2)
    assert future.cancel()


def test_14_a_graph_is_checked_and_computed(client: Client) -> None:
    import graphlib

    graph: dict[str, Any] = {
        "a": 2, "b": None, "c": (operator.add, "a", "a"), "d": (str, "b"), "e": (tasks.raise_value_error, "d"),
    }  # fmt: skip

    assert client.get(graph, ["d", "c", "a"]) == {"d": "None", "c": 4, "a": 2}
    assert list(client.get(graph, keys=["c", "a"], block=True)) == ["c", "a"]
    futures = client.get(graph, ["c"], block=False)
    assert futures["c"].result(timeout=30) == 4
    with pytest.raises(KeyError):
        client.get(graph, ["a", "a"])
    with pytest.raises(KeyError):
        client.get(graph, ["nobody"])
    with pytest.raises(graphlib.CycleError):
        client.get({"a": (abs, "b"), "b": (abs, "a")}, ["a"])


def test_15_a_diamond_and_a_dependency_that_is_used_twice(client: Client) -> None:
    graph = {
        "top": 3, "left": (tasks.double, "top"), "right": (tasks.double, "top"),
        "sum": (operator.add, "left", "right"), "twice": (operator.mul, "sum", "sum"),
    }  # fmt: skip

    assert client.get(graph, ["sum", "twice"]) == {"sum": 12, "twice": 144}


def test_16_a_node_that_fails_fails_what_depends_on_it(client: Client) -> None:
    graph = {
        "text": "no", "bad": (tasks.raise_value_error, "text"), "one": (abs, "bad"), "two": (abs, "one"),
        "good": (str.upper, "text"),
    }  # fmt: skip
    futures = client.get(graph, ["one", "two", "good"], block=False)

    for key in ("one", "two"):
        with pytest.raises(ValueError, match="no"):
            futures[key].result(timeout=30)
    with pytest.raises(ValueError, match="no"):
        client.get(graph, ["two"])
    assert client.get(graph, ["good"]) == {"good": "NO"}


def test_17_cancelling_one_future_of_a_graph_cancels_all(client: Client, gate: Path) -> None:
    graph = {
        "started": str(gate.with_name("started")), "gate": str(gate),
        "held": (tasks.wait_for_file, "started", "gate"), "one": (str, "held"), "two": (abs, "held"),
    }  # fmt: skip
    futures = client.get(graph, ["one", "two"], block=False)
    futures["one"].cancel()

    wait_until(lambda: all(future.cancelled() for future in futures.values()), "all are cancelled", timeout=30)


def test_18_an_object_is_sent_once_and_used_by_reference(client: Client) -> None:
    reference = client.send_object([1, 2, 3], name="numbers")

    assert client.submit(sum, reference).result() == 6
    assert client.map(len, [reference] * 5) == [3] * 5
    assert client.get({"numbers": reference, "sum": (sum, "numbers")}, ["sum"]) == {"sum": 6}


def test_19_clear_cancels_and_forgets_and_the_client_goes_on(client: Client, gate: Path) -> None:
    from gristmill.compat.scaler import MissingObjects

    reference = client.send_object([1, 2, 3])
    finished, unfinished = client.submit(abs, -1), held_back(client, gate)
    finished.result()
    client.clear()

    assert finished.result() == 1
    with pytest.raises(CancelledError):
        unfinished.result(timeout=30)
    with pytest.raises(MissingObjects):
        client.submit(sum, reference).result(timeout=30)
    assert client.submit(abs, -2).result(timeout=30) == 2


def test_20_leaving_cancels_what_is_unfinished_and_frees_objects(cluster: LocalCluster, gate: Path) -> None:
    with Client(cluster.address) as client:
        future = held_back(client, gate)
        identity = client.client_id
    database = Database(cluster.address)

    with pytest.raises(CancelledError):
        future.result(timeout=30)
    wait_until(lambda: not database.keys(cluster.keys.client_tasks(identity)), "its tasks are gone", timeout=30)
    wait_until(lambda: not database.keys(cluster.keys.client_objects(identity)), "its objects are gone", timeout=30)
    database.close()


def test_24_a_task_that_ends_its_process_fails_and_is_not_retried(client: Client, tmp_path: Path) -> None:
    log = str(tmp_path / "log")

    def exit_at_once(log: str) -> None:
        from support import tasks

        tasks.note_start(log, "start")
        os._exit(1)

    with pytest.raises(ProcessorDiedError):
        client.submit(exit_at_once, log).result(timeout=60)
    assert tasks.started_lines(log) == ["start"]
    assert client.map(abs, [-1, -2, -3]) == [1, 2, 3]


def test_26_a_function_that_carries_a_lot_is_uploaded_once(client: Client, cluster: LocalCluster) -> None:
    """The full sizes are in the tests of payloads: here 20 MB shared by 500 tasks."""
    carried = functools.partial(_length_and, os.urandom(20 << 20))
    database = Database(cluster.address)
    before = used_memory(database)
    futures = [client.submit(carried, number) for number in range(500)]
    client.flush(timeout=60)
    grown = used_memory(database) - before
    objects = database.keys(cluster.keys.object(client.client_id))
    stored = sum(int(database.run("STRLEN", key)) for key in objects)
    database.close()

    assert [future.result() for future in futures] == [(20 << 20) + number for number in range(500)]
    assert 20 << 20 <= stored < 21 << 20
    assert grown < 200 << 20  # Redis also has what is on its way to workers and to its file


def used_memory(database: Database) -> int:
    found = re.search(rb"used_memory:(\d+)", database.run("INFO", "memory"))
    assert found
    return int(found[1])


def _length_and(data: bytes, number: int) -> int:
    return len(data) + number


class Reversed:
    """A serializer that is none of pickle's: bytes run backwards."""

    @staticmethod
    def serialize(value: Any) -> bytes:
        import cloudpickle

        return bytes(cloudpickle.dumps(value))[::-1]

    @staticmethod
    def deserialize(data: bytes) -> Any:
        import pickle

        return pickle.loads(bytes(data)[::-1])


def test_27_a_serializer_of_the_users_own_travels(cluster: LocalCluster) -> None:
    with Client(cluster.address, serializer=Reversed()) as client:
        assert client.submit(tasks.echo, {"a": [1, 2]}).result(timeout=30) == {"a": [1, 2]}
        assert client.map(tasks.double, range(10)) == list(range(0, 20, 2))
        assert "lock" in str(client.submit(tasks.raise_lock_holding_error).exception(timeout=30))


class Unloadable:
    """It pickles, and does not unpickle."""

    def __reduce__(self) -> Any:
        return (_refuse_to_load, ())


def _refuse_to_load() -> None:
    raise RuntimeError("it does not load")


def test_28_an_argument_that_does_not_load_fails_its_task_only(client: Client) -> None:
    with pytest.raises(DeserializeObjectError, match="does not load"):
        client.submit(tasks.echo, Unloadable()).result(timeout=60)
    assert client.submit(abs, -1).result(timeout=30) == 1


def _factorial(client: Client, number: int) -> int:
    return 1 if number < 2 else number * int(client.submit(_factorial, client, number - 1).result())


def _fibonacci(number: int) -> int:
    if number < 2:
        return number
    with Client() as client:
        return sum(client.map(_fibonacci, [number - 1, number - 2]))


def test_29_tasks_submit_tasks_deeper_than_there_are_workers(client: Client) -> None:
    assert client.submit(_factorial, client, 10).result(timeout=100) == 3_628_800
    assert client.submit(_fibonacci, 5).result(timeout=100) == 5


def test_30_a_waiting_parent_keeps_its_client(cluster: LocalCluster) -> None:
    def parent() -> Any:
        with Client() as nested:
            return nested.submit(tasks.sleep_long, 10.5).result()

    with Client(cluster.address, timeout_seconds=10) as client:
        assert client.submit(parent).result(timeout=60) == 10.5


def test_31_a_client_that_travels_keeps_its_settings(cluster: LocalCluster) -> None:
    import cloudpickle

    with Client(cluster.address, timeout_seconds=33) as client:
        copy = cloudpickle.loads(cloudpickle.dumps(client))
        try:
            assert type(copy) is Client
            assert copy._session.lease_seconds == 33
            assert copy.identity != client.identity
            assert copy.submit(abs, -1).result(timeout=30) == 1
        finally:
            copy.disconnect()


def test_32_output_of_tasks_comes_to_the_client(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> None:
    def speak() -> None:
        import sys

        print("to standard output")
        print("to standard error", file=sys.stderr)

    with Client(cluster.address, stream_output=True) as client:
        client.submit(speak).result(timeout=30)
        said: list[str] = []

        def all_said() -> bool:
            captured = capfd.readouterr()
            said.append(captured.out + captured.err)
            return all(text in "".join(said) for text in ("to standard output", "to standard error"))

        wait_until(all_said, "both lines have come", timeout=30)


def test_36_a_cluster_of_this_machine_takes_the_names_that_people_know() -> None:
    with pytest.warns(UserWarning, match="trim_memory_threshold_bytes=5 means nothing here"):
        combo = SchedulerClusterCombo(
            n_workers=1,
            per_worker_capabilities={"gpu": 1},
            per_worker_queue_size=2,
            max_number_of_tasks_waiting=-1,
            protected=False,
            trim_memory_threshold_bytes=5,
        )
    try:
        with Client(combo.get_address()) as client:
            assert client.submit_verbose(abs, (-1,), None, capabilities={"gpu": -1}).result(timeout=60) == 1
            client.shutdown()
    finally:
        combo.shutdown()
        combo.shutdown()
    with pytest.raises(TypeError, match="n_wrkers"):
        SchedulerClusterCombo(1, n_wrkers=2)


def test_36_a_cluster_without_workers_holds_its_tasks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        combo = SchedulerClusterCombo(n_workers=0, address="tcp://127.0.0.1:0", logging_level="INFO")
    try:
        with Client(combo._cluster.address) as client:
            assert client.submit(abs, -1).cancel()
    finally:
        combo.shutdown()


def test_38_a_worker_whose_cluster_is_gone_ends_by_itself() -> None:
    combo = SchedulerClusterCombo(n_workers=1)
    (worker,) = combo._cluster.workers
    combo._cluster._lifeline.cut()

    try:
        wait_until(lambda: worker.poll() is not None, "the worker ends", timeout=60)
    finally:
        combo.shutdown()


def test_40_an_idle_cluster_answers_at_once_and_a_thousand_tasks_take_a_second(cluster: LocalCluster) -> None:
    """The bounds are wide, for a machine that is busy: `gristmill bench` prints what it really takes."""
    began = time.monotonic()
    with Client(cluster.address) as client:
        assert client.submit(abs, -1).result() == 1
    assert time.monotonic() - began < 60
    with Client(cluster.address) as client:
        began = time.monotonic()
        assert [future.result() for future in [client.submit(abs, -n) for n in range(1000)]] == list(range(1000))
        assert time.monotonic() - began < 60


def test_without_an_address_outside_of_a_worker_it_says_so() -> None:
    with pytest.raises(ValueError, match=r"No scheduler address was given.*not inside a worker"):
        Client()


def test_keywords_that_mean_nothing_are_not_dropped_silently(cluster: LocalCluster) -> None:
    with pytest.warns(UserWarning, match=r"object_storage_address='tcp://x:1' means nothing here"):
        Client(cluster.address, object_storage_address="tcp://x:1").disconnect()
    with pytest.raises(TypeError, match="storage_addres"):
        Client(cluster.address, storage_addres="tcp://x:1")
