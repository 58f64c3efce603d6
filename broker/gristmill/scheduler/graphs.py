"""Graphs: tasks that wait for tasks. What one script cannot resolve of a task's dependents, the next slice does."""

from __future__ import annotations

from gristmill.protocol.kinds import Request
from gristmill.scheduler.controller import Controller


def controller() -> Controller:
    """Dependents are resolved by the script that ends a task; `resolve` is the rest of a long list."""
    return Controller("graphs", requests=(Request.DEPEND, Request.RESOLVE, Request.DROP_USES))
