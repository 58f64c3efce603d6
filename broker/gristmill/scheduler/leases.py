"""Leases: who is alive, and which replica runs the shared duties.

Worker and client leases are compared with the observed clock (`sweep.lua`), which advances only while schedulers
sweep. The lease of the duties only saves work: every duty is safe when two replicas run it.
"""

from __future__ import annotations

from gristmill.protocol.keys import GROUP_SCHEDULERS, REQUEST_STREAMS
from gristmill.scheduler.controller import Controller, Duty, Replica
from gristmill.scheduler.refusals import is_full, is_refusal
from gristmill.store.connection import ReplyError

CONSUMER_IDLE_MS = 20_000
CONSUMER_PERIOD_SECONDS = 5.0


def take_lease(replica: Replica) -> bool:
    """Whether this replica runs the shared duties now: it holds their lease, or nobody did.

    One lease for all of them: an idle installation would spend most of its time on such questions otherwise.
    """
    key, lifetime_ms = replica.keys.lease("duties"), int(replica.settings.sweep_seconds * 1500)
    try:
        taken = replica.connection.request("SET", key, replica.id, "NX", "PX", lifetime_ms)
        if taken is not None:
            return True
        if replica.connection.request("GET", key) != replica.id.encode():
            return False
        replica.connection.request("PEXPIRE", key, lifetime_ms)
    except ReplyError as error:
        if is_refusal(error) and not is_full(error):
            raise
        # A full Redis grants no leases, and of a key of another type nobody is the holder.
    return True


def sweep(replica: Replica) -> None:
    """Advance the observed clock and end the leases that have run out."""
    replica.run("sweep", int(replica.settings.sweep_seconds * 1000))


def remove_dead_consumers(replica: Replica) -> None:
    """Replicas that are gone leave their names in the groups; those with nothing pending are taken off."""
    for name in REQUEST_STREAMS:
        stream = getattr(replica.keys, name)()
        try:
            consumers = replica.connection.request("XINFO", "CONSUMERS", stream, GROUP_SCHEDULERS)
        except ReplyError as error:
            if is_refusal(error):
                raise
            continue  # no such stream or group: the next read makes it anew
        for facts in consumers:
            fields = dict(zip(facts[::2], facts[1::2], strict=True))
            if fields[b"idle"] > CONSUMER_IDLE_MS and fields[b"name"] != replica.id.encode():
                command = replica.scripts.request_duty("remove_consumer", stream, fields[b"name"], CONSUMER_IDLE_MS)
                replica.scripts.apply(replica.connection, command)


def controller(sweep_seconds: float) -> Controller:
    """Sweeping, and clearing up after replicas."""
    return Controller(
        "leases",
        duties=(
            Duty("sweep", sweep_seconds, sweep),
            Duty("consumers", CONSUMER_PERIOD_SECONDS, remove_dead_consumers),
        ),
    )
