"""Errors by which Redis refuses everything for a while: never the fault of a request or of a key."""

from __future__ import annotations

import re

from gristmill.store.connection import ReplyError

REFUSALS = frozenset(
    {"NOSCRIPT", "READONLY", "LOADING", "BUSY", "MISCONF", "NOREPLICAS", "OOM", "MASTERDOWN", "NOPERM", "UNKILLABLE"}
)
"""Connecting anew loads the scripts, finds a new master, or backs off."""
_INNER = re.compile(r"-(READONLY|LOADING|BUSY|MISCONF|NOREPLICAS|OOM|MASTERDOWN|NOPERM)\b")
"""Redis 6.2 wraps a refusal inside a script into an error of its own."""


def is_refusal(error: ReplyError) -> bool:
    """Whether Redis refuses, whatever it is asked."""
    return error.code in REFUSALS or _INNER.search(str(error)) is not None


def is_full(error: ReplyError) -> bool:
    """Whether Redis refuses because its memory is full: what takes none, or gives some back, it still does."""
    inner = _INNER.search(str(error))
    return error.code == "OOM" or (inner is not None and inner[1] == "OOM")
