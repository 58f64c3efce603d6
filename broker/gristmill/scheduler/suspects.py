"""Suspects: a task that executed when two workers died runs alone, so that a third death says whose fault it is."""

from __future__ import annotations

from gristmill.scheduler.controller import Controller, Duty, Replica
from gristmill.scheduler.tasks import lanes
from gristmill.store.connection import ReplyError, pack


def run_alone(replica: Replica) -> None:
    """Give suspects to workers that have nothing else; mostly there are none."""
    connection, keys = replica.connection, replica.keys
    known = lanes(replica)
    connection.send(
        pack(("HVALS", keys.alone())),
        *(pack(("EXISTS", keys.ready(f"{lane.decode('utf-8', 'replace')}!"))) for lane in known),
    )
    replies = [connection.read() for _ in range(1 + len(known))]
    for reply in replies:
        if isinstance(reply, ReplyError):
            raise reply
    kept, *there = replies
    waiting = {lane for lane, found in zip(known, there, strict=True) if found}
    for lane in sorted(waiting | {facts.partition(b" ")[0] for facts in kept}):
        replica.run("run_alone", lane)


def controller(sweep_seconds: float) -> Controller:
    """A duty only."""
    return Controller("suspects", duties=(Duty("alone", sweep_seconds, run_alone),))
