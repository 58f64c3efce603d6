"""A real processor, directed by hand: what it has read is run or given back, whatever its agent wants meanwhile."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gristmill.protocol.keys import GROUP_PROCESSORS, Keys
from gristmill.protocol.payloads import dump_call, text_of
from gristmill.settings import WorkerSettings
from gristmill_worker.board import PARK, clock_ns
from gristmill_worker.handover import handover
from gristmill_worker.processors import SECOND, Processor, Processors
from support import tasks
from support.database import Database
from support.driver import Driver, PlayedClient, PlayedWorker
from support.leaks import Leaks
from support.waiting import wait_until

TESTS = Path(__file__).parent.parent
QUICK = 20


@pytest.fixture
def driver(database: Database, keys: Keys) -> Iterator[Driver]:
    driver = Driver(database, keys)
    yield driver
    driver.close()


@pytest.fixture
def worker(driver: Driver) -> PlayedWorker:
    return driver.worker(1)


@pytest.fixture
def processor(
    no_leaks: Leaks, driver: Driver, worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Processor]:
    """It is ready."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*sys.path, str(TESTS)]))
    wake_read, wake = os.pipe()
    os.set_blocking(wake, False)
    processors = Processors(wake)
    processors.keep_fresh(clock_ns() + 600 * SECOND)
    settings = WorkerSettings(redis=driver.database.address, namespace=driver.keys.namespace)
    processors.start_missing(handover(worker.id, "here", settings.address, settings, tmp_path / "objects"), 1)
    [processor] = processors.alive
    wait_until(lambda: processor.ready, "the processor is ready", timeout=60)
    yield processor
    processors.kill_all()
    processor.close()
    os.close(wake_read)
    os.close(wake)


def call(number: int, function: int, *args: object) -> list[object]:
    return [number, function, text_of(dump_call(args, {})), None]


def functions(client: PlayedClient, *found: Callable[..., object]) -> list[list[str]]:
    return [[client.object(f"f{at}", pickle.dumps(one)), one.__name__] for at, one in enumerate(found, 10)]


def test_one_that_is_wanted_again_goes_on_with_what_it_had_not_started(
    driver: Driver, worker: PlayedWorker, processor: Processor, tmp_path: Path
) -> None:
    client, stream = driver.client(), driver.keys.worker_tasks(worker.id)
    known = functions(client, tasks.nothing, tasks.wait_for_file)

    def succeeded(number: int) -> bool:
        driver.settle()
        return driver.state(client.task(number)) in ("success", "")

    def read_both(first: int) -> Path | None:
        """Have it read a task that waits for a file, and one behind it; the file, or None when it has read the first
        alone: on a busy machine quick tasks are not always quick.
        """
        gate, started = tmp_path / f"gate{first}", tmp_path / f"started{first}"
        waits, behind = first + QUICK, first + QUICK + 1
        client.submit(*(call(number, 0) for number in range(first, waits)), functions=known)
        for number in range(first, waits):  # by then it reads several at once
            wait_until(lambda number=number: succeeded(number), f"task {number} ends")  # type: ignore[misc]
        client.submit(call(waits, 1, str(started), str(gate)), call(behind, 0), functions=known)
        wait_until(started.exists, "the first of two executes")
        if len(driver.database.pending(stream, GROUP_PROCESSORS)) == 2:
            return gate
        gate.touch()
        wait_until(lambda: succeeded(behind), "the second is run")
        return None

    first = 0
    gate: Path | None = None
    while gate is None:
        assert first < 5000, "it never reads two tasks at once"
        first += 100
        gate = read_both(first)
    behind = first + QUICK + 1

    processor.direct(PARK)
    gate.touch()
    wait_until(lambda: processor.parked, "it stands by")
    processor.direct(0)

    wait_until(lambda: succeeded(behind), "the second is run")
    assert processor.ready
