"""The client of the sweep over real processes: a bit of everything, and what became of it in a file.

Workers import this module for its tasks, so it imports nothing of the tests itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import wait
from pathlib import Path

from gristmill import Client, ProcessorDiedError

LARGE = 100_000
PATIENCE_SECONDS = 150.0
"""A killed program is missed, and another one started, on a machine that may be busy."""


def note(journal: str, token: str) -> None:
    """Append one line; a write of less than a page is atomic."""
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{token}\n".encode())
    finally:
        os.close(descriptor)


def work(journal: str, token: str, seconds: float, *values: int) -> int:
    """Note the start, and be busy."""
    note(journal, token)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
    return sum(values) + 1


def turn(journal: str, token: str, data: bytes) -> bytes:
    """A large argument, a large value."""
    note(journal, token)
    return data[::-1]


def fail(journal: str, token: str) -> None:
    note(journal, token)
    raise ValueError(token)


def main(address: str, namespace: str, folder: Path, name: str) -> None:
    """Submit, collect, cancel, leave; the values are written when all is over."""
    journal = str(folder / "journal")
    found: dict[str, object] = {}
    with Client(address, namespace=namespace, connect_timeout=PATIENCE_SECONDS) as client:
        calls = client.options(retries=1)  # a processor that is killed fails the task that it was executing
        first = calls.submit(work, journal, f"{name}-first", 0.01)
        second = calls.submit(work, journal, f"{name}-second", 0.0, first, first)
        third = calls.submit(work, journal, f"{name}-third", 0.0, first, second)
        data = os.urandom(LARGE)
        large = calls.submit(turn, journal, f"{name}-large", data)
        # Not for its own error: only if its processor is the one that is killed.
        again = client.options(retries=1, retry_on=(ProcessorDiedError,))
        failing = again.submit(fail, journal, f"{name}-failing")
        many = [calls.submit(work, journal, f"{name}-many{number}", 0.0) for number in range(8)]
        found["chain"] = [future.result(PATIENCE_SECONDS) for future in (first, second, third)]
        found["large"] = large.result(PATIENCE_SECONDS) == data[::-1]
        found["failing"] = type(failing.exception(PATIENCE_SECONDS)).__name__
        found["many"] = client.gather(many, timeout=PATIENCE_SECONDS)
        long = client.submit(work, journal, f"{name}-long", 30.0)
        behind = client.submit(work, journal, f"{name}-behind", 0.0, long)
        client.cancel([long], timeout=PATIENCE_SECONDS)
        wait([long, behind], timeout=PATIENCE_SECONDS)
        found["cancelled"] = [long.cancelled(), behind.cancelled()]
    temporary = folder / f"{name}.tmp"
    temporary.write_text(json.dumps(found))
    temporary.rename(folder / f"{name}.json")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
