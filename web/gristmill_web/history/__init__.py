"""Recent history in this process's memory: every task and change of late, read from `events` by one thread."""

from __future__ import annotations

from gristmill_web.history.index import UNSEEN, Bounds, Ended, Index
from gristmill_web.history.reader import History

__all__ = ["UNSEEN", "Bounds", "Ended", "History", "Index"]
