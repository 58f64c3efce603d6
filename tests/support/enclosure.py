"""A place of its own for a command under test: what it leaves behind is its own, whatever else runs on the machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from support.waiting import wait_until

MARK = "GRISTMILL_TEST_ENCLOSURE"
PATIENCE_SECONDS = 60.0


class Enclosure:
    """A folder for temporary files and a mark in the environment, which every process started in it inherits."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gm-", dir="/tmp"))
        self.environment = {**os.environ, "TMPDIR": str(self.folder), MARK: self.folder.name}

    def processes(self) -> list[str]:
        """Command lines of what runs in it."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.folder.name and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline()))
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def files(self) -> list[str]:
        """What lies in its folder."""
        # Not `rglob`: it fails when a folder goes while it looks.
        return [os.path.join(at, name) for at, folders, files in os.walk(self.folder) for name in folders + files]

    def check(self) -> None:
        """Fail unless every process has ended and every file is gone, or do so soon."""
        wait_until(lambda: not self.processes(), f"no process is left of {self.processes()}", PATIENCE_SECONDS)
        wait_until(lambda: not self.files(), f"no file is left of {self.files()}", PATIENCE_SECONDS)


@contextmanager
def enclosure() -> Iterator[Enclosure]:
    """An enclosure that is checked at the end, and removed."""
    place = Enclosure()
    try:
        yield place
        place.check()
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
