"""The real commands as processes, killed and replaced as an operator's machine would do it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gristmill import Client, Future, LocalCluster
from gristmill.protocol.keys import Keys
from support import tasks
from support.database import Database
from support.invariants import wait_for_invariants
from support.leaks import Leaks
from support.server import RedisServer
from support.waiting import wait_until

Command = Callable[..., "subprocess.Popen[bytes]"]

COMMAND = (sys.executable, "-m", "gristmill")


@pytest.fixture
def command(no_leaks: Leaks, server: RedisServer, keys: Keys, database: Database) -> Iterator[Command]:
    """Starts `gristmill scheduler` or `gristmill worker` on the shared Redis, told so by the environment alone."""
    programs: list[subprocess.Popen[bytes]] = []
    environment = {
        **os.environ,
        "GRISTMILL_REDIS": server.address,
        "GRISTMILL_NAMESPACE": keys.namespace,
        "GRISTMILL_LOG_LEVEL": "warning",
        "PYTHONPATH": str(Path(tasks.__file__).parents[1]),
    }

    def start(name: str, *options: str) -> subprocess.Popen[bytes]:
        program = subprocess.Popen([*COMMAND, name, *options], env=environment, start_new_session=True)
        programs.append(program)
        return program

    yield start
    try:
        wait_for_invariants(database, keys)
    finally:
        for program in programs:
            program.terminate()
        codes = [program.wait(timeout=60) for program in programs]
    # SIGTERM: one that was still importing has no handler yet.
    assert set(codes) <= {0, -signal.SIGKILL, -signal.SIGTERM}


def scheduler(command: Command) -> subprocess.Popen[bytes]:
    return command("scheduler", "--takeover-seconds", "0.5", "--sweep-seconds", "0.5")


def worker(command: Command, *options: str) -> subprocess.Popen[bytes]:
    return command("worker", "--concurrency", "1", "--worker-lease-seconds", "3", *options)


def kill(program: subprocess.Popen[bytes]) -> None:
    program.kill()
    program.wait()


def wait_for(futures: list[Future], least: int) -> None:
    wait_until(lambda: sum(future.done() for future in futures) >= least, f"{least} tasks are done")


def test_a_client_may_come_first_and_everything_else_later(command: Command, server: RedisServer, keys: Keys) -> None:
    scheduler(command)
    with Client(server.address, namespace=keys.namespace, connect_timeout=60) as client:
        futures = [client.submit(abs, -number) for number in range(100)]
        worker(command)

        assert client.gather(futures, timeout=60) == list(range(100))


def test_each_program_may_be_killed_and_replaced(
    command: Command, server: RedisServer, keys: Keys, tmp_path: Path
) -> None:
    schedulers = [scheduler(command), scheduler(command)]
    workers = [worker(command), worker(command)]
    log = tmp_path / "log"
    with Client(server.address, namespace=keys.namespace, connect_timeout=60) as client:
        futures = [client.submit(tasks.note_start_and_work, str(log), str(number), 0.002) for number in range(1500)]
        for share in (100, 300, 500):
            wait_for(futures, share)
            kill(schedulers.pop(0))
            kill(workers.pop(0))
            schedulers.append(scheduler(command))
            workers.append(worker(command))

        assert client.gather(futures, timeout=120) == [str(number) for number in range(1500)]
    counted = Counter(tasks.started_lines(log))
    assert set(counted) == {str(number) for number in range(1500)}
    # Only what a killed worker had read may have run twice.
    assert counted.total() <= 1500 + 3 * 100


def test_everything_may_be_killed_at_once_but_redis(
    command: Command, server: RedisServer, keys: Keys, tmp_path: Path
) -> None:
    programs = [scheduler(command), scheduler(command), worker(command), worker(command)]
    with Client(server.address, namespace=keys.namespace, connect_timeout=60) as client:
        futures = [client.submit(tasks.sleep_long, 0.01) for _ in range(300)]
        wait_for(futures, 50)
        for program in programs:
            kill(program)
        scheduler(command)
        worker(command)

        assert client.gather(futures, timeout=120) == [0.01] * 300


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", ["scheduler", "worker"])
def test_an_idle_program_ends_in_good_order_on_a_signal(
    command: Command, database: Database, keys: Keys, name: str, number: signal.Signals
) -> None:
    scheduler(command)
    program = {"scheduler": scheduler, "worker": worker}[name](command)
    listed = keys.schedulers() if name == "scheduler" else keys.workers()
    wait_until(
        lambda: any(f"|{program.pid}|" in identity for identity in database.zset(listed)), f"the {name} is listed"
    )
    program.send_signal(number)

    assert program.wait(timeout=60) == 0
    wait_until(
        lambda: not any(f"|{program.pid}|" in identity for identity in database.zset(listed)),
        f"the {name} is not listed any more",
    )


def test_a_signal_to_the_whole_group_does_not_reach_the_task(
    command: Command, server: RedisServer, keys: Keys, tmp_path: Path
) -> None:
    scheduler(command)
    program = worker(command, "--worker-lease-seconds", "60")
    with Client(server.address, namespace=keys.namespace, connect_timeout=60) as client:
        future = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(tmp_path / "gate"))
        wait_until((tmp_path / "started").exists, "the task has started")
        os.killpg(program.pid, signal.SIGTERM)
        wait_until(
            lambda: psutil.Process(program.pid).is_running() and not future.done(), "the worker waits for the task"
        )
        (tmp_path / "gate").touch()

        assert future.result(timeout=60) > 0
        assert program.wait(timeout=60) == 0


def test_no_program_shows_a_password(no_leaks: Leaks, own_server: RedisServer) -> None:
    own_server.command("CONFIG", "SET", "requirepass", "s3cret")
    address = own_server.address.replace("unix://", "unix://:s3cret@")
    with LocalCluster(redis=address, workers=1, schedulers=1, web=True) as cluster:
        programs = [psutil.Process(program.pid) for program in cluster.processes]
        programs += [processor for program in programs for processor in program.children(recursive=True)]
        lines = [" ".join(program.cmdline()) for program in programs]

    assert len(lines) >= 4
    assert [line for line in lines if "s3cret" in line] == []
