"""Clients: they register, renew, disconnect; one whose lease ends is cleared like one that disconnects."""

from __future__ import annotations

from gristmill.protocol.kinds import Request
from gristmill.scheduler.controller import Controller


def controller() -> Controller:
    """Clients have no duty of their own: the sweep of `leases` ends those that are silent."""
    return Controller(
        "clients",
        requests=(
            Request.CLIENT,
            Request.KNOWN,
            Request.CLIENT_BEAT,
            Request.DISCONNECT,
            Request.CANCEL_CLIENT,
            Request.SHUTDOWN,
            Request.END_CLIENT,
        ),
    )
