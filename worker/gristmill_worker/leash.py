"""A processor dies with its agent, however the agent dies, and so does whatever its task has started.

The agent holds one end of a pipe, the processor the other; when the agent is gone the kernel closes its end.
On Linux the kernel is asked to signal that by SIGKILL to the processor's process group: it needs no thread, and works
while user code holds the interpreter lock. (The parent-death signal would fire when the *thread* that started the
processor ends, and would spare the processes that the task has started.) Elsewhere a thread waits for the end.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import threading


def bind(descriptor: int) -> None:
    """From now on this process group is killed when the other end of the pipe is closed."""
    if sys.platform == "linux":
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    else:
        threading.Thread(target=_wait, args=(descriptor,), name="leash", daemon=True).start()
    if select.select([descriptor], [], [], 0)[0]:
        _end()  # it was closed before the kernel knew that we want to be told


def _wait(descriptor: int) -> None:
    os.read(descriptor, 1)
    _end()


def _end() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)
