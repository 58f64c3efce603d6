"""Who is there: workers, schedulers, clients. Read in slices, whatever their number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from gristmill.protocol.keys import GROUP_PROCESSORS, ID_PATTERN, Keys, host_part
from gristmill.snapshot.reading import Reading, decimal, number, or_else, pairs, short, sure, text
from gristmill.snapshot.records import Client, Processor, Scheduler, Worker, WorkerPage

STALE_MS = 6_000
"""A worker beats every two seconds at least: one that was not heard for so long has missed three."""
SCHEDULER_SILENT_MS = 6_000
"""A scheduler that has not reported for so long counts as gone."""

WORKERS_READ = 5_000
"""Of a larger fleet those are read whose leases end last."""
SLICE = 100
"""So many workers are read at a time: a reply of a few hundred KiB."""
GONE_LOOKED_AT = 50
SCHEDULERS_SHOWN = 50

_FIGURES: dict[str, Callable[[Worker], Any]] = {
    "host": lambda worker: natural(worker.host),
    "state": lambda worker: worker.state,
    "task": lambda worker: worker.executing[0].function if worker.executing else "",
    "age": lambda worker: worker.executing[0].running_ms if worker.executing else -1,
    "agent_cpu": lambda worker: worker.agent_cpu_percent,
    "agent_memory": lambda worker: worker.agent_rss_bytes,
    "cpu": lambda worker: worker.processors_cpu_percent,
    "memory": lambda worker: worker.processors_rss_bytes,
    "memory_percent": lambda worker: worker.host_memory_percent,
    "memory_free": lambda worker: worker.host_memory_free_bytes,
    "processors": lambda worker: worker.processors_ready,
    "free": lambda worker: worker.free,
    "sent": lambda worker: worker.outstanding,
    "queued": lambda worker: worker.queued,
    "held": lambda worker: worker.held,
    "suspended": lambda worker: worker.suspended,
    "lag": lambda worker: worker.latency_ms,
    "itl": lambda worker: worker.itl,
    "seen": lambda worker: worker.seen,
    "capabilities": lambda worker: sorted(worker.capabilities),
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
    keys: Keys, *, also: Iterable[str] = ()
) -> Reading[tuple[tuple[Worker, ...], int, tuple[Worker, ...]]]:
    """The workers by name, how many are registered, and those of `also` that are registered no longer."""
    time, total, members = yield [
        ("TIME",),
        ("ZCARD", keys.workers()),
        ("ZREVRANGE", keys.workers(), 0, WORKERS_READ - 1),
    ]
    now = redis_now(time)
    ids = sorted(map(text, sure(members)), key=by_worker)
    known = set(ids)
    missing = [worker for worker in also if worker not in known and ID_PATTERN.match(worker)][:GONE_LOOKED_AT]
    rows: list[Worker] = []
    for start in range(0, len(ids) + len(missing), SLICE):
        rows += yield from _read_slice(keys, [*ids, *missing][start : start + SLICE], now)
    registered = tuple(worker for worker in rows if worker.worker in known)
    return registered, number(sure(total)), tuple(worker for worker in rows if worker.worker not in known)


def page_of(
    workers: Sequence[Worker], *, total: int, gone: tuple[Worker, ...] = (), page: int = 1, per_page: int = 50,
    sort: str = "worker", descending: bool = False,
) -> WorkerPage:  # fmt: skip
    """One page of the workers, which come by name; equals stay in that order. Pure."""
    if sort in _FIGURES:
        workers = sorted(workers, key=_FIGURES[sort], reverse=descending)
    elif descending:
        workers = workers[::-1]
    pages = max(1, -(-len(workers) // per_page))
    page = min(max(1, page), pages)
    return WorkerPage(
        rows=tuple(workers[(page - 1) * per_page : page * per_page]),
        total=total,
        stale=sum(worker.state == "stale" for worker in workers),
        page=page,
        pages=pages,
        sort=sort,
        descending=descending,
        gone=gone,
    )


def read_workers_of(keys: Keys, hostname: str) -> Reading[tuple[Worker, ...]]:
    """The workers of one host. All ids are read, however many there are, but only these records."""
    time, members = yield [("TIME",), ("ZRANGE", keys.workers(), 0, -1)]
    start = f"{host_part(hostname)}|"
    ids = [worker for worker in map(text, sure(members)) if worker.startswith(start)][:SLICE]
    return tuple((yield from _read_slice(keys, ids, redis_now(time))))


def read_worker(keys: Keys, worker: str) -> Reading[Worker | None]:
    """One worker, also one that has gone less than ten minutes ago; None when nobody knows it."""
    (time,) = yield [("TIME",)]
    rows = yield from _read_slice(keys, (worker,), redis_now(time))
    return rows[0] if rows else None


def _read_slice(keys: Keys, ids: Sequence[str], now: int) -> Reading[list[Worker]]:
    """Rows of these workers; an id without a record is passed over. Who has no tasks is not asked what is read."""
    if not ids:
        return []
    replies = yield [
        command for worker in ids for command in (("HGETALL", keys.worker(worker)), ("XLEN", keys.worker_tasks(worker)))
    ]
    records = {worker: pairs(sure(replies[2 * at])) for at, worker in enumerate(ids)}
    outstanding = {worker: number(sure(replies[2 * at + 1])) for at, worker in enumerate(ids)}
    busy = [worker for worker in ids if records[worker] and outstanding[worker]]
    held = dict.fromkeys(ids, 0)
    if busy:
        replies = yield [("XPENDING", keys.worker_tasks(worker), GROUP_PROCESSORS) for worker in busy]
        # The group goes with the worker, so there is none between its end and that of its record.
        held.update({w: number(or_else(reply, [0], "NOGROUP")[0]) for w, reply in zip(busy, replies, strict=True)})
    return [_worker(one, records[one], outstanding[one], held[one], now) for one in ids if records[one]]


def _worker(worker: str, record: dict[str, Any], outstanding: int, held: int, now: int) -> Worker:
    beat = _json(record.get("heartbeat"))
    processors = tuple(_processor(row) for row in beat.get("processors", ()) if isinstance(row, dict))
    seen = number(record.get("seen"))
    if record.get("gone"):
        state = text(record["gone"])
    elif now - seen > STALE_MS:
        state = "stale"
    else:
        state = {"": "live", "paused": "paused", "alone": "alone"}.get(text(record.get("draining")), "draining")
    agent_cpu, agent_rss = decimal(beat.get("cpu_percent")), number(beat.get("rss_bytes"))
    values = _json(record.get("capability_values"))
    room = number(record.get("room"))
    ready = number(record.get("processors"))
    free = max(0, room - outstanding) if state in ("live", "stale") else 0
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
        processors_ready=ready - number(record.get("suspended")),
        room=room,
        queue_size=number(record.get("queue_size")),
        service_us=number(record.get("service_us")),
        registered=number(record.get("registered")),
        seen=seen,
        outstanding=outstanding,
        held=held,
        queued=max(0, outstanding - held),
        free=free,
        cpu_percent=agent_cpu + sum(processor.cpu_percent for processor in processors),
        rss_bytes=agent_rss + sum(processor.rss_bytes for processor in processors),
        agent_cpu_percent=agent_cpu,
        agent_rss_bytes=agent_rss,
        host_cpu_percent=decimal(beat.get("host_cpu_percent")),
        host_memory_percent=decimal(beat.get("host_memory_percent")),
        host_memory_free_bytes=number(beat.get("host_memory_free_bytes")),
        host_sent_bytes_per_s=number(beat.get("host_sent_bytes_per_s")),
        host_received_bytes_per_s=number(beat.get("host_received_bytes_per_s")),
        latency_ms=decimal(beat.get("latency_ms")),
        suspended=number(record.get("suspended")),
        processors_cpu_percent=sum(processor.cpu_percent for processor in processors),
        processors_rss_bytes=sum(processor.rss_bytes for processor in processors),
        itl="".join(str(int(bool(fact))) for fact in (ready, any(one.task for one in processors), free)),
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
        suspended=bool(row.get("waiting")),
        parked=bool(row.get("parked")),
    )


def _json(value: Any) -> dict[str, Any]:
    """An object that lies in a record as JSON; empty when there is none or it cannot be read."""
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
        requests={short(kind): number(count) for kind, count in _json(record.get("requests")).items()},
        host_cpu_percent=decimal(record.get("host_cpu_percent")),
        host_memory_free_bytes=number(record.get("host_memory_free_bytes")),
    )


def read_clients(keys: Keys, *, page: int = 1, per_page: int = 50) -> Reading[tuple[Client, ...]]:
    """One page of the clients, those whose lease ends last first; read in slices."""
    start = (max(1, page) - 1) * per_page
    (members,) = yield [("ZREVRANGE", keys.clients(), start, start + per_page - 1)]
    ids = [text(member) for member in sure(members)]
    found = []
    for begin in range(0, len(ids), SLICE):
        part = ids[begin : begin + SLICE]
        replies = yield [
            command
            for client in part
            for command in (("HGETALL", keys.client(client)), ("SCARD", keys.client_tasks(client)))
        ]
        for at, client in enumerate(part):
            record = pairs(sure(replies[2 * at]))
            if record:
                found.append(_client(client, record, number(sure(replies[2 * at + 1]))))
    return tuple(found)


def read_client(keys: Keys, client: str) -> Reading[Client | None]:
    """One client; None when nobody knows it."""
    record, tasks = yield [("HGETALL", keys.client(client)), ("SCARD", keys.client_tasks(client))]
    fields = pairs(sure(record))
    return _client(client, fields, number(sure(tasks))) if fields else None


def _client(client: str, record: dict[str, Any], unfinished: int) -> Client:
    has_beaten = "cpu_percent" in record
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
        submitted=number(record["last"]) + 1 if record.get("last") else 0,
        parent=short(record.get("parent")),
        cpu_percent=decimal(record["cpu_percent"]) if has_beaten else None,
        rss_bytes=number(record.get("rss_bytes")) if has_beaten else None,
        latency_ms=decimal(record.get("latency_ms")) if has_beaten else None,
    )
