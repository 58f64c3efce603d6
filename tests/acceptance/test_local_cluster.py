"""`LocalCluster`: ready when it returns, from wherever it is started, and gone afterwards whatever happens."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gristmill import Client
from gristmill.cluster import LocalCluster
from gristmill.errors import ConnectionLostError, GristmillError
from gristmill.snapshot import Snapshot
from gristmill.store.connection import ReplyError
from gristmill.store.embedded import SERVER_VARIABLE, find_server
from support.database import Database
from support.server import RedisServer, require_server_binary
from support.temporary import alive, nothing_left_behind
from support.waiting import wait_until

SCRIPT = """
from gristmill import Client, LocalCluster

def double(number):
    return 2 * number

with LocalCluster(workers=1) as cluster, Client(cluster) as client:
    print(client.submit(double, 21).result())
"""

OWNER = """
import sys
from gristmill import LocalCluster
cluster = LocalCluster(workers=1, web=True)
print(cluster.redis.pid, *(program.pid for program in cluster.processes), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test no process, thread or file of ours is left."""
    require_server_binary()
    with nothing_left_behind(monkeypatch):
        yield


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(workers=2, schedulers=2) as cluster:
        yield cluster


def python(*arguments: str, cwd: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python to its end, from a folder of its own."""
    return subprocess.run(
        [sys.executable, *arguments], input=stdin, capture_output=True, text=True, timeout=120, check=False, cwd=cwd
    )


# --- ready --------------------------------------------------------------------------------------------------


def test_everybody_is_there_when_it_returns(cluster: LocalCluster) -> None:
    with Snapshot(cluster.address, cluster.namespace) as snapshot:
        overview = snapshot.overview()

    assert {row.pid for row in overview.schedulers} == {program.pid for program in cluster.schedulers}
    assert {row.pid for row in overview.workers.rows} == {program.pid for program in cluster.workers}
    assert all(row.processors_ready == 1 for row in overview.workers.rows)
    assert sorted(row.name for row in overview.workers.rows) == ["worker-1", "worker-2"]


def test_the_page_is_there_when_it_returns() -> None:
    with LocalCluster(workers=0, web=True) as cluster, urllib.request.urlopen(cluster.web_url) as page:
        assert page.status == 200


def test_more_workers_and_schedulers_may_join(cluster: LocalCluster) -> None:
    cluster.add_worker(concurrency=2, capabilities="gpu=1")
    cluster.add_scheduler()

    with Snapshot(cluster.address, cluster.namespace) as snapshot:
        workers, schedulers = snapshot.workers().rows, snapshot.schedulers()
    assert len(schedulers) == 3
    assert [row.capabilities["gpu"] for row in workers if row.name == "worker-3"] == [1]


def test_it_uses_a_redis_that_runs_already(server: RedisServer, namespace: str) -> None:
    with LocalCluster(workers=1, redis=server.address, namespace=namespace) as cluster, Client(cluster) as client:
        assert cluster.redis is None
        assert client.submit(pow, 2, 5).result(timeout=60) == 32


def test_it_goes_on_when_the_redis_that_it_was_given_comes_back(own_server: RedisServer, namespace: str) -> None:
    with LocalCluster(workers=0, redis=own_server.address, namespace=namespace) as cluster:
        own_server.restart()

        assert not cluster.was_shut_down()
        assert cluster.add_scheduler() in cluster.schedulers


def test_a_redis_that_is_away_while_a_program_starts_may_come_back(own_server: RedisServer, namespace: str) -> None:
    with LocalCluster(workers=0, redis=own_server.address, namespace=namespace) as cluster:
        own_server.kill()
        with ThreadPoolExecutor(1) as other:
            added = other.submit(cluster.add_scheduler)
            wait_until(lambda: len(cluster.schedulers) == 2 or added.done(), "the scheduler is started")
            own_server.start()

            assert added.result() in cluster.schedulers


def test_a_redis_that_takes_its_time_to_start_is_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, slow = find_server(), tmp_path / "redis-server"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *--version*) ;; *) sleep 2 ;; esac\nexec "{server}" "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv(SERVER_VARIABLE, str(slow))

    done = python("-c", SCRIPT, cwd=tmp_path)

    assert (done.stdout, done.stderr) == ("42\n", "")


def test_a_reply_that_is_an_error_leaves_none_behind(cluster: LocalCluster) -> None:
    database = Database(cluster.address)
    database.run("SET", cluster.keys.schedulers(), "not what it should be")
    database.close()

    with pytest.raises(ReplyError, match="WRONGTYPE"):
        cluster._not_ready(cluster.schedulers)
    assert not cluster.was_shut_down()


def test_many_threads_may_ask_it(cluster: LocalCluster) -> None:
    def ask(_: int) -> None:
        assert not cluster.was_shut_down()
        assert cluster._not_ready(cluster.processes) == []

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(500)))


# --- wherever it is started ---------------------------------------------------------------------------------


def test_it_works_in_a_script_without_a_main_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)

    done = python("script.py", cwd=tmp_path)

    assert (done.stdout, done.stderr, done.returncode) == ("42\n", "", 0)


