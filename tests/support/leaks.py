"""What a test must not leave behind: processes, threads, files.

Every process that a test starts inherits `GRISTMILL_TEST_RUN`, so that it is found even when its parent is gone.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import psutil

from support.waiting import wait_until

MARK = "GRISTMILL_TEST_RUN"

OUR_FILES = ("gristmill", "gmtest-")
"""How names of our own begin in the folder for temporary files."""


def mark_children() -> str:
    """From now on every child of this process can be recognised; returns the mark."""
    os.environ[MARK] = f"{os.getpid()}-{os.urandom(4).hex()}"
    return os.environ[MARK]


def own_temporary_folder() -> Path:
    """From now on temporary files of this process and its children go to a folder of their own.

    So what other test processes make at the same time is nobody's leak. Its name is short: sockets lie in it.
    """
    folder = Path(tempfile.mkdtemp(prefix="gmt-", dir="/tmp"))
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def marked_processes() -> dict[int, str]:
    """Pid to command line of every living process that this test run has started, directly or not."""
    mark = os.environ[MARK]
    found = {}
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def our_files() -> set[str]:
    """Files and folders of ours among the temporary ones."""
    return {str(path) for path in Path(tempfile.gettempdir()).iterdir() if path.name.startswith(OUR_FILES)}


def _parent(pid: int) -> int:
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return 0


class Leaks:
    """What there was before a test; `check` compares with what there is afterwards."""

    def __init__(self) -> None:
        self._processes = set(marked_processes())
        self._threads = set(threading.enumerate())
        self._files = our_files()

    def processes(self) -> dict[int, str]:
        """What is new; not what a process that was there before has started: a shared worker starts processors."""
        found = marked_processes()
        return {
            pid: line
            for pid, line in found.items()
            if pid not in self._processes and _parent(pid) not in self._processes
        }

    def threads(self) -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread not in self._threads]

    def files(self) -> set[str]:
        return our_files() - self._files

    def check(self) -> None:
        """Fail unless everything that came with the test is gone, or goes soon."""
        wait_until(lambda: not self.processes() or None, f"the test leaves no process behind: {self.processes()}")
        wait_until(lambda: not self.threads() or None, f"the test leaves no thread behind: {self.threads()}")
        wait_until(lambda: not self.files() or None, f"the test leaves no file behind: {self.files()}")
