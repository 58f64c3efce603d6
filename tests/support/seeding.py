"""Writing, by hand, what schedulers would have written: a picture of an installation for tests that only read."""

from __future__ import annotations

import json
from typing import Any

from gristmill.protocol.keys import Keys
from support.database import Database

WELL_MS = 3_600_000
"""Who is there has been heard so far in the future: however long the machine stands still, nobody falls silent."""


class Seeding:
    """Puts workers, schedulers, tasks and lanes where the read API looks for them."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self.database = database
        self.keys = keys
        self._changes = 0

    def now(self) -> int:
        """Redis's clock, ms."""
        seconds, microseconds = self.database.run("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    def _hash(self, key: str, fields: dict[str, Any]) -> None:
        self.database.run("HSET", key, *(word for pair in fields.items() for word in pair))

    def count(self, **fields: int) -> None:
        """Totals, with `__` for the colon: `state__running=2`."""
        for name, value in fields.items():
            self.database.run("HINCRBY", self.keys.counts(), name.replace("__", ":"), value)

    def worker(
        self,
        worker: str,
        *,
        seen_ms_ago: int = -WELL_MS,
        assigned: int = 0,
        held: int = 0,
        room: int = 8,
        processors: list[dict[str, Any]] | None = None,
        capabilities: dict[str, int] | None = None,
        registered: bool = True,
        **fields: Any,
    ) -> str:
        """A worker with `assigned` entries in its stream, of which its processors have read `held`."""
        host, pid, name, _ = worker.split("|")
        has = {"python3.11": -1, **(capabilities or {})}
        running = processors or []
        beat = {
            "version": 1,
            "worker": worker,
            "processors_ready": len(running),
            "cpu_percent": 2.5,
            "rss_bytes": 40 << 20,
            "host_cpu_percent": 55.0,
            "host_memory_percent": 42.0,
            "host_memory_free_bytes": 9 << 30,
            "latency_ms": 0.4,
            "processors": [processor(**row) for row in running],
        }
        self._hash(
            self.keys.worker(worker),
            {
                "name": name,
                "host": host,
                "pid": pid,
                "python": "3.11",
                "release": "0.1.0",
                "concurrency": max(1, len(running)),
                "capabilities": ",".join(sorted(has)),
                "capability_values": json.dumps(has),
                "lanes": "python3.11",
                "processors": len(running),
                "room": room,
                "queue": 1,
                "queue_size": 1000,
                "service_us": 1500,
                "registered": self.now() - 60_000,
                "seen": self.now() - seen_ms_ago,
                "heartbeat": json.dumps(beat),
                **fields,
            },
        )
        stream = self.keys.worker_tasks(worker)
        if registered:
            self.database.run("ZADD", self.keys.workers(), 15_000 - seen_ms_ago, worker)
            self.database.run("XGROUP", "CREATE", stream, "processors", "0", "MKSTREAM")
        for number in range(assigned):
            self.database.run("XADD", stream, "*", "task", f"Client0001.{number:07} 1 - Client0001.f1-1 f")
        if held:
            self.database.run("XREADGROUP", "GROUP", "processors", "p1", "COUNT", held, "STREAMS", stream, ">")
        return worker

    def scheduler(self, scheduler: str, *, seen_ms_ago: int = -WELL_MS, **fields: Any) -> str:
        """A replica that reported so long ago."""
        seen = self.now() - seen_ms_ago
        self._hash(
            self.keys.scheduler(scheduler),
            {
                "name": scheduler,
                "host": "mill-1",
                "pid": 4711,
                "release": "0.1.0",
                "cpu_percent": 12.5,
                "rss_bytes": 33 << 20,
                "host_memory_free_bytes": 5 << 30,
                "loop_lag_ms": 0.8,
                "requests_per_s": 310.0,
                "scripts_per_s": 305.5,
                "started": self.now() - 3_600_000,
                "seen": seen,
                "requests": '{"tasks":5000,"outcomes":4900}',
                **fields,
            },
        )
        self.database.run("ZADD", self.keys.schedulers(), seen, scheduler)
        return scheduler

    def client(self, client: str, *, tasks: int = 0) -> str:
        """A client with so many unfinished tasks."""
        now = self.now()
        self._hash(
            self.keys.client(client),
            {"name": "", "host": "desk", "pid": 99, "python": "3.11", "batch": 7, "registered": now, "seen": now},
        )
        self.database.run("ZADD", self.keys.clients(), now, client)
        for number in range(tasks):
            self.database.run("SADD", self.keys.client_tasks(client), f"{client}.{number:07}")
        return client

    def changes(self, *rows: tuple[Any, ...]) -> str:
        """One entry of `events`: rows of (task, state, attempt, worker or "", function or "", *further columns)."""
        workers: list[str] = []
        functions: list[str] = []
        written = []
        for task, state, attempt, worker, function, *rest in rows:
            written.append([task, state, attempt, _index(worker, workers), _index(function, functions), *rest])
        self._changes += len(rows)
        self.database.run("HSET", self.keys.counts(), "events", self._changes)
        fields = ("workers", workers), ("functions", functions), ("changes", written)
        identity: bytes = self.database.run(
            "XADD", self.keys.events(), "*", "number", self._changes,
            *(word for name, value in fields for word in (name, json.dumps(value))),
        )  # fmt: skip
        return identity.decode()

    def task(self, task: str, **fields: Any) -> str:
        """The record of a task that is not finished."""
        facts = {
            "state": "inactive",
            "function": "Client0001.f1-1",
            "name": "shop.price",
            "lane": "python3.11",
            "order": 1,
        }
        facts.update({"submitted": self.now(), **fields})
        packed = {"function": "{function} {name}", "place": "{lane} {order}"}
        if "worker" in facts:
            facts = {"attempt": 1, "entry": f"{self.now()}-0", **facts}
            packed["assignment"] = "{attempt} {entry} {worker}"
        parts = {"function", "name", "lane", "order", "worker", "attempt", "entry", "assigned"}
        record = {name: value for name, value in facts.items() if name not in parts}
        self._hash(self.keys.task(task), {**record, **{name: form.format(**facts) for name, form in packed.items()}})
        return task

    def lane(self, lane: str, *, waiting: int = 0, workers: int = 0) -> str:
        """A lane with tasks that wait and workers that take them."""
        self.database.run("HSET", self.keys.lanes(), lane, 1)
        for number in range(waiting):
            self.database.run("ZADD", self.keys.ready(lane), number, f"Client0001.{number:07}")
        for number in range(workers):
            self.database.run("ZADD", self.keys.load(lane), 0, f"mill-1|{number}|w{number}|x")
        return lane


def processor(**fields: Any) -> dict[str, Any]:
    """One processor of a heartbeat."""
    defaults = {"processor": "p1", "pid": 1, "ready": True, "cpu_percent": 50.0, "rss_bytes": 60 << 20}
    return {**defaults, **fields}


def _index(value: str, known: list[str]) -> int:
    if not value:
        return -1
    if value not in known:
        known.append(value)
    return known.index(value)