def test_the_example_of_the_readme_works_as_it_stands(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (tmp_path / "example.py").write_text(readme.split("```python\n")[1].split("```")[0])

    done = python("example.py", cwd=tmp_path)

    assert (done.stdout, done.stderr, done.returncode) == ("12\n[2, 12]\n", "", 0)


def test_it_works_from_the_command_line(tmp_path: Path) -> None:
    assert python("-c", SCRIPT, cwd=tmp_path).stdout == "42\n"


def test_it_works_from_standard_input(tmp_path: Path) -> None:
    assert python("-", cwd=tmp_path, stdin=SCRIPT).stdout == "42\n"


def test_it_works_in_a_thread() -> None:
    found = []

    def work() -> None:
        with LocalCluster(workers=1) as cluster, Client(cluster) as client:
            found.append(client.submit(pow, 2, 5).result(timeout=60))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert found == [32]


def test_workers_find_modules_beside_the_script_from_any_folder(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "arithmetic.py").write_text("def double(number):\n    return 2 * number\n")
    (folder / "script.py").write_text(SCRIPT.replace("def double", "from arithmetic import double\ndef unused"))

    done = python(str(folder / "script.py"), cwd=tmp_path)

    assert (done.stdout, done.stderr) == ("42\n", "")


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(
            "working",
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 looks into the working folder"),
        ),
        "script's",
    ],
)
def test_files_in_the_working_folder_do_not_take_the_place_of_ours(tmp_path: Path, where: str) -> None:
    folders = {"working": tmp_path, "script's": tmp_path / "project"}
    folders["script's"].mkdir()
    for name in ("click", "flask", "psutil", "pydantic", "redis", "waitress", "worker", "web", "settings"):
        (folders[where] / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    script = folders["script's"] / "script.py"
    script.write_text(SCRIPT.replace("workers=1", "workers=1, web=True"))

    done = python(str(script), cwd=tmp_path)

    assert (done.stdout, done.stderr) == ("42\n", "")


def test_workers_find_modules_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sums_of_the_folder.py").write_text("def double(number):\n    return 2 * number\n")
    monkeypatch.chdir(tmp_path)
    with LocalCluster(workers=1) as cluster, Client(cluster) as client:
        monkeypatch.syspath_prepend(tmp_path)  # for the client alone: the worker is there already
        double = importlib.import_module("sums_of_the_folder").double

        assert client.submit(double, 21).result(timeout=60) == 42


# --- gone ---------------------------------------------------------------------------------------------------


def test_close_ends_every_program_in_good_order(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gristmill.cluster.STOP_SECONDS", 60.0)

    cluster.close()

    assert {program.returncode for program in cluster.processes} == {0}


def test_close_may_be_called_again(cluster: LocalCluster) -> None:
    cluster.close()
    cluster.close()

    with pytest.raises(GristmillError, match="expected an open LocalCluster"):
        cluster.add_worker()


def test_close_does_not_wait_for_a_long_task(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setattr("gristmill.cluster.STOP_SECONDS", 150.0)  # nor does it have to be killed
    client = Client(cluster)
    future = client.submit(time.sleep, 3600)
    wait_until(future.running, "the task is executing")

    before = time.monotonic()
    cluster.close()
    assert time.monotonic() - before < 100
    client.close()


def test_close_kills_what_does_not_answer(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gristmill.cluster.STOP_SECONDS", 0.5)
    cluster.schedulers[0].send_signal(signal.SIGSTOP)

    cluster.close()

    assert cluster.schedulers[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_all_of_it_ends_with_an_owner_that_is_killed(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:  # fmt: skip
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == 4

        owner.send_signal(number)

    wait_until(lambda: not any(alive(pid) for pid in pids), "every program has ended")


def test_all_of_it_ends_with_an_owner_that_forgets_to_close_it() -> None:
    done = python("-c", OWNER)

    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 4
    wait_until(lambda: not any(alive(pid) for pid in pids), "every program has ended")
    assert done.stderr == ""


def test_a_forked_child_does_not_close_its_parents_cluster(cluster: LocalCluster) -> None:
    child = os.fork()
    if child == 0:
        cluster.close()
        os._exit(0)
    os.waitpid(child, 0)

    assert all(program.poll() is None for program in cluster.processes)


# --- what goes wrong ----------------------------------------------------------------------------------------


def test_a_redis_that_cannot_be_reached_is_told() -> None:
    with pytest.raises(ConnectionLostError, match=r"cannot reach Redis at redis://127\.0\.0\.1:1"):
        LocalCluster(workers=0, redis="redis://127.0.0.1:1/0")


def test_a_program_that_does_not_start_is_told_by_name(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(GristmillError, match="expected worker-1 to start; it ended with exit code 2"):
        LocalCluster(workers=1, worker_options={"queue_size": 0})

    assert "--queue-size: expected a number greater than or equal to 1" in capfd.readouterr().err


def test_an_interrupt_during_the_start_leaves_nothing() -> None:
    code = textwrap.dedent(
        """
        import os, signal, threading
        from gristmill import LocalCluster
        threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT)).start()
        cluster = LocalCluster(workers=2)
        threading.Event().wait(100)  # where the timer's thread had to wait for longer than everything took to start
        """
    )

    done = python("-c", code)

    assert done.returncode == -signal.SIGINT
    # One that the interrupt kept from being known ends by itself, and may miss its Redis before.
    assert "KeyboardInterrupt" in done.stderr.splitlines()
