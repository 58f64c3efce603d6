"""`gristmill bench`, the real command, on a small number of tasks: figures are not judged here, only that they come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.enclosure import Enclosure, enclosure

SMALL = ["--tasks", "1000", "--reps", "1", "--rounds", "20"]


@pytest.fixture
def place() -> Iterator[Enclosure]:
    """Where the command runs; afterwards no process and no file is left there."""
    with enclosure() as place:
        yield place


def bench(place: Enclosure, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gristmill", "bench", *arguments]
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=place.environment,
    )


def test_json_has_every_figure(place: Enclosure) -> None:
    done = bench(place, *SMALL, "--json")

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["workers"] == 2
    assert set(found["latency_ms"]) == {"p50", "p95", "p99"}
    assert set(found["cpu_us_per_task"]) == {"client", "scheduler", "redis", "workers"}
    assert all(figure > 0 for figure in found["cpu_us_per_task"].values())
    assert found["redis_bytes_per_queued_task"] > 100
    assert found["redis_commands"]["evalsha"]["calls_per_task"] > 0
    assert found["ratio"]["submit"] > 0
    assert found["process_pool"]["latency_ms"]["p50"] > 0


def test_the_page_for_people_has_the_pool_beside_us(place: Enclosure) -> None:
    done = bench(place, *SMALL)

    assert done.returncode == 0, done.stderr
    assert "process pool" in done.stdout
    assert "evalsha" in done.stdout


def test_a_bad_number_is_one_line_and_a_usage_error(place: Enclosure) -> None:
    done = bench(place, "--tasks", "many")

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "'many'" in done.stderr


def test_ctrl_c_leaves_nothing(place: Enclosure) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "gristmill", "bench", "--tasks", "100000"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=place.environment,
    )
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if "repetition 1" in line:
            break

    os.killpg(process.pid, signal.SIGINT)

    printed += process.stdout.read()
    process.stdout.close()
    assert process.wait(60) == 130, printed
    assert "Traceback" not in printed
