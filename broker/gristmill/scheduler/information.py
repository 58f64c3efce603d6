"""Information: what each replica reports of itself, whether the intake is open, how much history is kept."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import time

import psutil

from gristmill._version import __version__
from gristmill.protocol.kinds import VERSION
from gristmill.protocol.limits import intake_limit
from gristmill.scheduler.controller import Controller, Duty, Replica
from gristmill.store.connection import ReplyError, pack

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 1.0
RECORD_SECONDS = 15
"""How long the record of a replica outlives its last report."""
KEPT_CHANGES = 100_000
LEAVING_SECONDS = 15.0
"""After a client has ended everything, workers may take so long to leave."""
GOODBYE_SECONDS = 1.0
"""And clients so long to say goodbye."""


class Reporter:
    """Reports one replica's figures; rates are over the time since the last report."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._before = (time.monotonic(), 0, 0)
        self._started = 0

    def report(self, replica: Replica) -> None:
        """Write the replica's record."""
        connection, keys = replica.connection, replica.keys
        seconds, microseconds = connection.request("TIME")
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        if not self._started:
            self._started = now_ms
            warn_of_eviction(replica)
        requests = sum(replica.requests.values())
        at, requests_before, scripts_before = self._before
        elapsed = max(time.monotonic() - at, 1e-3)
        self._before = (time.monotonic(), requests, replica.scripts_run)
        fields = {
            "name": replica.settings.name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "release": __version__,
            "cpu_percent": round(self._process.cpu_percent(), 1),
            "rss_bytes": self._process.memory_info().rss,
            "host_cpu_percent": psutil.cpu_percent(),
            "host_memory_free_bytes": psutil.virtual_memory().available,
            "loop_lag_ms": round(replica.lag_seconds * 1000, 1),
            "requests_per_s": round((requests - requests_before) / elapsed, 1),
            "scripts_per_s": round((replica.scripts_run - scripts_before) / elapsed, 1),
            "started": self._started,
            "seen": now_ms,
            "requests": json.dumps(replica.requests),
        }
        key = keys.scheduler(replica.id)
        flat = [piece for pair in fields.items() for piece in pair]
        connection.send(
            # Together: the record of a replica that died between the two would stay for ever.
            pack(("MULTI",)),
            pack(("HSET", key, *flat)),
            pack(("EXPIRE", key, RECORD_SECONDS)),
            pack(("EXEC",)),
            pack(("ZADD", keys.schedulers(), now_ms, replica.id)),
            pack(("ZREMRANGEBYSCORE", keys.schedulers(), "-inf", now_ms - RECORD_SECONDS * 1000)),
            pack(("HSETNX", keys.namespace_facts(), "incarnation", secrets.token_hex(8))),
            pack(
                (
                    "HSET", keys.namespace_facts(), "allocation", replica.settings.allocation,
                    "protected", int(replica.settings.protected),
                )
            ),
            pack(("HGET", keys.namespace_facts(), "shutdown")),
            pack(("ZCARD", keys.workers())),
        )  # fmt: skip
        replies = [connection.read() for _ in range(10)]
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise reply
        check_version(replica)
        *_, shutdown, workers = replies
        replica.ending = is_ending(int(shutdown or 0), self._started, now_ms, int(workers))


def is_ending(shutdown_ms: int, started_ms: int, now_ms: int, workers: int) -> bool:
    """Whether a scheduler ends because a client ended everything: when all workers have left, or after a while. Pure.

    What happened before it was started does not concern it.
    """
    if shutdown_ms < started_ms:
        return False
    return now_ms - shutdown_ms > (LEAVING_SECONDS if workers else GOODBYE_SECONDS) * 1000


def check_version(replica: Replica) -> None:
    """What lies in the namespace has a version, the newest of all schedulers that ever worked there.

    An older one leaves it to others: raises ReplyError, and the loop tries again later.
    """
    facts = replica.keys.namespace_facts()
    found = int(replica.connection.request("HGET", facts, "version") or 0)
    if found > VERSION:
        raise ReplyError(
            f"NEWER expected data of version {VERSION} at most, which this release understands; got version {found} in "
            f"the namespace {replica.keys.namespace!r}; update this scheduler"
        )
    if found < VERSION:
        try:
            replica.connection.request("HSET", facts, "version", VERSION)
        except ReplyError as error:
            if error.code != "OOM":  # a full Redis has to drain first
                raise


def warn_of_eviction(replica: Replica) -> None:
    """Say, once at the start, when Redis may throw tasks away."""
    policy = memory_facts(replica).get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        logger.warning(
            "Redis may throw tasks away: set its maxmemory-policy to noeviction", extra={"maxmemory_policy": policy}
        )


def withdraw(replica: Replica) -> None:
    """Take the replica off the list, at a clean end."""
    replica.connection.request("ZREM", replica.keys.schedulers(), replica.id)
    replica.connection.request("DEL", replica.keys.scheduler(replica.id))


def intake_state(waiting: int, max_waiting: int, used_bytes: int, max_bytes: int) -> str:
    """`open`, or the reason why new tasks are refused. Pure."""
    limit = intake_limit(max_bytes)
    if max_bytes and used_bytes > limit:
        return f"Redis uses {used_bytes} bytes; of its maxmemory of {max_bytes} new tasks may fill {limit:.0f}"
    if max_waiting and waiting >= max_waiting:
        return f"{waiting} tasks wait, the limit is {max_waiting} (max_tasks_waiting)"
    return "open"


def memory_facts(replica: Replica) -> dict[str, str]:
    """What Redis says of its memory."""
    lines = replica.connection.request("INFO", "memory").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def watch_intake(replica: Replica) -> None:
    """Open or close the intake."""
    memory = memory_facts(replica)
    waiting = int(replica.connection.request("HGET", replica.keys.counts(), "state:inactive") or 0)
    state = intake_state(
        waiting, replica.settings.max_tasks_waiting, int(memory["used_memory"]), int(memory.get("maxmemory", 0))
    )
    replica.run("set_intake", state)
    replica.bytes_taken = 0


def trim(replica: Replica) -> None:
    """Keep the newest changes in `events`."""
    replica.run("trim", KEPT_CHANGES)


def controller() -> Controller:
    """Reports by each replica; intake and history by one."""
    return Controller(
        "information",
        duties=(
            Duty("intake", PERIOD_SECONDS, watch_intake),
            Duty("report", PERIOD_SECONDS, Reporter().report, shared=False),
            Duty("trim", PERIOD_SECONDS, trim),
        ),
    )
