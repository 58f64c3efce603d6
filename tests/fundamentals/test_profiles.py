"""What a task took, and what people know it by."""

from __future__ import annotations

import json
import time

import pytest

from gristmill import Client, LocalCluster
from support.database import Database
from support.waiting import wait_until


def work(size: int, seconds: float) -> int:
    block = bytearray(size)
    block[::4096] = b"x" * len(block[::4096])
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return len(block)


def test_the_profile_says_what_the_task_took(client: Client) -> None:
    future = client.submit(work, 50_000_000, 0.2)
    future.result()
    profile = future.profiling_info()

    assert profile.duration_s >= profile.cpu_time_s - 0.01
    assert profile.cpu_time_s >= 0.19
    assert 45_000_000 < profile.memory_peak < 100_000_000
    assert profile.wait_s >= 0
    assert profile.worker
    assert profile.attempt == 1


def test_short_tasks_are_measured_when_told_and_long_ones_not_when_told(client: Client) -> None:
    client.gather([client.submit(work, 10, 0) for _ in range(20)])
    short = client.submit(work, 0, 0)
    # Less might be had of what the processor has freed before, and then its memory would not rise.
    told = client.options(profiling=True).submit(work, 50_000_000, 0)
    untold = client.options(profiling=False).submit(work, 50_000_000, 0.01)
    client.gather([short, told, untold])

    assert told.profiling_info().memory_peak > 45_000_000
    assert untold.profiling_info().memory_peak == 0
    assert short.profiling_info().memory_peak < 15_000_000


def test_name_and_tags_are_in_the_story(client: Client, cluster: LocalCluster) -> None:
    future = client.options(name="nightly", tags=["etl", "eu"]).submit(pow, 2, 3)
    future.result()
    database = Database(cluster.address)

    def told() -> object:
        for entry in database.stream(cluster.keys.events()):
            for change in json.loads(entry.fields["changes"]):
                if change[0] == future.task_id and len(change) > 9:
                    return change[9]
        return None

    assert wait_until(told, "the event is there") == {"name": "nightly", "tags": ["etl", "eu"]}
    database.close()


@pytest.mark.parametrize("bad", [{"name": "x" * 41}, {"name": 5}, {"tags": [""]}, {"tags": ["x"] * 9}])
def test_odd_names_and_tags_are_refused(client: Client, bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"expected (name to be|at most)"):
        client.options(**bad)
