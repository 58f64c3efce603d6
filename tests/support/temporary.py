"""A folder for temporary files that belongs to one test, so that what is left in it was left by that test."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from support.leaks import Leaks
from support.waiting import wait_until

if TYPE_CHECKING:
    import pytest


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not yet reaped does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Inside, temporary files go to a short folder (unix sockets need that); afterwards it is empty, and neither a
    process nor a thread of the test is left. Ask for `tmp_path` before: pytest would make it in here.
    """
    # Not named like what we make ourselves: other tests that run at the same time look for that.
    folder = Path(tempfile.mkdtemp(prefix="own-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    leaks = Leaks()
    yield folder
    wait_until(lambda: not leaks.processes(), "the test leaves no process behind")
    wait_until(lambda: not leaks.threads(), "the test leaves no thread behind")
    wait_until(lambda: not os.listdir(folder), f"the test leaves no file behind in {folder}")
    folder.rmdir()
