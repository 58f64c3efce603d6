"""What `gristmill doctor` checks: Redis as it is set up, and one installation in it.

`examine` asks, the `check_*` functions judge; they are pure, so that a test can hand them what a server might say.
Every finding says what is, and, when it is not right, what to do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from gristmill._version import __version__
from gristmill.protocol.keys import Keys
from gristmill.protocol.limits import NEARLY, intake_limit
from gristmill.snapshot import Overview, Snapshot
from gristmill.snapshot.formats import size
from gristmill.snapshot.leftovers import DeadConsumer, read_dead_consumers
from gristmill.snapshot.reading import Reader, together
from gristmill.store.connection import Connection, ReplyError
from gristmill.store.embedded import MINIMUM_VERSION
from gristmill.transitions import Scripts

Level = Literal["OK", "WARN", "FAIL"]
Info = Mapping[str, str]

PINGS = 50
SLOW_MS = 2.0
"""Above this median round trip a lone task takes noticeably longer, though throughput hardly suffers."""
VERY_SLOW_MS = 50.0
CLOCK_SECONDS = 5.0
"""How far this machine's clock may be off: decisions use Redis's clock, but times in logs would mislead."""
FULL = 0.85
"""Of the machine's memory, and of the connections. Of maxmemory `intake_limit` says how much."""

SAID_BY_CHECKS = frozenset({"eviction-policy", "persistence-off", "persistence-error", "memory", "quarantine"})
"""Alerts of the page that a check here covers."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: Level
    check: str
    text: str
    remedy: str = ""
    """What to do; empty when nothing."""


def examine(address: str, namespace: str) -> list[Finding]:
    """Run every check. Raises ConnectionLostError or RedisRefusedError when there is nothing to examine."""
    connection = Connection(address, name="gristmill-doctor")
    connection.connect()
    keys = Keys(namespace)
    try:
        info = read_info(connection)
        findings = [
            check_version(info),
            check_role(info),
            check_writes(try_to_write(connection, keys.lease("doctor"))),
            check_persistence(info, _configured(connection, "appendfsync")),
            check_eviction(info),
            check_memory(info),
            check_idle_clients(_configured(connection, "timeout")),
            check_connections(info, _configured(connection, "maxclients")),
            check_clock(*read_clock(connection)),
            check_latency(read_latencies_ms(connection)),
            check_scripts(connection, Scripts(keys)),
        ]
    finally:
        connection.close()
    reader = Reader(address, name="gristmill-doctor")
    with Snapshot(address, namespace) as snapshot:
        overview = snapshot.overview()
        try:
            (dead,) = together(reader, read_dead_consumers(keys))
        finally:
            reader.close()
    return [
        *findings,
        check_schedulers(overview),
        check_workers(overview),
        check_dead_consumers(dead),
        check_quarantine(overview.quarantined, keys.quarantine()),
        *check_alerts(overview),
    ]


# --- asking -------------------------------------------------------------------------------------------------


def read_info(connection: Connection) -> dict[str, str]:
    """INFO as a dict of text."""
    lines = connection.request("INFO").decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def read_clock(connection: Connection) -> tuple[float, float]:
    """How far Redis's clock is ahead of ours, and how exactly that is known, in seconds."""
    before = time.time()
    seconds, microseconds = connection.request("TIME")
    after = time.time()
    return int(seconds) + int(microseconds) / 1e6 - (before + after) / 2, (after - before) / 2


def read_latencies_ms(connection: Connection) -> list[float]:
    """Round trips, in ascending order."""
    found = []
    for _ in range(PINGS):
        before = time.perf_counter()
        connection.request("PING")
        found.append((time.perf_counter() - before) * 1000)
    return sorted(found)


def _configured(connection: Connection, name: str) -> str:
    """A value of the configuration; empty where CONFIG is forbidden, as in most managed services."""
    try:
        reply = connection.request("CONFIG", "GET", name)
    except ReplyError:
        return ""
    return reply[1].decode() if reply else ""


def try_to_write(connection: Connection, key: str) -> str:
    """What Redis says against a write; empty when nothing. The key is gone a millisecond later."""
    try:
        connection.request("SET", key, 1, "PX", 1)
    except ReplyError as error:
        return str(error)
    return ""


# --- judging ------------------------------------------------------------------------------------------------


def check_writes(refusal: str) -> Finding:
    """Whether Redis takes writes."""
    if refusal:
        return Finding(
            "FAIL",
            "writes",
            f"Redis refuses writes: {refusal}",
            "Nothing moves until it takes them: see its words.",
        )
    return Finding("OK", "writes", "Redis takes them")


