"""Scaling: how many workers there should be. The policy here asks for nothing: workers are started by people."""

from __future__ import annotations

from typing import Protocol

from gristmill.scheduler.controller import Controller, Duty, Replica

PERIOD_SECONDS = 5.0


class Policy(Protocol):
    """Decides how many workers should run, or None for no wish."""

    def desired_workers(self, replica: Replica) -> int | None: ...


class NullPolicy:
    """Wishes for nothing."""

    def desired_workers(self, replica: Replica) -> int | None:
        """Always None."""
        return None


def controller(policy: Policy) -> Controller:
    """Without a wish there is nothing to do, so the null policy has no duty."""
    if isinstance(policy, NullPolicy):
        return Controller("scaling")
    return Controller("scaling", duties=(Duty("scaling", PERIOD_SECONDS, lambda replica: None),))
