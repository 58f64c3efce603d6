"""What the benchmark runs."""

from __future__ import annotations

import time


def noop(number: int) -> int:
    """Nothing: what is measured is everything around it. The value shows whose answer it is."""
    return number


def spin(milliseconds: float) -> float:
    """Use that much CPU. Of this thread's own clock: by the wall's, two on one core would do half of the work."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass
    return milliseconds


def echo(data: bytes) -> bytes:
    """As many bytes back as came."""
    return data[::-1]


def length(data: bytes, number: int) -> int:
    """Look at something large that many tasks share."""
    return len(data) + number


def add(*numbers: int) -> int:
    """A node of a graph."""
    return sum(numbers)
