"""A crash point: at which command of a process, and what happens there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple


class Mode(Enum):
    """What happens at a command."""

    BEFORE = "killed before it"
    AFTER = "killed after its reply has arrived"
    LOST = "killed after Redis has applied it, before the reply has arrived"
    CUT = "not killed: Redis has applied it, the reply is lost with the connection"


class Point(NamedTuple):
    """The `number`-th command, from 1."""

    number: int
    mode: Mode


def every(first: int, last: int) -> Iterator[Point]:
    """All points from one command to another."""
    for number in range(first, last + 1):
        for mode in Mode:
            yield Point(number, mode)


def sample(first: int, last: int, count: int, seed: int) -> list[Point]:
    """Some of them, spread over all modes; the same for the same seed."""
    draw = random.Random(seed)
    modes = list(Mode)
    return [Point(draw.randint(first, max(first, last)), modes[index % len(modes)]) for index in range(count)]
