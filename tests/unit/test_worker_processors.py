"""An agent that cannot start a processor now goes on, leaves nothing open, and tries again."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill.settings import WorkerSettings
from gristmill_worker.board import clock_ns
from gristmill_worker.handover import Handover, handover
from gristmill_worker.processors import Processors


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the module has logged; to threads that an earlier test has left, a limit may matter as well."""
    return [record.message for record in caplog.records if record.name == "gristmill_worker.processors"]


@pytest.fixture
def handed(tmp_path: Path) -> Handover:
    settings = WorkerSettings(redis="redis://localhost:1")
    return handover("w", "here", settings.address, settings, tmp_path / "objects")


@pytest.fixture
def processors() -> Iterator[Processors]:
    wake_read, wake = os.pipe()
    processors = Processors(wake)
    yield processors
    for processor in processors.kill_all():
        processor.close()
    os.close(wake_read)
    os.close(wake)


def test_whichever_descriptor_is_the_last_a_processor_that_cannot_start_is_started_later(
    processors: Processors, handed: Handover, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # what earlier tests have left open is not closed in between
    before, limits = open_descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = failures = 0
    while not processors.alive:
        allowed += 1
        processors.not_before = 0
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, limits[1]))
        try:
            processors.start_missing(handed, 1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        if not processors.alive:
            failures += 1
            assert not open_descriptors() - before  # what others close meanwhile is theirs

    assert failures > 10
    assert said(caplog) == ["a processor cannot be started; trying again"] * failures


def test_after_one_that_cannot_start_there_is_a_pause(
    processors: Processors, handed: Handover, caplog: pytest.LogCaptureFixture
) -> None:
    begun, limits = clock_ns(), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        processors.start_missing(handed, 3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert processors.alive == []
    assert processors.not_before > begun
    assert len(said(caplog)) == 1
