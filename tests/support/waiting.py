"""Waiting for a named condition, the only kind of waiting in the tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

Found = TypeVar("Found")

FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05


def wait_until(predicate: Callable[[], Found | None], description: str, timeout: float = 60.0) -> Found:
    """Return the first true answer of `predicate`, or fail with the sentence of what never came true.

    Args:
        description: what is waited for, as a sentence that reads on after "never came true:".
        timeout: seconds.
    """
    deadline = time.monotonic() + timeout
    pause = FIRST_PAUSE_SECONDS
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > deadline:
            pytest.fail(f"never came true within {timeout:g} s: {description}; the last answer was {answer!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
