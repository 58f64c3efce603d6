"""How the whole is: counts, the intake, what waits and why, Redis itself; and what a person should be told."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gristmill.protocol.keys import REQUEST_STREAMS, Keys
from gristmill.protocol.kinds import Request
from gristmill.protocol.limits import NEARLY, intake_limit
from gristmill.protocol.states import TRANSITIONS, Event, State
from gristmill.snapshot.formats import size
from gristmill.snapshot.reading import LONGEST_TEXT, Reading, number, or_else, pairs, sure, text
from gristmill.snapshot.records import (
    SHOWN_STATES,
    Alert,
    Counts,
    Intake,
    Lane,
    Order,
    RedisFacts,
    Scheduler,
    Worker,
    WorkerPage,
)

LANES_LOOKED_AT = 200
BACKLOG_ALERT = 1_000
"""Request entries that wait; schedulers that keep up leave a handful."""

_REFUSABLE = [
    (state, event) for state in State for event in Event
    if (state, event) not in TRANSITIONS and state.value in SHOWN_STATES
]  # fmt: skip


FINDINGS = (
    "client_gone", "count", "dependencies", "dependency_gone", "entry", "entry_gone", "finished", "holder", "inbox",
    "leftover", "load", "not_held", "nowhere", "object", "pending", "record", "record_gone", "request", "unlisted",
    "worker_gone",
)  # fmt: skip
"""What housekeeping may find, as its scripts count it."""


def read_counts(keys: Keys) -> Reading[Counts]:
    """Tasks per state, requests per kind, and what the state table refused."""
    kinds = [kind.value for kind in Request]
    fields = [f"state:{state}" for state in SHOWN_STATES]
    fields += [f"requests:{kind}" for kind in kinds]
    fields += [f"refused:{state.value}:{event.value}" for state, event in _REFUSABLE]
    first = len(fields)
    fields += [f"repaired:{what}" for what in FINDINGS]
    (replies,) = yield [("HMGET", keys.counts(), "events", *fields)]
    changes, *values = (number(value) for value in sure(replies))
    refused = values[len(SHOWN_STATES) + len(kinds) : first]
    return Counts(
        states=dict(zip(SHOWN_STATES, values, strict=False)),
        requests=dict(zip(kinds, values[len(SHOWN_STATES) :], strict=False)),
        refused={
            f"{state.value}:{event.value}": times
            for (state, event), times in zip(_REFUSABLE, refused, strict=True)
            if times
        },
        changes=changes,
        repaired={what: times for what, times in zip(FINDINGS, values[first:], strict=True) if times},
    )


def read_intake(keys: Keys) -> Reading[Intake]:
    """Whether new tasks are taken; without a word from a scheduler they are."""
    (reply,) = yield [("GET", keys.intake())]
    reason = text(sure(reply))[:LONGEST_TEXT]
    return Intake(open=reason in ("", "open"), reason="" if reason == "open" else reason)


def read_paused(keys: Keys) -> Reading[bool]:
    """Whether dispatch is paused."""
    (reply,) = yield [("HEXISTS", keys.namespace_facts(), "paused")]
    return bool(sure(reply))


def read_audit(keys: Keys, limit: int) -> Reading[tuple[Order, ...]]:
    """What people have ordered of late, newest first."""
    (entries,) = yield [("XREVRANGE", keys.audit(), "+", "-", "COUNT", limit)]
    found = []
    for identity, flat in sure(entries):
        fields = {name: text(value)[:LONGEST_TEXT] for name, value in pairs(flat or ()).items()}
        words = {name: fields.get(name, "") for name in ("action", "target", "by", "reason", "answer")}
        found.append(Order(at=number(identity.partition(b"-")[0]), **words))
    return tuple(found)


def read_queues(keys: Keys) -> Reading[tuple[dict[str, int], int, int, int]]:
    """Requests that wait per stream, quarantined entries, delayed tasks, clients."""
    backlog = {name: getattr(keys, name)() for name in REQUEST_STREAMS}
    *lengths, quarantined, delayed, clients = yield [
        *(("XLEN", stream) for stream in backlog.values()),
        ("XLEN", keys.quarantine()),
        ("ZCARD", keys.delayed()),
        ("ZCARD", keys.clients()),
    ]
    waiting = {name: number(sure(length)) for name, length in zip(backlog, lengths, strict=True)}
    return waiting, number(sure(quarantined)), number(sure(delayed)), number(sure(clients))


def lane_capabilities(lane: str) -> tuple[str, ...]:
    """What a worker must have to serve the lane."""
    return tuple(name for name in lane.removesuffix("!").split(",") if name)


def read_lanes(keys: Keys) -> Reading[tuple[Lane, ...]]:
    """Lanes with tasks that wait, the fullest first."""
    (scanned,) = yield [("HSCAN", keys.lanes(), 0, "COUNT", LANES_LOOKED_AT)]
    flat = sure(scanned)[1]
    names = [text(flat[at]) for at in range(0, len(flat), 2)][:LANES_LOOKED_AT]
    if not names:
        return ()
    replies = yield [
        command
        for lane in names
        for command in (("ZCARD", keys.ready(lane)), ("ZCARD", keys.load(lane)), ("ZRANGE", keys.ready(lane), 0, 0))
    ]
    waiting = {lane: number(sure(replies[3 * at])) for at, lane in enumerate(names)}
    workers = {lane: number(sure(replies[3 * at + 1])) for at, lane in enumerate(names)}
    heads = {lane: text(sure(replies[3 * at + 2])[0]) for at, lane in enumerate(names) if sure(replies[3 * at + 2])}
    since = {}
    if heads:
        submitted = yield [("HGET", keys.task(task), "submitted") for task in heads.values()]
        since = {lane: number(sure(reply)) for lane, reply in zip(heads, submitted, strict=True)}
    found = [
        Lane(
            lane=lane,
            capabilities=lane_capabilities(lane),
            alone=lane.endswith("!"),
            waiting=waiting[lane],
            workers=workers[lane],
            head_since=since.get(lane, 0),
        )
        for lane in names
        if waiting[lane]
    ]
    return tuple(sorted(found, key=lambda lane: (-lane.waiting, lane.lane)))


def with_missing(lanes: Iterable[Lane], workers: Iterable[Worker]) -> tuple[Lane, ...]:
    """The lanes, those that no worker takes with what is missing. Pure."""
    had = [set(worker.capabilities) for worker in workers]
    return tuple(lane if lane.workers else _without_workers(lane, had) for lane in lanes)


def _without_workers(lane: Lane, had: list[set[str]]) -> Lane:
    needed = set(lane.capabilities)
    missing: tuple[str, ...] = ()
    if not any(needed <= one for one in had):
        somewhere: set[str] = set().union(*had)
        missing = tuple(name for name in lane.capabilities if name not in somewhere) or lane.capabilities
    return replace(lane, workers=0, missing=missing)


def read_redis(keys: Keys) -> Reading[RedisFacts]:
    """The server's own facts; what it may not tell us (INFO can be forbidden) stays empty."""
    (reply,) = yield [("INFO",)]
    return redis_facts(info_of(reply))


