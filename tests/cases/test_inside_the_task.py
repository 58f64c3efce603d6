"""H62, H63, H66 to H68: what tasks do to their process, and where their modules are."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gristmill import Client, DeserializationError, LocalCluster
from gristmill.snapshot import Snapshot
from support import tasks
from support.leases import LONG_LEASE
from support.programs import Programs
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def test_h62_a_module_that_only_the_client_has_is_named_and_may_travel_by_value(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function of a helper module beside the script fails by the name of the module, and the error says how it can
    be sent along; then it can."""
    import cloudpickle

    folder = tmp_path / "beside"
    folder.mkdir()
    (folder / "only_here.py").write_text("def triple(number):\n    return 3 * number\n")
    monkeypatch.syspath_prepend(str(folder))
    import only_here  # type: ignore[import-not-found]

    programs.scheduler()
    programs.worker()
    try:
        with programs.client() as client:
            future = client.submit(only_here.triple, 2)
            with pytest.raises(DeserializationError, match="only_here") as caught:
                future.result(timeout=60)
            assert "register_pickle_by_value" in str(caught.value)
            assert future.worker.split("|")[0] in str(caught.value)
        cloudpickle.register_pickle_by_value(only_here)
        with programs.client() as client:
            assert client.submit(only_here.triple, 2).result(timeout=60) == 6
    finally:
        if "only_here" in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(only_here)
        del sys.modules["only_here"]


def test_h63_a_task_waits_for_a_worker_of_its_own_python(
    start_cluster: Starter, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of another minor version of Python: its task waits, both versions are named, nothing crashes."""
    cluster = start_cluster(workers=1, worker_options=LONG_LEASE)
    ours = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    with monkeypatch.context() as patched:
        patched.setattr("gristmill.client.options.python_tag", lambda: "python3.99")
        other = Client(cluster)
    with other, Client(cluster) as client:
        future = other.submit(lambda: 1)
        other.flush(timeout=30)
        text = wait_until(
            lambda: [one.text + one.remedy for one in snapshot.alerts() if one.code == "lane-unserved"],
            "an alert says why it waits",
        )[0]
        assert "3.99" in text
        assert ours in str(snapshot.workers().rows[0].capabilities)
        assert client.submit(lambda: 2).result(timeout=30) == 2
        assert not future.done()


def test_h66_a_task_may_do_what_it_likes_to_its_streams(programs: Programs) -> None:
    """A million characters without a newline, random bytes, closed descriptors, sys.stdout = None, input(): every
    result is right, no slot sticks, and what was printed is in the log with its task."""

    def flood() -> str:
        print("x" * 1_000_000, end="")
        return "flood"

    def bytes_anywhere() -> str:

        for descriptor in (1, 2):
            os.write(descriptor, os.urandom(1000))
        return "bytes"

    def close_all() -> str:

        for descriptor in (0, 1, 2):
            os.close(descriptor)
        return "closed"

    def no_stdout() -> str:
        import sys

        sys.stdout = None
        return "none"

    def ask() -> str:
        try:
            return input("?")
        except EOFError:
            return "end of file"

    def speak() -> str:
        print("a word from the task")
        return "spoken"

    programs.scheduler()
    worker = programs.worker()
    functions = {flood: "flood", bytes_anywhere: "bytes", close_all: "closed", no_stdout: "none", ask: "end of file"}
    with programs.client() as client:
        for function, expected in functions.items():
            futures = [client.submit(function), client.submit(abs, -1), client.submit(speak)]
            assert client.gather(futures, timeout=60) == [expected, 1, "spoken"]
        spoken = futures[-1].task_id
    wait_until(
        lambda: any("a word from the task" in line and spoken in line for line in worker.log.splitlines()),
        "what was printed is in the log, with its task",
    )


def test_h67_processors_that_are_replaced_again_and_again_all_start(
    client: Client, shared_cluster: LocalCluster, shared_snapshot: Snapshot
) -> None:
    """Each task ends its process: every replacement starts and takes the next. None is a fork of the agent, which has
    threads, but a fresh interpreter."""
    futures = [client.submit(tasks.exit_at_once, 0) for _ in range(16)]
    errors = [str(future.exception(timeout=90)) for future in futures]
    assert all("exit code 0" in error for error in errors)
    ended = {int(pid) for error in errors for pid in re.findall(r"\bpid (\d+)", error)}
    assert len(ended) == 16, "each was a process of its own"
    assert client.map(abs, range(-20, 0), timeout=60) == list(range(20, 0, -1))

    def replaced() -> bool:
        """Each worker has its processor, which is none of those that have ended, and was started as a program."""
        if not all(row.processors_ready == 1 for row in shared_snapshot.workers().rows):
            return False
        there = [psutil.Process(one.pid).children() for one in shared_cluster.workers]
        with contextlib.suppress(psutil.NoSuchProcess):  # of one that has ended just now
            return all(there) and all(
                child.pid not in ended and "gristmill_worker.processor" in child.cmdline()
                for children in there
                for child in children
            )
        return False

    wait_until(replaced, "all are there, each a fresh interpreter")


def test_h68_tasks_may_start_processes(client: Client) -> None:
    """Pools of each start method and a process-pool executor, inside a task: right results, and no process is left."""

    def use_pools(method: str) -> list[int]:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        context = multiprocessing.get_context(method)
        with context.Pool(1) as pool:
            squares = pool.map(abs, [-1, -2, -3])
        with ProcessPoolExecutor(1, mp_context=context) as executor:
            return squares + list(executor.map(abs, [-4, -5]))

    def descendants() -> list[str]:
        import psutil

        def lines() -> list[str]:
            found = []
            for one in psutil.Process().children(recursive=True):
                try:
                    found.append(" ".join(one.cmdline()))
                except psutil.ZombieProcess:
                    found.append("not yet reaped")
                except psutil.NoSuchProcess:
                    pass  # it has ended just now
            return [line for line in found if "resource_tracker" not in line and "forkserver" not in line]

        give_up = time.monotonic() + 30
        while (left := lines()) and time.monotonic() < give_up:
            time.sleep(0.05)
        return left

    for method in ("fork", "spawn", "forkserver"):
        assert client.submit(use_pools, method).result(timeout=90) == [1, 2, 3, 4, 5]
    assert client.gather([client.submit(descendants) for _ in range(4)], timeout=120) == [[]] * 4
