"""What every system runs: plain functions, which each wraps in its own way."""

from __future__ import annotations

import time


def noop(number: int) -> int:
    """Nothing."""
    return number


def spin(number: int) -> int:
    """One millisecond of this thread's CPU: by the wall's clock two on one core would do half of the work."""
    end = time.thread_time() + 0.001
    while time.thread_time() < end:
        pass
    return number


def echo(data: bytes) -> bytes:
    """As many bytes back as came."""
    return data


def add(*numbers: int) -> int:
    """A node of a graph."""
    return sum(numbers)


ALL = {function.__name__: function for function in (noop, spin, echo, add)}