def info_of(reply: Any) -> dict[str, str]:
    """The fields of INFO; none where it is forbidden."""
    lines = text(or_else(reply, "", "NOPERM", "ERR")).splitlines()
    return {name: value[:LONGEST_TEXT] for name, _, value in (line.partition(":") for line in lines) if value}


def redis_facts(info: dict[str, str]) -> RedisFacts:
    """What matters to us of the fields of INFO. Pure."""
    problems = []
    if info.get("aof_last_write_status", "ok") != "ok":
        problems.append("the append-only file could not be written")
    if info.get("aof_last_bgrewrite_status", "ok") != "ok":
        problems.append("the append-only file could not be rewritten")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        problems.append("the last snapshot to disk failed")
    return RedisFacts(
        version=info.get("valkey_version") or info.get("redis_version", ""),
        server="valkey" if "valkey_version" in info else "redis",
        uptime_seconds=_known(info, "uptime_in_seconds"),
        used_memory_bytes=_known(info, "used_memory"),
        max_memory_bytes=_known(info, "maxmemory"),
        eviction_policy=info.get("maxmemory_policy", ""),
        aof=info["aof_enabled"] == "1" if "aof_enabled" in info else None,
        persistence_error=", ".join(problems),
        loading=info.get("loading", "0") != "0",
    )


def _known(info: dict[str, str], name: str) -> int | None:
    return number(info[name]) if name in info else None


