"""Objects: large strings that clients, tasks and results share; the last holder's release frees them.

And outcomes that are kept for those who ask for them by the id of the task.
"""

from __future__ import annotations

from gristmill.protocol.kinds import Request
from gristmill.scheduler.controller import Controller


def controller() -> Controller:
    """Objects are accepted by the scripts that first mention them; only their release is a request of its own."""
    return Controller("objects", requests=(Request.RELEASE, Request.WATCH))
