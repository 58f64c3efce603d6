"""How our programs start Python, and where it finds the modules of tasks besides our own.

Files of the user must not take the place of what we import (a click.py beside the script, a redis.py in the working
folder), and yet functions of modules there travel by name. So those folders are neither in PYTHONPATH nor at the front:
a processor appends them when it has imported what it needs.
"""

from __future__ import annotations

import os
import sys
import sysconfig

from gristmill.errors import GristmillError

PATHS_VARIABLE = "GRISTMILL_PATHS"
"""Environment variable of workers: folders with modules of tasks, joined as in PYTHONPATH."""


def python() -> list[str]:
    """The command line that starts this Python without the working folder in its path, where it can be told (3.11)."""
    if not sys.executable:
        raise GristmillError(
            "expected a Python interpreter in sys.executable; got none; set it before anything is started"
        )
    return [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]


def own_paths() -> list[str]:
    """Entries of sys.path that a fresh interpreter would not have by itself."""
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    standard |= {os.path.join(folder, "lib-dynload") for folder in standard}
    return [
        os.path.abspath(entry)
        for entry in sys.path
        if entry not in standard and not entry.endswith(".zip") and (not entry or os.path.isdir(entry))
    ]


def append_paths() -> None:
    """Find the modules of tasks from now on: where the variable says, and in the working folder."""
    folders = os.environ.pop(PATHS_VARIABLE, "").split(os.pathsep)
    try:
        folders.append(os.getcwd())
    except OSError:
        pass  # it was removed: there is nothing to import from it
    for folder in folders:
        if folder and folder not in sys.path:
            sys.path.append(folder)
