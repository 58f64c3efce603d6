"""Workers: they register, send heartbeats, drain and leave; what a lost one held moves on in slices."""

from __future__ import annotations

from gristmill.protocol.kinds import Request
from gristmill.scheduler.controller import Controller


def controller() -> Controller:
    """Workers have no duty of their own: the sweep of `leases` ends those that are silent."""
    return Controller(
        "workers",
        requests=(Request.WORKER, Request.BEAT, Request.DRAIN, Request.ORDER_WORKER, Request.LEAVE, Request.END_WORKER),
    )
