"""The tasks. Each notes its start and its end in a journal that all processes share, and has a value known beforehand.

Workers import this module, so it imports nothing of the tests itself.
"""

from __future__ import annotations

import os
import time
import zlib


def value_of(token: str, values: tuple[int, ...] = ()) -> int:
    """What a task returns: another number for another task, or for other values of its dependencies."""
    return zlib.crc32(f"{token} {values}".encode())


def note(journal: str, *words: object) -> None:
    """Append one line; a write of less than a page is atomic."""
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(descriptor)


def work(journal: str, token: str, seconds: float, *values: int) -> int:
    """Be busy for a while. The clock is the machine's, so that journals and histories can be compared."""
    note(journal, "start", token, os.getpid(), time.time_ns())
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(0.02, left))
    note(journal, "end", token, os.getpid(), time.time_ns())
    return value_of(token, values)


def fail(journal: str, token: str, *values: int) -> int:
    """Fail always."""
    note(journal, "start", token, os.getpid(), time.time_ns())
    raise ValueError(token)


def fail_once(journal: str, token: str, *values: int) -> int:
    """Fail the first time it is run, wherever that is."""
    note(journal, "start", token, os.getpid(), time.time_ns())
    try:
        os.close(os.open(f"{journal}.{token}", os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        note(journal, "end", token, os.getpid(), time.time_ns())
        return value_of(token, values)
    raise ValueError(token)


def measure(journal: str, token: str, data: bytes) -> bytes:
    """A large argument and a large value."""
    note(journal, "start", token, os.getpid(), time.time_ns())
    answer = data[::-1]
    note(journal, "end", token, os.getpid(), time.time_ns())
    return answer
