"""Tasks: batches of calls come in, outcomes come back, cancels pass through, retries fall due."""

from __future__ import annotations

import time

from gristmill.protocol.kinds import Request
from gristmill.scheduler.controller import Controller, Duty, Replica

RETIRE_SECONDS = 600.0


def lanes(replica: Replica) -> list[bytes]:
    """The lanes there are: one per distinct capability requirement, so few."""
    return list(replica.connection.request("HKEYS", replica.keys.lanes()))


def promote(replica: Replica) -> None:
    """Retries that are due go to their lanes."""
    replica.run("promote")


def dispatch(replica: Replica) -> None:
    """What an error left waiting in a lane, although a worker has room, is handed out."""
    for lane in lanes(replica):
        replica.run("dispatch_waiting", lane)


class LaneKeeper:
    """Remembers where each lane stood, and retires those that have not moved for a whole period."""

    def __init__(self) -> None:
        self._orders: dict[bytes, tuple[bytes, float]] = {}

    def retire(self, replica: Replica) -> None:
        """Retire lanes that stand still; forgetting what is remembered here only delays it."""
        reply = replica.connection.request("HGETALL", replica.keys.lanes())
        orders = dict(zip(reply[::2], reply[1::2], strict=True))
        now = time.monotonic()
        seen = {}
        for lane, order in orders.items():
            known, since = self._orders.get(lane, (order, now))
            seen[lane] = (order, since if known == order else now)
            if now - seen[lane][1] >= RETIRE_SECONDS:
                replica.run("retire_lane", lane, order)
        self._orders = seen


def controller(sweep_seconds: float) -> Controller:
    """Dispatch happens inside the scripts that make it possible; the duties catch what is left."""
    return Controller(
        "tasks",
        requests=(
            Request.TASKS,
            Request.OUTCOMES,
            Request.CONFIRMS,
            Request.RETURNED,
            Request.OUTPUT,
            Request.HELD,
            Request.CANCEL,
            Request.RETRY,
            Request.PAUSE,
            Request.SUSPENDED,
            Request.CLAIM,
        ),
        duties=(
            Duty("promote", sweep_seconds, promote),
            Duty("dispatch", sweep_seconds, dispatch),
            Duty("retire", RETIRE_SECONDS / 10, LaneKeeper().retire),
        ),
    )
