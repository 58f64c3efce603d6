"""Leases of workers: long for those that live through a whole test, ended by hand for those that are dead."""

from __future__ import annotations

from collections.abc import Collection

from gristmill.protocol.keys import Keys
from support.database import Database

LONG_LEASE = {"worker_lease_seconds": 30.0}
"""Of workers that nobody kills or freezes: on a machine that stalls no lease ends by itself, so no task runs twice."""


def end_leases(database: Database, keys: Keys, pids: Collection[int]) -> None:
    """End the leases of workers that are dead, so that nobody waits for a long one.

    Again and again, until that is seen: a last beat may still lie unread, and renew the lease.
    """
    for worker in database.zset(keys.workers()):
        if int(worker.split("|")[1]) in pids:
            database.run("ZADD", keys.workers(), "XX", -1, worker)
