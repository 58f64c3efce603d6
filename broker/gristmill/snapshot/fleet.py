"""Who is there: workers, schedulers, clients. A page of them at a time, whatever their number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from gristmill.protocol.keys import GROUP_PROCESSORS, ID_PATTERN, Keys, host_part
from gristmill.snapshot.reading import Command, Reading, decimal, number, or_else, pairs, short, sure, text
from gristmill.snapshot.records import Client, Processor, Scheduler, Worker, WorkerPage

STALE_MS = 6_000
"""A worker beats every two seconds at least: one that was not heard for so long has missed three."""
SCHEDULER_SILENT_MS = 6_000
"""A scheduler that has not reported for so long counts as gone."""

STALE_LOOKED_AT = 20
IDS_LOOKED_AT = 5_000
"""Of a larger fleet the page shows those whose leases end first: ids only, so that they can be put in order."""
SORTED_BY_FIGURE = 500
"""To sort by a figure all rows must be read: of a larger fleet, only those of the first so many ids."""
GONE_LOOKED_AT = 50
SCHEDULERS_SHOWN = 50

_FIGURES: dict[str, Callable[[Worker], Any]] = {
    "host": lambda worker: (worker.host, worker.name),
    "state": lambda worker: (worker.state, worker.name),
    "cpu": lambda worker: worker.cpu_percent,
    "memory": lambda worker: worker.rss_bytes,
    "processors": lambda worker: worker.processors_ready,
    "queued": lambda worker: worker.queued,
    "held": lambda worker: worker.held,
    "free": lambda worker: worker.free,
    "age": lambda worker: worker.executing[0].running_ms if worker.executing else -1,
    "seen": lambda worker: worker.seen,
}
WORKER_SORTS = ("worker", *_FIGURES)

_DIGITS = re.compile(r"(\d+)")


def redis_now(reply: Any) -> int:
    """The reply of TIME in milliseconds."""
    seconds, microseconds = sure(reply)
    return int(seconds) * 1000 + int(microseconds) // 1000


def natural(word: str) -> list[Any]:
    """A sort key under which worker-2 comes before worker-10."""
    return [int(piece) if at % 2 else piece for at, piece in enumerate(_DIGITS.split(word))]


def by_worker(worker: str) -> list[Any]:
    """The order of ids that people expect: by name, then by host and pid."""
    host, _, rest = worker.partition("|")
    pid, _, rest = rest.partition("|")
    return natural(f"{rest.rpartition('|')[0]}|{host}|{pid}")


def read_workers(
    keys: Keys, *, page: int = 1, per_page: int = 50, sort: str = "worker", descending: bool = False,
    also: Iterable[str] = (),
) -> Reading[WorkerPage]:  # fmt: skip
    """One page of the workers, with those of `also` that are registered no longer."""
    time, total, members = yield [
        ("TIME",),
        ("ZCARD", keys.workers()),
        ("ZRANGE", keys.workers(), 0, IDS_LOOKED_AT - 1),
    ]
    now, total = redis_now(time), sure(total)
    by_lease = [text(member) for member in sure(members)]
    ids = sorted(by_lease, key=by_worker, reverse=descending)
    known = set(ids)
    missing = [worker for worker in also if worker not in known and ID_PATTERN.match(worker)][:GONE_LOOKED_AT]

    pages = max(1, -(-len(ids) // per_page))
    page = min(max(1, page), pages)
    start = (page - 1) * per_page
    wanted = ids[:SORTED_BY_FIGURE] if sort in _FIGURES else ids[start : start + per_page]
    suspects = by_lease[:STALE_LOOKED_AT]

    replies = yield [
        *(command for worker in (*wanted, *missing) for command in _worker_commands(keys, worker)),
        *(("HGET", keys.worker(worker), "seen") for worker in suspects),
    ]
    rows = _workers((*wanted, *missing), replies, now)
    registered = [worker for worker in rows if worker.worker in known]
    if sort in _FIGURES:
        registered.sort(key=_FIGURES[sort], reverse=descending)
        pages = max(1, -(-len(registered) // per_page))
        page = min(page, pages)
        registered = registered[(page - 1) * per_page : page * per_page]
    last_heard = [number(sure(reply)) for reply in replies[len(replies) - len(suspects) :]]
    return WorkerPage(
        rows=tuple(registered),
        total=total,
        stale=sum(0 < heard < now - STALE_MS for heard in last_heard),
        page=page,
        pages=pages,
        sort=sort,
        descending=descending,
        ids=tuple(ids),
        gone=tuple(worker for worker in rows if worker.worker not in known),
    )


def read_workers_of(keys: Keys, hostname: str) -> Reading[tuple[Worker, ...]]:
    """The workers of one host. All ids are read, however many there are, but only these records."""
    time, members = yield [("TIME",), ("ZRANGE", keys.workers(), 0, -1)]
    start = f"{host_part(hostname)}|"
    ids = [worker for worker in map(text, sure(members)) if worker.startswith(start)][:SORTED_BY_FIGURE]
    if not ids:
        return ()
    replies = yield [command for worker in ids for command in _worker_commands(keys, worker)]
    return tuple(_workers(ids, replies, redis_now(time)))


def read_worker(keys: Keys, worker: str) -> Reading[Worker | None]:
    """One worker, also one that has gone less than ten minutes ago; None when nobody knows it."""
    time, *replies = yield [("TIME",), *_worker_commands(keys, worker)]
    rows = _workers((worker,), replies, redis_now(time))
    return rows[0] if rows else None


def _worker_commands(keys: Keys, worker: str) -> tuple[Command, ...]:
    tasks = keys.worker_tasks(worker)
    return ("HGETALL", keys.worker(worker)), ("XLEN", tasks), ("XPENDING", tasks, GROUP_PROCESSORS)


def _workers(ids: Sequence[str], replies: list[Any], now: int) -> list[Worker]:
    """Rows out of three replies each; an id without a record is passed over."""
    found = []
    for at, worker in enumerate(ids):
        record = pairs(sure(replies[3 * at]))
        if record:
            # The group goes with the worker, so there is none between its end and that of its record.
            pending = or_else(replies[3 * at + 2], [0], "NOGROUP")
            found.append(_worker(worker, record, number(sure(replies[3 * at + 1])), number(pending[0]), now))
    return found


def _worker(worker: str, record: dict[str, Any], outstanding: int, held: int, now: int) -> Worker:
    beat = _json(record.get("heartbeat"))
    processors = tuple(_processor(row) for row in beat.get("processors", ()) if isinstance(row, dict))
    seen = number(record.get("seen"))
    if record.get("gone"):
        state = text(record["gone"])
    elif now - seen > STALE_MS:
        state = "stale"
    else:
        state = "draining" if record.get("draining") else "live"
    agent_cpu, agent_rss = decimal(beat.get("cpu_percent")), number(beat.get("rss_bytes"))
    values = _json(record.get("capability_values"))
    room = number(record.get("room"))
    names = [name for name in text(record.get("capabilities")).split(",") if name]
    return Worker(
        worker=worker,
        name=short(record.get("name")),
        host=short(record.get("host")) or worker.partition("|")[0],
        pid=number(record.get("pid")),
        python=short(record.get("python")),
        release=short(record.get("release")),
        state=state,
        concurrency=number(record.get("concurrency")),
        capabilities={name: number(values.get(name, -1)) for name in names},
        lanes=tuple(text(record.get("lanes")).split()),
        processors_ready=number(record.get("processors")),
        room=room,
        queue_size=number(record.get("queue_size")),
        service_us=number(record.get("service_us")),
        registered=number(record.get("registered")),
        seen=seen,
        outstanding=outstanding,
        held=held,
        queued=max(0, outstanding - held),
        free=max(0, room - outstanding) if state in ("live", "stale") else 0,
        cpu_percent=agent_cpu + sum(processor.cpu_percent for processor in processors),
        rss_bytes=agent_rss + sum(processor.rss_bytes for processor in processors),
        agent_cpu_percent=agent_cpu,
        agent_rss_bytes=agent_rss,
        host_cpu_percent=decimal(beat.get("host_cpu_percent")),
        host_memory_percent=decimal(beat.get("host_memory_percent")),
        host_memory_free_bytes=number(beat.get("host_memory_free_bytes")),
        latency_ms=decimal(beat.get("latency_ms")),
        processors=processors,
    )


def _processor(row: dict[str, Any]) -> Processor:
    return Processor(
        processor=short(row.get("processor")),
        pid=number(row.get("pid")),
        ready=bool(row.get("ready")),
        task=short(row.get("task")),
        function=short(row.get("function")),
        running_ms=number(row.get("running_ms")),
        cpu_percent=decimal(row.get("cpu_percent")),
        rss_bytes=number(row.get("rss_bytes")),
        tasks_done=number(row.get("tasks_done")),
    )


def _json(value: Any) -> dict[str, Any]:
    """An object of a record; empty when there is none or it cannot be read."""
    try:
        found = orjson.loads(value) if value else {}
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def read_schedulers(keys: Keys) -> Reading[tuple[Scheduler, ...]]:
    """The replicas that reported last, by name."""
    time, scored = yield [("TIME",), ("ZREVRANGE", keys.schedulers(), 0, SCHEDULERS_SHOWN - 1, "WITHSCORES")]
    now, scored = redis_now(time), sure(scored)
    reported = {text(scored[at]): number(scored[at + 1]) for at in range(0, len(scored), 2)}
    if not reported:
        return ()
    records = yield [("HGETALL", keys.scheduler(scheduler)) for scheduler in reported]
    found = []
    for (scheduler, seen), reply in zip(reported.items(), records, strict=True):
        record = pairs(sure(reply))
        live = now - seen <= SCHEDULER_SILENT_MS
        if record or live:
            found.append(_scheduler(scheduler, record, seen, live))
    return tuple(sorted(found, key=lambda row: (not row.live, natural(row.name or row.scheduler))))


def _scheduler(scheduler: str, record: dict[str, Any], seen: int, live: bool) -> Scheduler:
    return Scheduler(
        scheduler=scheduler,
        name=short(record.get("name")),
        host=short(record.get("host")),
        pid=number(record.get("pid")),
        release=short(record.get("release")),
        live=live,
        cpu_percent=decimal(record.get("cpu_percent")),
        rss_bytes=number(record.get("rss_bytes")),
        loop_lag_ms=decimal(record.get("loop_lag_ms")),
        requests_per_s=decimal(record.get("requests_per_s")),
        scripts_per_s=decimal(record.get("scripts_per_s")),
        started=number(record.get("started")),
        seen=seen,
        requests={kind: number(count) for kind, count in _json(record.get("requests")).items()},
    )


def read_clients(keys: Keys, *, page: int = 1, per_page: int = 50) -> Reading[tuple[Client, ...]]:
    """One page of the clients, those whose lease ends last first."""
    start = (max(1, page) - 1) * per_page
    (members,) = yield [("ZREVRANGE", keys.clients(), start, start + per_page - 1)]
    ids = [text(member) for member in sure(members)]
    if not ids:
        return ()
    replies = yield [
        command
        for client in ids
        for command in (("HGETALL", keys.client(client)), ("SCARD", keys.client_tasks(client)))
    ]
    found = []
    for at, client in enumerate(ids):
        record = pairs(sure(replies[2 * at]))
        if record:
            found.append(_client(client, record, number(sure(replies[2 * at + 1]))))
    return tuple(found)


def _client(client: str, record: dict[str, Any], unfinished: int) -> Client:
    return Client(
        client=client,
        name=short(record.get("name")),
        host=short(record.get("host")),
        pid=number(record.get("pid")),
        python=short(record.get("python")),
        batch=number(record.get("batch")),
        registered=number(record.get("registered")),
        seen=number(record.get("seen")),
        unfinished=unfinished,
    )
