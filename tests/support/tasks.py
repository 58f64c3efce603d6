"""Functions that behave badly, or that tell on themselves, one behaviour each.

Workers import this module (`PYTHONPATH` names the tests), so it imports nothing of the tests itself.
Paths are handed in as text: a marker file says that a task has started, a log counts how often.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

GIVE_UP_SECONDS = 180.0
"""A task that waits for a test which has died gives up after this: later than any wait of a test that lives."""


def add(first: int, second: int) -> int:
    return first + second


def double(number: int) -> int:
    return 2 * number


def echo(value: object) -> object:
    return value


def nothing() -> None:
    """A task without content."""


def pid() -> int:
    return os.getpid()


def parent_pid() -> int:
    """The pid of the worker."""
    return os.getppid()


def sleep_long(seconds: float) -> float:
    """Sleep in short pieces, so that an interrupt finds it in Python."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(0.05, max(0.0, end - time.monotonic())))
    return seconds


def raise_value_error(message: str) -> NoReturn:
    raise ValueError(message)


def note_start(log: str, line: str) -> str:
    """Append one line to a file that many processes share (one write of less than a page is atomic)."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
    return line


def note_start_and_work(log: str, line: str, seconds: float) -> str:
    """Note the start, then be busy for a while."""
    note_start(log, line)
    time.sleep(seconds)
    return line


def gate_of(log: str | Path, halt: int) -> Path:
    """The file without which no more than `halt` tasks go on (`note_start_and_halt`)."""
    return Path(f"{log}.beyond-{halt}")


def note_start_and_halt(log: str, line: str, seconds: float, *halts: int) -> str:
    """Note the start and be busy for a while. When more than `halt` tasks have started, whichever they are, end only
    once `gate_of(log, halt)` exists: so a test finds them in the middle, however late it comes. Lines are equally long.
    """
    note_start_and_work(log, line, seconds)
    begun = os.path.getsize(log) // (len(line) + 1)
    deadline = time.monotonic() + GIVE_UP_SECONDS
    for halt in halts:
        while begun > halt and not gate_of(log, halt).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody made {gate_of(log, halt)}")
            time.sleep(0.005)
    return line


def started_lines(log: str | Path) -> list[str]:
    """What `note_start` has noted so far."""
    path = Path(log)
    return path.read_text().split() if path.exists() else []


def wait_for_file(started: str, gate: str) -> int:
    """Make the marker file `started`, holding the pid, then wait until the file `gate` exists."""
    # Not named like the marker: who looks for markers by a pattern must not find it.
    folder, name = os.path.split(started)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    Path(temporary).write_text(str(os.getpid()))
    os.replace(temporary, started)
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while not os.path.exists(gate):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody made {gate}")
        time.sleep(0.005)
    return os.getpid()


def wait_first_time_only(log: str, gate: str) -> int:
    """Note the start; the first attempt waits for the gate, every later one ends at once. Returns the pid."""
    note_start(log, str(os.getpid()))
    if len(started_lines(log)) == 1:
        wait_for_file(f"{log}.started", gate)
    return os.getpid()


def wait_and_mark_end(log: str, gate: str, ended: str) -> str:
    """Note the start, wait for the gate, and make a file as the last thing."""
    note_start(log, "start")
    wait_for_file(f"{log}.started", gate)
    Path(ended).touch()
    return "the value"


def crash() -> NoReturn:
    """A segmentation fault."""
    ctypes.string_at(0)
    raise AssertionError("unreachable")


def exit_at_once(code: int) -> NoReturn:
    """End the process without any cleaning up."""
    os._exit(code)


def kill_own_process(log: str = "") -> NoReturn:
    """SIGKILL from inside."""
    if log:
        note_start(log, str(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def raise_system_exit(code: int) -> NoReturn:
    raise SystemExit(code)


def raise_keyboard_interrupt() -> NoReturn:
    raise KeyboardInterrupt


def hang_politely(started: str) -> None:
    """Sleep until interrupted."""
    wait_for_file(started, f"{started}.never")


def hang_stubbornly(started: str) -> None:
    """Swallow every exception, those of an interrupt included."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(BaseException):
            wait_for_file(started, f"{started}.never")


def return_a_lock() -> object:
    """A result that cannot be pickled."""
    return threading.Lock()


def return_a_generator() -> Iterator[int]:
    yield 1


class TwoArgumentsError(Exception):
    """It pickles, but does not unpickle: the constructor wants more than `args` holds."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def raise_two_arguments_error() -> NoReturn:
    raise TwoArgumentsError("this", "that")


class LockHoldingError(Exception):
    """It does not pickle at all."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def raise_lock_holding_error() -> NoReturn:
    raise LockHoldingError


def raise_while_handling() -> NoReturn:
    """A ValueError raised from a KeyError."""
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


class Counter:
    """Bound methods of it are tasks."""

    def __init__(self, start: int) -> None:
        self.start = start

    def plus(self, number: int) -> int:
        return self.start + number

    def __call__(self, number: int) -> int:
        return self.start * number


def total(*numbers: int) -> int:
    return sum(numbers)
