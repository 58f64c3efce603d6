"""Files without a name: nothing is left of them when nobody has them open."""

from __future__ import annotations

import os
import tempfile


def nameless_file(purpose: str) -> int:
    """The descriptor of an empty file, in memory where the system can; `purpose` shows in lists of open files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"gristmill-{purpose}", os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix=f"gristmill-{purpose}-")
    os.unlink(path)
    return descriptor
