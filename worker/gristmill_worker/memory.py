"""How much memory a task takes: how far this process rises above what it had when the task began.

On Linux the kernel keeps the highest resident size of a process and can be told to begin anew (`clear_refs`), which
costs a few microseconds. It counts every page that is mapped: shared ones, such as those of large arguments, as well.
Elsewhere only the highest of the process's whole life is known, so a task that stays below it shows 0.
"""

from __future__ import annotations

import os
import re
import resource
import sys

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PEAK_UNIT = 1 if sys.platform == "darwin" else 1024
"""`ru_maxrss` is in KiB, on macOS in bytes."""
_HIGHEST = re.compile(rb"VmHWM:\s*([0-9]+) kB")
_BEGIN_ANEW = b"5"


class MemoryPeak:
    """The peaks of the tasks of this process, which may run on top of each other."""

    def __init__(self) -> None:
        self._exact = True
        try:
            self._clear = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            self._status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            os.write(self._clear, _BEGIN_ANEW)
            self._exact = self._highest() > 0
        except OSError:
            self._exact = False
        self._running: list[list[int]] = []
        """(resident bytes at the start, highest so far) of each task on the stack."""

    def begin(self) -> None:
        """A task begins."""
        if self._running:
            self._note()
        if self._exact:
            os.pwrite(self._clear, _BEGIN_ANEW, 0)
            start = int(os.pread(self._statm, 128, 0).split()[1]) * _PAGE
        else:
            start = self._highest()
        self._running.append([start, start])

    def end(self) -> int:
        """It has ended: the bytes by which memory rose at most."""
        self._note()
        start, highest = self._running.pop()
        if self._running:
            self._running[-1][1] = max(self._running[-1][1], highest)
        return highest - start

    def _note(self) -> None:
        top = self._running[-1]
        top[1] = max(top[1], self._highest())

    def _highest(self) -> int:
        if self._exact:
            found = _HIGHEST.search(os.pread(self._status, 8192, 0))
            return int(found[1]) * 1024 if found else 0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _PEAK_UNIT
