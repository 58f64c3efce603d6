"""What the benchmark runs."""

from __future__ import annotations


def noop(number: int) -> int:
    """Nothing: what is measured is everything around it. The value shows whose answer it is."""
    return number
