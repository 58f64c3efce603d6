"""Leases of workers that are to live through a whole test."""

from __future__ import annotations

LONG_LEASE = {"worker_lease_seconds": 30.0}
"""Of workers that nobody kills or freezes: on a machine that stalls no lease ends by itself, so no task runs twice."""