def check_version(info: Info) -> Finding:
    """Redis 6.2 is the floor; Valkey began above it."""
    server, version = "Redis", info.get("redis_version", "")
    if "valkey_version" in info:
        server, version = "Valkey", info["valkey_version"]
    numbers = tuple(int(part) for part in info.get("redis_version", "0").split(".")[:2] if part.isdigit())
    if numbers < MINIMUM_VERSION:
        return Finding("FAIL", "version", f"{server} {version}", "Upgrade: Redis 6.2 or newer, or Valkey 7.2 or newer.")
    return Finding("OK", "version", f"{server} {version}")


def check_role(info: Info) -> Finding:
    """Writes go to a primary that is no cluster node."""
    if info.get("cluster_enabled") == "1":
        return Finding("FAIL", "role", "a node of a Redis Cluster", "Use a Redis that runs without cluster mode.")
    if info.get("role", "master") != "master":
        primary = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
        return Finding("FAIL", "role", "a replica, which refuses writes", f"Use the address of its primary, {primary}.")
    return Finding("OK", "role", "takes writes")


def check_persistence(info: Info, appendfsync: str) -> Finding:
    """What survives a restart of Redis."""
    for field, what in (
        ("aof_last_write_status", "the append-only file cannot be written"),
        ("aof_last_bgrewrite_status", "the append-only file could not be rewritten"),
        ("rdb_last_bgsave_status", "the last snapshot to disk failed"),
    ):
        if info.get(field, "ok") != "ok":
            return Finding("FAIL", "persistence", what, "Look at the free space of Redis's disk and at its log.")
    if info.get("aof_enabled") != "1":
        return Finding(
            "WARN", "persistence", "no append-only file: a restart of Redis loses what it holds",
            "redis-cli CONFIG SET appendonly yes, and the same in redis.conf.",
        )  # fmt: skip
    if appendfsync == "no":
        return Finding(
            "WARN", "persistence", "append-only file, synchronised when the system likes",
            "redis-cli CONFIG SET appendfsync everysec, and the same in redis.conf.",
        )  # fmt: skip
    return Finding("OK", "persistence", f"append-only file{', synchronised ' + appendfsync if appendfsync else ''}")


def check_eviction(info: Info) -> Finding:
    """Redis must refuse rather than forget."""
    policy = info.get("maxmemory_policy", "")
    if policy and policy != "noeviction":
        return Finding(
            "FAIL", "eviction", f"{policy}: Redis throws tasks away when its memory is full",
            "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf.",
        )  # fmt: skip
    return Finding("OK", "eviction", policy or "not told by this server")


def check_memory(info: Info) -> Finding:
    """How far Redis is from the end of its memory: its own limit, or the machine's."""
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    machine = int(info.get("total_system_memory", 0))
    bound, name = (limit, "its limit") if limit else (machine, "the machine's memory")
    if not bound:
        return Finding("OK", "memory", f"{size(used)} used")
    text = f"{size(used)} used, {used / bound:.0%} of {name} of {size(bound)}"
    room = intake_limit(limit) if limit else FULL * machine
    if used > room:
        return Finding(
            "FAIL", "memory", f"{text}: new tasks are refused" if limit else text,
            "Raise maxmemory, or let tasks finish and release results." if limit else "Give Redis a larger machine.",
        )  # fmt: skip
    if used > NEARLY * room:
        ahead = f"New tasks are refused above {size(room)}: raise maxmemory in time."
        return Finding("WARN", "memory", text, ahead if limit else "Give Redis a larger machine in time.")
    return Finding("OK", "memory", text)


def check_idle_clients(timeout: str) -> Finding:
    """Redis must not hang up on a connection that only waits."""
    if timeout not in ("", "0"):
        return Finding(
            "WARN", "idle time-out", f"Redis closes connections that are idle for {timeout} s",
            "redis-cli CONFIG SET timeout 0; programs reconnect, but each time costs a moment.",
        )  # fmt: skip
    return Finding("OK", "idle time-out", "none" if timeout else "not told by this server")


def check_connections(info: Info, maxclients: str) -> Finding:
    """Each worker holds a few connections for itself and one for each processor."""
    now, most = int(info.get("connected_clients", 0)), int(info.get("maxclients") or maxclients or 0)
    if most and now > FULL * most:
        return Finding("WARN", "connections", f"{now} of {most}", "Raise maxclients: new workers will be refused.")
    return Finding("OK", "connections", f"{now} of {most}" if most else str(now))


