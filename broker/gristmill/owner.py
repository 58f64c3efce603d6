"""Ending with one's owner: programs started by `LocalCluster` or `gristmill up` must not outlive it, however it dies.

The owner holds one end of a pipe, its programs inherit the other. The kernel closes the owner's end when the owner is
gone, SIGKILL included, and every program reads the end of the pipe. (Linux's parent-death signal would not do:
it fires when the *thread* that started the program ends.)
"""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from collections.abc import Callable

OWNER_VARIABLE = "GRISTMILL_OWNER_FD"
"""Environment variable with the number of the descriptor whose end means that the owner is gone."""

GIVE_UP_SECONDS = 10.0
"""A program that has not ended so long after its owner's end is killed."""

_lifelines: weakref.WeakSet[Lifeline] = weakref.WeakSet()


class Lifeline:
    """The owner's side. Pass `descriptor` on to programs; `cut` tells them to end."""

    def __init__(self) -> None:
        self.descriptor, self._write_end = os.pipe()
        _lifelines.add(self)

    def cut(self) -> None:
        """Tell everyone who inherited `descriptor`; harmless when cut already."""
        write_end, self._write_end = self._write_end, -1
        if write_end >= 0:
            try:
                # A byte, not only the end: a child of a fork may still hold a copy of the writing end.
                os.write(write_end, b"\n" * 4096)
            except OSError:
                pass  # nobody reads any more
            os.close(write_end)
            os.close(self.descriptor)

    def _forget(self) -> None:
        if self._write_end >= 0:
            os.close(self._write_end)
            os.close(self.descriptor)
            self._write_end = -1


def _after_fork() -> None:
    """A forked child (multiprocessing) is not the owner: a copy of the pipe in it would keep programs alive."""
    for lifeline in _lifelines:
        lifeline._forget()


os.register_at_fork(after_in_child=_after_fork)


def terminate() -> None:
    """What a program does by default when its owner is gone: the same as on SIGTERM."""
    os.kill(os.getpid(), signal.SIGTERM)


def descriptor() -> int | None:
    """The inherited end of the owner's pipe, once: readable when the owner is gone; None without an owner."""
    number = os.environ.pop(OWNER_VARIABLE, "")
    if not number.isdigit():
        return None
    try:
        os.set_inheritable(int(number), False)
    except OSError:
        return None  # a variable without its pipe: left over from another program
    return int(number)


def watch(stop: Callable[[], None] = terminate) -> bool:
    """Call `stop`, in a thread of its own, when the owner is gone; False when nobody owns this program.

    Programs call it once, when they are able to stop. What has not ended GIVE_UP_SECONDS later is killed.
    """
    pipe = descriptor()
    if pipe is not None:
        threading.Thread(target=_wait, args=(pipe, stop), name="owner", daemon=True).start()
    return pipe is not None


def _wait(pipe: int, stop: Callable[[], None]) -> None:
    os.read(pipe, 1)
    stop()
    time.sleep(GIVE_UP_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
