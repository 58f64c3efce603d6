"""Balance: tasks that have not started move from workers over the mean to idle ones."""

from __future__ import annotations

from gristmill.scheduler.controller import Controller, Duty, Replica
from gristmill.scheduler.tasks import lanes

PERIOD_SECONDS = 0.4
"""A task that waits behind a long one is asked back within half a second, whatever was guessed of it before."""


def balance(replica: Replica) -> None:
    """Even out each lane."""
    for lane in lanes(replica):
        replica.run("balance", lane)


def controller() -> Controller:
    """Balance is a duty only."""
    return Controller("balance", duties=(Duty("balance", PERIOD_SECONDS, balance),))
