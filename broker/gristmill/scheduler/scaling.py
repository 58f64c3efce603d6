"""Scaling: how many workers there should be. The policy here asks for nothing: workers are started by people."""

from __future__ import annotations

from functools import partial
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


def scale(policy: Policy, replica: Replica) -> None:
    """Write down the policy's wish, for whoever starts and stops workers."""
    wish = policy.desired_workers(replica)
    if wish is not None:
        replica.connection.request("HSET", replica.keys.namespace_facts(), "desired_workers", wish)


def controller(policy: Policy) -> Controller:
    """Without a wish there is nothing to do, so the null policy has no duty."""
    if isinstance(policy, NullPolicy):
        return Controller("scaling")
    return Controller("scaling", duties=(Duty("scaling", PERIOD_SECONDS, partial(scale, policy)),))