def check_clock(ahead_seconds: float, uncertainty_seconds: float) -> Finding:
    """Redis's clock decides; ours only stamps logs."""
    text = f"Redis's clock is {abs(ahead_seconds):.3f} s {'ahead of' if ahead_seconds > 0 else 'behind'} this machine's"
    if abs(ahead_seconds) - uncertainty_seconds > CLOCK_SECONDS:
        return Finding("WARN", "clock", text, "Let both machines keep time (NTP): times in logs will not fit together.")
    return Finding("OK", "clock", text)


def check_latency(milliseconds: list[float]) -> Finding:
    """Round trips decide how quick a lone task is."""
    median, worst = statistics.median(milliseconds), milliseconds[-1]
    text = f"{median:.2f} ms a round trip (median of {len(milliseconds)}), at most {worst:.2f} ms"
    if median > VERY_SLOW_MS:
        return Finding("FAIL", "latency", text, "Move Redis nearer to schedulers and workers.")
    if median > SLOW_MS:
        return Finding("WARN", "latency", text, "Move Redis nearer, or look whether its machine is overloaded.")
    return Finding("OK", "latency", text)


def check_scripts(connection: Connection, scripts: Scripts) -> Finding:
    """Whether schedulers will be able to load what they run."""
    try:
        scripts.load(connection)
    except ReplyError as error:
        return Finding("FAIL", "scripts", f"Redis refuses to load them: {error}", "Allow SCRIPT LOAD and EVALSHA.")
    return Finding("OK", "scripts", "loaded")


def check_schedulers(overview: Overview) -> Finding:
    """Who moves the tasks."""
    live = [scheduler for scheduler in overview.schedulers if scheduler.live]
    if not live:
        return Finding("WARN", "schedulers", "none is running", "Start one or two: gristmill scheduler")
    others = sorted({scheduler.release for scheduler in live} - {__version__})
    if others:
        return Finding(
            "WARN", "schedulers", f"{len(live)}, of releases other than this {__version__}: {', '.join(others)}",
            "Bring all to one release: schedulers first, then workers, then clients.",
        )  # fmt: skip
    return Finding("OK", "schedulers", f"{len(live)}")


def check_workers(overview: Overview) -> Finding:
    """Who runs the tasks."""
    total = overview.workers.total
    if not total:
        return Finding("WARN", "workers", "none is running", "Start some: gristmill worker")
    if overview.workers.stale:
        return Finding(
            "WARN", "workers", f"{total}, of them {overview.workers.stale} not heard lately",
            "Look whether they still run; their tasks move on by themselves when the lease ends.",
        )  # fmt: skip
    idle = sum(not worker.processors_ready for worker in overview.workers.rows)
    if idle:
        return Finding(
            "WARN", "workers", f"{total}, of them {idle} without a processor that is ready",
            "Look at their logs: the preload may fail.",
        )  # fmt: skip
    return Finding("OK", "workers", f"{total}")


def check_dead_consumers(dead: tuple[DeadConsumer, ...]) -> Finding:
    """Requests that a dead replica had read."""
    pending = sum(consumer.pending for consumer in dead)
    if pending:
        return Finding(
            "WARN", "leftovers", f"{pending} requests lie with schedulers that are gone",
            "A scheduler that runs takes them over within seconds: start one, and look again.",
        )  # fmt: skip
    return Finding("OK", "leftovers", "no request lies with a scheduler that is gone")


def check_quarantine(entries: int, stream: str) -> Finding:
    """Requests that nobody could understand."""
    if entries:
        return Finding(
            "WARN", "quarantine", f"{entries} requests could not be understood",
            f"Read the reasons: redis-cli XREVRANGE '{stream}' + - COUNT 10; then redis-cli DEL '{stream}'",
        )  # fmt: skip
    return Finding("OK", "quarantine", "empty")


def check_alerts(overview: Overview) -> Iterator[Finding]:
    """What the page would say: tasks without workers, a closed intake, a backlog."""
    covered = {*SAID_BY_CHECKS, *(("no-scheduler",) if not overview.counts.active else ()), "stale-workers"}
    others = [alert for alert in overview.alerts if alert.code not in covered]
    for alert in others:
        yield Finding("FAIL" if alert.level == "error" else "WARN", "tasks", alert.text, alert.remedy)
    if not others:
        yield Finding("OK", "tasks", f"{overview.counts.active} unfinished, none of them stuck")