def alerts(
    *,
    counts: Counts,
    intake: Intake,
    workers: WorkerPage,
    schedulers: tuple[Scheduler, ...],
    lanes: tuple[Lane, ...],
    backlog: dict[str, int],
    quarantined: int,
    paused: bool,
    redis: RedisFacts,
    keys: Keys,
) -> tuple[Alert, ...]:
    """What a person should know, what stands still first; nothing when all is well."""
    found: list[Alert] = []

    def say(level: str, code: str, text: str, remedy: str = "") -> None:
        found.append(Alert(level, code, text, remedy))

    someone_schedules = any(scheduler.live for scheduler in schedulers)
    if not someone_schedules:
        say(
            "error", "no-scheduler", "No scheduler is running: nothing moves, and workers are not heard.",
            "Start one: gristmill scheduler --redis ADDRESS",
        )  # fmt: skip
    if not intake.open:
        say("error", "intake-closed", f"New tasks are refused: {intake.reason}.", "What is in drains by itself.")
    if paused:
        say("warning", "paused", "Dispatch is paused: no task is assigned to anybody.", "Resume it on the overview.")
    if redis.persistence_error:
        say("error", "persistence-error", f"Redis reports: {redis.persistence_error}.", "Look at its disk and its log.")
    _say_memory(redis, say)
    if not workers.total and counts.active:
        say(
            "error", "no-worker", f"{_tasks(counts.active)} and no worker is there.",
            "Start one: gristmill worker --redis ADDRESS",
        )  # fmt: skip
    elif workers.total:
        for lane in lanes:
            if not lane.workers:
                _say_lane(lane, say)
    if someone_schedules and workers.stale:
        some = "One worker was" if workers.stale == 1 else f"{workers.stale} workers were"
        say("warning", "stale-workers", f"{some} not heard lately.", "Tasks move on by themselves when the lease ends.")
    waiting = sum(backlog.values())
    if someone_schedules and waiting >= BACKLOG_ALERT:
        say(
            "warning", "backlog", f"{waiting:,} requests wait for the schedulers.",
            "Start another replica if this lasts: gristmill scheduler --redis ADDRESS",
        )  # fmt: skip
    if quarantined:
        some = "One request" if quarantined == 1 else f"{quarantined:,} requests"
        reasons = f"Read why: redis-cli XREVRANGE {shlex.quote(keys.quarantine())} + - COUNT 10"
        say("warning", "quarantine", f"{some} could not be understood.", reasons)
    return tuple(sorted(found, key=lambda alert: alert.level != "error"))


def _tasks(count: int) -> str:
    return "One task waits" if count == 1 else f"{count:,} tasks wait"


def _say_memory(redis: RedisFacts, say: Any) -> None:
    used, limit = redis.used_memory_bytes, redis.max_memory_bytes
    if used and limit and used > NEARLY * intake_limit(limit):
        say(
            "error", "memory",
            f"Redis uses {size(used)} of {size(limit)}; above {size(intake_limit(limit))} new tasks are refused.",
            "Raise its maxmemory, or wait until tasks have finished.",
        )  # fmt: skip
    if redis.eviction_policy not in ("", "noeviction"):
        say(
            "error", "eviction-policy", f"Redis may throw tasks away: its eviction policy is {redis.eviction_policy}.",
            "Set it: redis-cli CONFIG SET maxmemory-policy noeviction",
        )  # fmt: skip
    if redis.aof is False:
        say(
            "warning", "persistence-off", "Redis keeps no append-only file: what it holds is lost when it stops.",
            "Set it: redis-cli CONFIG SET appendonly yes",
        )  # fmt: skip


def _say_lane(lane: Lane, say: Any) -> None:
    if lane.missing == lane.capabilities and len(lane.missing) > 1:
        reason = f"no worker has all of {', '.join(lane.missing)}"
    elif lane.missing:
        reason = f"no worker has {', '.join(lane.missing)}"
    else:
        say(
            "warning", "lane-held-up",
            f"{_tasks(lane.waiting)} in lane {lane.lane}: the workers that could run them take nothing now.",
            "They drain, or none of their processors is ready.",
        )  # fmt: skip
        return
    say("error", "lane-unserved", f"{_tasks(lane.waiting)} that no worker can run: {reason}.", _cure(lane))


def _cure(lane: Lane) -> str:
    """What to start. The Python version cannot be given by hand: it is that of the interpreter."""
    versions = [name.removeprefix("python") for name in lane.missing if name.startswith("python")]
    given = [name for name in lane.capabilities if not name.startswith("python")]
    where = f"Start one with Python {versions[0]}" if versions else "Start one"
    return f"{where}: gristmill worker" + (f" --capabilities {','.join(given)}" if given else "")
