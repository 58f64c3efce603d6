"""Programs written for Ray's remote functions run as they are."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill import ConnectionLostError, LocalCluster
from gristmill.compat import ray
from support import tasks
from support.waiting import wait_until


@pytest.fixture(autouse=True)
def connected(cluster: LocalCluster) -> Iterator[None]:
    ray.init(cluster)
    yield
    ray.shutdown()


@ray.remote
def square(number: int) -> int:
    return number * number


@ray.remote(num_returns=2)
def split(text: str) -> tuple[str, str]:
    head, _, tail = text.partition(" ")
    return head, tail


def test_calls_are_made_and_got() -> None:
    assert ray.get(square.remote(3)) == 9
    assert ray.get([square.remote(number) for number in range(4)]) == [0, 1, 4, 9]


def test_references_are_arguments() -> None:
    assert ray.get(square.remote(square.remote(square.remote(2)))) == 256


def test_a_value_may_be_put_for_many() -> None:
    numbers = ray.put(list(range(1000)))
    total = ray.remote(sum)

    assert ray.get([total.remote(numbers) for _ in range(3)]) == [499_500] * 3


def test_what_a_task_raises_is_raised() -> None:
    failing = ray.remote(tasks.raise_value_error)

    with pytest.raises(ValueError, match="oh"):
        ray.get(failing.remote("oh"))


def test_a_function_may_have_several_returns() -> None:
    head, tail = split.remote("grist mill")

    assert ray.get([head, tail]) == ["grist", "mill"]
    assert ray.get(split.options(num_returns=1).remote("a b")) == ("a", "b")


def test_wait_says_what_is_done_and_what_is_not(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow = ray.remote(tasks.wait_for_file).remote(str(tmp_path / "started"), str(gate))
    quick = square.remote(1)

    assert ray.wait([slow, quick], num_returns=1, timeout=30) == ([quick], [slow])
    assert ray.wait([slow, quick], num_returns=2, timeout=0.1) == ([quick], [slow])
    gate.touch()
    assert ray.wait([slow, quick], num_returns=2) == ([slow, quick], [])


@pytest.mark.parametrize("wrong", [0, 3])
def test_wait_refuses_an_odd_number(wrong: int) -> None:
    with pytest.raises(ValueError, match="num_returns"):
        ray.wait([square.remote(1), square.remote(2)], num_returns=wrong)


def test_a_get_may_give_up_and_the_task_be_cancelled(tmp_path: Path) -> None:
    slow = ray.remote(tasks.hang_politely).remote(str(tmp_path / "started"))

    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(slow, timeout=0.1)
    ray.cancel(slow)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(slow)


def test_values_come_as_they_complete() -> None:
    sleep = ray.remote(tasks.sleep_long)

    assert sorted(ray.util.as_completed([sleep.remote(0.05), sleep.remote(0.0)])) == [0.0, 0.05]
    assert sorted(ray.util.map_unordered(square, range(5))) == [0, 1, 4, 9, 16]


def test_a_dead_process_has_a_name_of_rays() -> None:
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(ray.remote(tasks.exit_at_once).remote(1))


def test_exceptions_may_be_retried(tmp_path: Path) -> None:
    log = str(tmp_path / "log")

    @ray.remote(max_retries=2, retry_exceptions=[ValueError])
    def fail_once(log: str) -> int:
        from support import tasks

        tasks.note_start(log, "start")
        if len(tasks.started_lines(log)) == 1:
            raise ValueError
        return 1

    assert ray.get(fail_once.remote(log)) == 1


def test_remote_functions_call_remote_functions() -> None:
    @ray.remote
    def twice(number: int) -> int:
        return 2 * int(ray.get(square.remote(number)))

    assert ray.get(twice.remote(5)) == 50


def test_what_is_not_supported_says_so() -> None:
    with pytest.raises(NotImplementedError, match="actors"):
        ray.remote(type("Actor", (), {}))
    with pytest.raises(NotImplementedError, match="actors"):
        ray.get_actor("somebody")
    with pytest.raises(TypeError, match="scheduling_strategy"):
        square.options(scheduling_strategy="SPREAD")
    with pytest.raises(TypeError, match=r"square\.remote"):
        square(3)
    with pytest.raises(ValueError, match="reference"):
        ray.get(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="reference"):
        ray.put(square.remote(1))
    with pytest.raises(RuntimeError, match="once"):
        ray.init()


def test_decorating_starts_nothing() -> None:
    ray.shutdown()
    ray.remote(abs)

    assert not ray.is_initialized()


def test_a_task_for_a_gpu_waits_for_a_worker_with_one() -> None:
    future = square.options(num_gpus=1).remote(2)

    with pytest.raises(concurrent.futures.TimeoutError):
        ray.get(future, timeout=0.1)
    wait_until(lambda: "no worker offers gpu" in future.waiting_for, "it is known why", timeout=30)
    ray.cancel(future)


def test_without_an_address_a_cluster_is_started_and_ended() -> None:
    ray.shutdown()
    ray.init(num_cpus=1)
    began = time.monotonic()

    assert ray.get(square.remote(2)) == 4
    ray.shutdown()
    assert not ray.is_initialized()
    assert time.monotonic() - began < 120


def test_a_cluster_of_its_own_may_have_a_namespace() -> None:
    ray.shutdown()
    ray.init(num_cpus=1, namespace="mine")

    assert ray.get(square.remote(3)) == 9


def test_without_a_client_no_cluster_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    ray.shutdown()
    made: list[LocalCluster] = []

    def refuse(cluster: LocalCluster, **_: object) -> None:
        made.append(cluster)
        raise ConnectionLostError

    with monkeypatch.context() as patch:
        patch.setattr(ray, "Client", refuse)
        with pytest.raises(ConnectionLostError):
            ray.init(num_cpus=0)
    (cluster,) = made

    assert ray._cluster is None
    assert all(program.poll() is not None for program in cluster.processes)
