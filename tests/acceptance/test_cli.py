"""The `gristmill` command as people meet it: help, errors in one line, named exit codes, and a clean end."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from gristmill import Client, healthcheck
from gristmill._version import __version__
from gristmill.cli import COMMANDS, exits
from gristmill.cluster import LocalCluster
from gristmill.store.embedded import EmbeddedRedis
from support.server import RedisServer, free_port, require_server_binary
from support.temporary import alive, nothing_left_behind
from support.waiting import wait_until

GRISTMILL = [sys.executable, "-m", "gristmill"]
UNREACHABLE = "redis://127.0.0.1:1/0"


def gristmill(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*GRISTMILL, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **variables},
    )


@contextmanager
def start(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command that stays; it is killed if the test has not ended it."""
    with subprocess.Popen(
        [*GRISTMILL, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as command:
        try:
            yield command
        finally:
            command.kill()


def status(*place: str) -> Any:
    """What `gristmill status` says; asked again where Redis has no time for an answer just now."""

    def said() -> Any:
        done = gristmill("status", "--json", *place)
        return json.loads(done.stdout) if done.returncode == exits.OK else None

    return wait_until(said, "the status is told")


def scheduler_pids(*place: str) -> list[int]:
    return [row["pid"] for row in status(*place)["overview"]["schedulers"]]


def lines_until(command: subprocess.Popen[str], end: str) -> str:
    """What the command prints up to the line that begins with `end`."""
    assert command.stdout is not None
    said = ""
    for line in command.stdout:
        said += line
        if line.startswith(end):
            return said
    assert command.stderr is not None
    pytest.fail(f"{command.args!r} ended before it said {end!r}: {said}{command.stderr.read()}")


def ended(command: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Send the signal; the exit code and what was written to standard error."""
    command.send_signal(number)
    _, errors = command.communicate(timeout=60)
    return command.returncode, errors


def assert_one_line(done: subprocess.CompletedProcess[str], code: int, pattern: str) -> None:
    """The command ended with the code, and said why in one line on standard error."""
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert re.search(pattern, done.stderr)
    assert done.stdout == ""


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After the test no process, thread or file of ours is left."""
    with nothing_left_behind(monkeypatch):
        yield


@pytest.fixture
def page_port() -> int:
    return free_port()


# --- help ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(arguments: list[str]) -> None:
    done = gristmill(*arguments)

    assert done.returncode == exits.OK
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert "Examples:" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_ends_in_worked_examples(name: str) -> None:
    done = gristmill(name, "--help")

    assert done.returncode == exits.OK, done.stderr
    assert done.stdout.startswith(f"Usage: gristmill {name} "), done.stdout[:200]
    examples = done.stdout.rpartition("\n\n  Examples:\n")[2]
    assert f"gristmill {name}" in examples
    # `up` shows a file, after a blank line that leads to it.
    assert "\n\n" not in examples.replace("from a file:\n\n", "")


def test_help_imports_nothing_that_is_slow() -> None:
    code = """
import sys
from gristmill.cli import run, gristmill
try:
    run(gristmill, ["--help"])
finally:
    slow = {"redis", "pydantic", "flask", "rich", "psutil", "orjson", "cloudpickle"} & set(sys.modules)
    print("slow:", *slow)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "slow:"


def test_the_version_is_the_packages() -> None:
    assert gristmill("--version").stdout == f"gristmill, version {__version__}\n"


# --- errors -------------------------------------------------------------------------------------------------


def test_a_misspelt_command_is_answered_with_the_one_that_was_meant() -> None:
    assert_one_line(gristmill("wroker"), exits.USAGE, "expected a command; got 'wroker'; did you mean worker")


@pytest.mark.parametrize("name", ["up", "redis", "scheduler", "worker", "web", "status", "tasks", "doctor", "bench"])
def test_an_unknown_option_is_one_line(name: str) -> None:
    assert_one_line(gristmill(name, "--nonsense"), exits.USAGE, "--nonsense")


@pytest.mark.parametrize("name", ["scheduler", "worker", "web", "status", "tasks", "doctor"])
def test_a_missing_address_is_one_line_that_says_what_to_do(name: str) -> None:
    assert_one_line(gristmill(name), exits.USAGE, "expected the address of a Redis; got none; give --redis")


@pytest.mark.parametrize("command", ["status", "tasks", "task abc.0000001", "cancel abc.0000001", "doctor"])
def test_a_redis_that_cannot_be_reached_is_one_line(command: str) -> None:
    assert_one_line(gristmill(*command.split(), "--redis", UNREACHABLE), exits.CONNECT, "cannot reach Redis at")


@pytest.mark.parametrize("name", ["scheduler", "worker", "web", "status", "doctor"])
def test_an_address_of_another_kind_is_one_line_without_the_password(name: str) -> None:
    done = gristmill(name, "--redis", "http://user:secret@host")

    assert_one_line(done, exits.USAGE, "expected an address that begins with redis://")
    assert "secret" not in done.stderr


def test_a_wrong_password_is_one_line(own_server: RedisServer) -> None:
    own_server.command("CONFIG", "SET", "requirepass", "secret")

    assert_one_line(gristmill("doctor", "--redis", own_server.address), exits.CONNECT, "(?i)auth")


def test_the_page_refuses_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        assert_one_line(gristmill("up", "--port", port), exits.USAGE, f"got 127.0.0.1:{port}.*choose another port")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m gristmill --help | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (exits.OK, "")


# --- redis --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_redis_runs_until_it_is_told_to_end(number: signal.Signals, private: None) -> None:
    require_server_binary()
    with start("redis", "--port", "0") as command:
        said = lines_until(command, "Ctrl-C ends it")
        code, errors = ended(command, number)

    assert (code, errors) == (exits.OK, "")
    assert "export GRISTMILL_REDIS=redis://127.0.0.1:" in said
    assert "export GRISTMILL_REDIS=unix://" in said


def test_redis_that_dies_ends_the_command(private: None) -> None:
    require_server_binary()
    with start("redis") as command:
        lines_until(command, "Ctrl-C ends it")
        below = psutil.Process(command.pid).children(recursive=True)
        (server,) = [process for process in below if process.name() != "sh"]
        server.kill()
        _, errors = command.communicate(timeout=60)

    assert command.returncode == exits.FAILED
    assert "the server ended by itself" in errors


# --- up -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_starts_everything_and_takes_all_of_it_down(number: signal.Signals, page_port: int, private: None) -> None:
    require_server_binary()
    with start("up", "--workers", "1", "--port", str(page_port), "--log-level", "warning") as command:
        said = lines_until(command, "Ctrl-C ends all")
        code, errors = ended(command, number)

    assert (code, errors) == (exits.OK, "")
    assert "Gristmill is up: 1 worker, 1 scheduler" in said
    assert f"http://127.0.0.1:{page_port}/" in said


def test_up_takes_everything_from_one_file(tmp_path: Path, private: None) -> None:
    require_server_binary()
    file = tmp_path / "gristmill.toml"
    file.write_text(
        f"""
        namespace = "from-file"
        log_level = "warning"
        [up]
        workers = 1
        schedulers = 2
        web = false
        data = "{tmp_path}/data"
        [worker]
        concurrency = 2
        capabilities = "gpu=3"
        """
    )
    with start("up", "--config", str(file)) as command:
        said = lines_until(command, "Ctrl-C ends all")
        address = re.search(r"GRISTMILL_REDIS=(\S+)", said)
        assert address
        found = status("--redis", address[1], "--namespace", "from-file")
        code, errors = ended(command, signal.SIGTERM)

    assert (code, errors) == (exits.OK, "")
    assert "1 worker, 2 schedulers" in said
    (worker,) = found["overview"]["workers"]["rows"]
    assert worker["concurrency"] == 2
    assert worker["capabilities"]["gpu"] == 3
    assert (tmp_path / "data").is_dir()


def test_up_starts_again_what_ends_by_itself(private: None) -> None:
    require_server_binary()
    with start("up", "--workers", "0", "--no-web", "--log-level", "warning") as command:
        address = re.search(r"GRISTMILL_REDIS=(\S+)", lines_until(command, "Ctrl-C ends all"))
        assert address
        place = ("--redis", address[1])
        (first,) = scheduler_pids(*place)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: [pid for pid in scheduler_pids(*place) if pid != first], "another scheduler has registered")
        code, errors = ended(command, signal.SIGTERM)

    assert code == exits.OK
    assert errors == "gristmill up: scheduler-1 ended with exit code -9; starting it again\n"


def test_up_starts_again_what_ends_while_its_redis_is_away(
    own_server: RedisServer, namespace: str, private: None
) -> None:
    place = ("--redis", own_server.address, "--namespace", namespace)
    with start("up", "--workers", "0", "--no-web", "--log-level", "error", *place) as command:
        lines_until(command, "Ctrl-C ends all")
        (first,) = scheduler_pids(*place)
        own_server.kill()
        os.kill(first, signal.SIGTERM)
        wait_until(lambda: not alive(first), "the scheduler has ended")
        own_server.start()
        wait_until(lambda: [pid for pid in scheduler_pids(*place) if pid != first], "another scheduler has registered")
        code, errors = ended(command, signal.SIGTERM)

    assert code == exits.OK
    assert "gristmill up: scheduler-1 ended with exit code 0; starting it again\n" in errors


def test_up_ends_when_a_client_ends_everything(private: None, monkeypatch: pytest.MonkeyPatch) -> None:
    require_server_binary()
    monkeypatch.setenv("GRISTMILL_PROTECTED", "off")
    with start("up", "--workers", "1", "--no-web", "--log-level", "warning") as command:
        address = re.search(r"GRISTMILL_REDIS=(\S+)", lines_until(command, "Ctrl-C ends all"))
        assert address
        Client(address[1]).shutdown()
        said, errors = command.communicate(timeout=60)

    assert (command.returncode, said, errors) == (exits.OK, "gristmill up: a client has ended everything\n", "")


def test_up_shows_no_address_to_copy_of_a_redis_that_was_given(server: RedisServer, namespace: str) -> None:
    options = ("--workers", "0", "--no-web", "--redis", server.address, "--namespace", namespace)
    with start("up", *options) as command:
        said = lines_until(command, "Ctrl-C ends all")
        ended(command, signal.SIGTERM)

    assert "export GRISTMILL_REDIS" not in said
    assert f"export GRISTMILL_NAMESPACE={namespace}" in said


# --- doctor -------------------------------------------------------------------------------------------------


def test_doctor_is_content_with_a_cluster_of_ours() -> None:
    require_server_binary()
    said = ""

    def content(address: str) -> bool:
        nonlocal said
        done = gristmill("doctor", "--redis", address)
        said = done.stdout
        levels = {line.split()[1]: line.split()[0] for line in said.splitlines() if not line.startswith(" ")}
        levels.pop("latency", None)  # how quick this machine is just now
        return done.returncode == exits.OK and set(levels.values()) == {"OK"}

    with LocalCluster(workers=1) as cluster:
        # Heard lately: on a machine that stalls a moment later.
        wait_until(lambda: content(cluster.address), "the doctor is content")
    assert "schedulers" in said


def test_doctor_names_what_is_wrong_and_what_to_do() -> None:
    require_server_binary()
    options = {"maxmemory-policy": "allkeys-lru", "maxmemory": "100mb", "timeout": "30"}
    with EmbeddedRedis(appendonly=False, options=options) as redis:
        done = gristmill("doctor", "--json", "--redis", redis.address)

    found = json.loads(done.stdout)
    levels = {finding["check"]: finding["level"] for finding in found["findings"]}
    del levels["latency"]  # how quick this machine is just now
    assert done.returncode == exits.UNHEALTHY
    assert not found["healthy"]
    assert levels["eviction"] == "FAIL"
    assert {name for name, level in levels.items() if level == "WARN"} == {
        "persistence", "idle time-out", "schedulers", "workers",
    }  # fmt: skip
    assert all(finding["remedy"] for finding in found["findings"] if finding["level"] != "OK")


def test_a_container_knows_whether_its_program_is_well(page_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    require_server_binary()

    def healthcheck(kind: str, address: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", "gristmill.healthcheck", kind],
            env={**os.environ, "GRISTMILL_REDIS": address, "GRISTMILL_PORT": str(page_port)},
            capture_output=True,
            check=False,
        ).returncode

    monkeypatch.setenv("GRISTMILL_PREFIX", "/mill")
    with LocalCluster(workers=0, web=True, web_port=page_port) as cluster:
        # Heard lately, answering soon: on a machine that stalls a moment later.
        wait_until(lambda: healthcheck("scheduler", cluster.address) == 0, "the scheduler is well")
        wait_until(lambda: healthcheck("web", cluster.address) == 0, "the page is well")
        assert healthcheck("worker", cluster.address) == 1
        cluster.add_worker()
        wait_until(lambda: healthcheck("worker", cluster.address) == 0, "the worker is well")
    assert healthcheck("scheduler", UNREACHABLE) == 1
    assert healthcheck("web", UNREACHABLE) == 1


def test_the_page_is_looked_for_at_its_own_port_where_kubernetes_sets_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(healthcheck, "page_problem", lambda port, prefix: f"asked at {port}{prefix}")
    monkeypatch.setenv("GRISTMILL_PORT", "tcp://10.0.0.1:8700")
    monkeypatch.setenv("GRISTMILL_PREFIX", "/mill/")

    assert healthcheck.main(["web"]) == "asked at 8700/mill"


@pytest.mark.parametrize("command", ["redis", "up"])
def test_a_data_folder_that_cannot_be_made_is_told(command: str) -> None:
    require_server_binary()
    done = gristmill(command, "--data", "/dev/null/x")

    assert_one_line(done, exits.FAILED, "expected a data folder that can be made and written to; got /dev/null/x")


def test_help_is_quick() -> None:
    def seconds() -> float:
        """Of CPU time: what else runs on this machine does not count."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        gristmill("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(5)) < 0.5
