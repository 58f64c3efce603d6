"""Functions whose tasks wait for tasks of their own. Workers import this module, as they do `tasks`."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import time
from pathlib import Path

from gristmill import Client
from support import tasks


def fibonacci(number: int) -> int:
    """By two nested tasks, each of which waits for two more."""
    if number < 2:
        return number
    with Client() as client:
        one, two = client.submit(fibonacci, number - 1), client.submit(fibonacci, number - 2)
        return int(one.result()) + int(two.result())


def countdown(number: int) -> int:
    """One nested task in another, so many deep."""
    if number == 0:
        return 0
    with Client() as client:
        return 1 + int(client.submit(countdown, number - 1).result())


def wait_for_any_and_all(numbers: list[int]) -> list[int]:
    """Wait by what the standard library has."""
    with Client() as client:
        futures = [client.submit(abs, number) for number in numbers]
        concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_COMPLETED)
        return sorted(future.result() for future in concurrent.futures.as_completed(futures))


def wait_in_a_thread(number: int) -> int:
    """The main thread waits for a thread that waits for a task."""
    with Client() as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        return int(pool.submit(lambda: client.submit(abs, number).result()).result())


def note_pid_and_wait_for(log: str, gate: str) -> str:
    """Say who waits, for a task that ends when the gate opens."""
    tasks.note_start(log, f"{os.getpid()}")
    with Client() as client:
        return str(client.submit(tasks.wait_for_file, f"{log}.child", gate).result() and "waited")


def wait_for_a_slow_child(log: str, seconds: float, timeout: float | None) -> str:
    """Answer how the child ended."""
    tasks.note_start(log, f"{os.getpid()}")
    with Client() as client:
        future = client.options(timeout=timeout).submit(tasks.sleep_long, seconds)
        error = future.exception()
        return type(error).__name__ if error else "value"


def kill_two_workers_and_wait_for_a_child(log: str) -> int:
    """The third time there is something to wait for."""
    tasks.note_start(log, f"{os.getpid()}")
    if len(tasks.started_lines(log)) < 3:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    with Client() as client:
        return int(client.submit(abs, -1).result())


def wait_for_a_stubborn_child(started: str) -> str:
    """The child ends by a kill only."""
    with Client() as client:
        # Long enough for it to have become stubborn, on a machine that stalls as well.
        return str(client.options(timeout=3.0).submit(tasks.hang_stubbornly, started).exception())


def wait_for_a_call_of(function_file: str) -> int:
    """The child notes that it ran."""
    with Client() as client:
        client.submit(Path(function_file).write_text, "ran").result()
    return os.getpid()


def wait_for_ever_in_a_child(log: str) -> None:
    """Parent and child note that they have started; the child hangs politely."""
    tasks.note_start(log, "parent")
    with Client() as client:
        client.submit(note_and_hang, log).result()


def wait_for_ever_deep_in_children(log: str, depth: int) -> None:
    """So many tasks wait, each for the next; the last hangs politely."""
    tasks.note_start(log, f"waits-{depth}")
    with Client() as client:
        if depth > 1:
            client.submit(wait_for_ever_deep_in_children, log, depth - 1).result()
        else:
            client.submit(note_and_hang, log).result()


def note_and_hang(log: str) -> None:
    tasks.note_start(log, "child")
    tasks.sleep_long(tasks.GIVE_UP_SECONDS)


def squares(count: int) -> int:
    """Many children at once; each is short."""
    with Client() as client:
        return sum(client.map(pow, range(count), [2] * count))


def slow_square(number: int) -> int:
    time.sleep(0.01)
    return number * number


def note_and_recurse(log: str, number: int) -> int:
    """Note the start, give a signal time to arrive, and count down by nested tasks."""
    tasks.note_start(log, "started")
    time.sleep(0.5)
    return countdown(number)
