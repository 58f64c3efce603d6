"""The memory that tasks take, measured by the kernel."""

from __future__ import annotations

import mmap
import sys

import pytest

from gristmill_worker.memory import MemoryPeak

MIB = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can begin anew")


def take(size: int) -> None:
    # Pages of its own: what the allocator has kept from earlier would be no rise.
    with mmap.mmap(-1, size) as block:
        for page in range(0, size, mmap.PAGESIZE):
            block[page] = 1


def test_the_highest_rise_counts_also_when_it_is_given_back() -> None:
    peak = MemoryPeak()
    peak.begin()
    take(64 * MIB)
    assert 60 * MIB < peak.end() < 80 * MIB


def test_what_was_before_does_not_count() -> None:
    take(64 * MIB)
    peak = MemoryPeak()
    peak.begin()
    take(8 * MIB)
    assert 6 * MIB < peak.end() < 16 * MIB


def test_a_task_on_top_of_another_counts_for_both() -> None:
    peak = MemoryPeak()
    peak.begin()
    take(8 * MIB)
    peak.begin()
    take(64 * MIB)
    inner = peak.end()
    peak.begin()
    last = peak.end()
    outer = peak.end()

    assert 60 * MIB < inner < 80 * MIB
    assert last < 4 * MIB
    assert 60 * MIB < outer < 90 * MIB
