"""How much the status page costs: `python benchmarks/page.py`, with `--workers 1000 --tasks 100000` as the default.

Starts a Redis of its own, writes into it what schedulers and workers would have written (workers with heartbeats, a
full history with failures, cancels and graphs), and asks for every page as a browser would. Printed are, per fragment:
the median and the 95th percentile of the time, the median of the CPU time, commands that Redis received for it, bytes
as sent (gzip), elements, and the answer when nothing has changed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import time
from collections.abc import Iterator
from typing import Any

from gristmill.protocol.keys import Keys
from gristmill.store.connection import Connection, pack
from gristmill.store.embedded import EmbeddedRedis
from gristmill_web.app import create_app
from gristmill_web.settings import PageSettings

NAMESPACE = "bench"
FUNCTIONS = ("shop.price", "shop.tax", "shop.load", "risk.simulate", "risk.fit", "mail.render")
BATCH = 50
BUDGET_MS, BUDGET_COMMANDS, BUDGET_BYTES, BUDGET_ELEMENTS = 50, 12, 40 * 1024, 4000


class Seeder:
    """Writes an installation that has been at work for a while."""

    def __init__(self, address: str, seed: int) -> None:
        self.keys = Keys(NAMESPACE)
        self.connection = Connection(address, name="bench")
        self.connection.connect()
        self.chance = random.Random(seed)
        seconds, _ = self.connection.request("TIME")
        self.now = int(seconds) * 1000

    def send(self, commands: list[tuple[Any, ...]]) -> None:
        """All at once, and every answer read."""
        self.connection.send(b"".join(pack(command) for command in commands))
        for _ in commands:
            self.connection.read()

    def workers(self, number: int) -> list[str]:
        """Registered workers, each with two processors."""
        ids = [f"mill-{at // 8}|{1000 + at}|worker-{at}|r{at:05}" for at in range(number)]
        for at, worker in enumerate(ids):
            host, pid, name, _ = worker.split("|")
            processors = [
                {"processor": f"p{one}", "pid": 10_000 + at * 2 + one, "ready": True, "cpu_percent": 40.0,
                 "rss_bytes": 80 << 20, "tasks_done": 500}
                for one in range(2)
            ]  # fmt: skip
            beat = {
                "version": 1, "worker": worker, "processors_ready": 2, "cpu_percent": 1.5, "rss_bytes": 40 << 20,
                "host_cpu_percent": 61.0, "host_memory_percent": 47.0, "host_memory_free_bytes": 9 << 30,
                "latency_ms": 0.4, "processors": processors,
            }  # fmt: skip
            record = {
                "name": name, "host": host, "pid": pid, "python": "3.11", "release": "0.1.0", "concurrency": 2,
                "capabilities": "python3.11", "capability_values": '{"python3.11":-1}', "lanes": "python3.11",
                "processors": 2, "room": 3, "queue": 1, "queue_size": 1000, "service_us": 200_000,
                "registered": self.now - 3_600_000, "seen": self.now, "heartbeat": json.dumps(beat),
            }  # fmt: skip
            tasks = self.keys.worker_tasks(worker)
            self.send(
                [
                    ("HSET", self.keys.worker(worker), *(word for pair in record.items() for word in pair)),
                    ("ZADD", self.keys.workers(), 15_000, worker),
                    ("XGROUP", "CREATE", tasks, "processors", "0", "MKSTREAM"),
                ]
            )
        return ids

    def history(self, tasks: int, workers: list[str], minutes: float) -> int:
        """`tasks` tasks within the last minutes; the last few still run. Answers the number of changes."""
        begin = self.now - int(minutes * 60_000)
        number = 0
        last = 0
        for first in range(0, tasks, BATCH):
            at = max(last + 1, begin + int(first / tasks * minutes * 60_000))
            entries = list(self._life(range(first, min(tasks, first + BATCH)), workers, tasks))
            commands = []
            for step, rows in enumerate(entries):
                number += len(rows)
                last = at + step * 5
                names = sorted({row[3] for row in rows if row[3]})
                functions = sorted({row[4] for row in rows})
                written = [
                    [row[0], row[1], row[2], names.index(row[3]) if row[3] else -1, functions.index(row[4]), *row[5:]]
                    for row in rows
                ]
                commands.append(
                    ("XADD", self.keys.events(), f"{last}-0", "number", number, "workers", json.dumps(names),
                     "functions", json.dumps(functions), "changes", json.dumps(written, separators=(",", ":")))
                )  # fmt: skip
            self.send(commands)
        self.send([("HSET", self.keys.counts(), "events", number)])
        return number

    def _life(self, numbers: range, workers: list[str], tasks: int) -> Iterator[list[tuple[Any, ...]]]:
        """Three entries: submitted, assigned, ended."""
        chosen = [
            (f"Client{at % 7:04}.{at:07}", self.chance.choice(workers), FUNCTIONS[at % len(FUNCTIONS)])
            for at in numbers
        ]
        about = [None] * 4
        yield [
            (task, "inactive", 0, "", function, *about, {"graph": f"g{at // 500}", "tags": ["nightly"]})
            if at % 10 == 0
            else (task, "inactive", 0, "", function)
            for at, (task, _, function) in zip(numbers, chosen, strict=True)
        ]
        yield [(task, "running", 1, worker, function) for task, worker, function in chosen]
        ended: list[tuple[Any, ...]] = []
        for at, (task, worker, function) in zip(numbers, chosen, strict=True):
            if at >= tasks - 20:
                continue
            figures = (self.chance.choice((800, 30_000, 400_000, 3_000_000)), 700, 64 << 20)
            if at % 50 == 0:
                ended.append((task, "failed", 1, worker, function, *figures, "ValueError: no price for 4711"))
            elif at % 77 == 0:
                ended.append((task, "canceling", 1, worker, function))
                ended.append((task, "canceled", 1, worker, function, 0, 0, 0, "no longer wanted"))
            else:
                ended.append((task, "success", 1, worker, function, *figures))
        if ended:
            yield ended


def commands_received(connection: Connection) -> int:
    """How many commands Redis has received so far, without the one that asks."""
    found = re.search(rb"total_commands_processed:(\d+)", connection.request("INFO", "stats"))
    return int(found[1]) if found else 0


def measure(client: Any, connection: Connection, path: str, times: int) -> dict[str, Any]:
    """Ask for one fragment again and again."""
    client.get(path)
    spent, worked, received = [], [], []
    answer = None
    for _ in range(times):
        before = commands_received(connection)
        start, cpu = time.perf_counter(), time.thread_time()
        answer = client.get(path, headers={"Accept-Encoding": "gzip"})
        spent.append((time.perf_counter() - start) * 1000)
        worked.append((time.thread_time() - cpu) * 1000)
        received.append(commands_received(connection) - before - 1)
        assert answer.status_code == 200, (path, answer.status_code)
    assert answer is not None
    packed = answer.headers.get("Content-Encoding") == "gzip"
    html = gzip.decompress(answer.data) if packed else answer.data
    again = client.get(path, headers={"Page-Tag": answer.headers["Page-Tag"]})
    spent.sort()
    worked.sort()
    return {
        "fragment": path,
        "median_ms": round(spent[len(spent) // 2], 1),
        "p95_ms": round(spent[int(len(spent) * 0.95)], 1),
        "cpu_ms": round(worked[len(worked) // 2], 1),
        "commands": sorted(received)[len(received) // 2],
        "gzip_bytes": len(answer.data) if packed else len(gzip.compress(answer.data)),
        "elements": len(re.findall(rb"<[a-z]", html)),
        "unchanged": f"{again.status_code}, {len(again.data)} B",
    }


def main() -> None:
    """Seed, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long the history is")
    parser.add_argument("--times", type=int, default=40, help="how often each fragment is asked for")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help="after that, serve the page until interrupted")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with EmbeddedRedis(appendonly=False) as redis:
        run(options, redis.address)


def run(options: argparse.Namespace, address: str) -> None:
    """With a Redis that runs."""
    seeder = Seeder(address, options.seed)
    workers = seeder.workers(options.workers)
    number = seeder.history(options.tasks, workers or ["mill-0|1|worker-0|r"], options.minutes)
    settings = PageSettings.model_validate({"redis": address, "namespace": NAMESPACE})
    app = create_app(settings)
    client = app.test_client()
    history = app.extensions["gristmill_history"]
    cpu, start = time.process_time(), time.perf_counter()
    while history.index.number < number:
        history.look()
    read = {
        "read_seconds": round(time.perf_counter() - start, 2), "cpu_seconds": round(time.process_time() - cpu, 2),
        "changes": history.index.number,
    }  # fmt: skip
    client.get("/timeline")
    while not history.fleet.samples:
        history.look()
    # From here on only what is asked for on behalf of a viewer reaches Redis.
    history.stop()
    task = client.get("/api/v1/tasks?state=failed").get_json()["tasks"][0]["task"]
    paths = [
        "/fragments/tasks", "/fragments/tasks?state=failed", "/fragments/tasks?function=shop.price&worker=nobody",
        "/fragments/tasks?text=nothing+has+this", "/fragments/tasks?tag=nightly&client=Client0003",
        f"/fragments/tasks/{task}", "/fragments/events", "/fragments/events?state=canceled&worker=nobody",
        "/fragments/timeline?window=5", "/fragments/timeline?window=30",
        "/fragments/timeline?window=30&colour=function", "/fragments/overview",
    ]  # fmt: skip
    rows = [measure(client, seeder.connection, path, options.times) for path in paths]
    if options.json:
        print(json.dumps({"history": read, "fragments": rows}))
    else:
        print(f"history: {read}")
        print(f"{'fragment':62} {'median':>8} {'p95':>9} {'CPU':>9} {'cmds':>5} {'gzip':>8} {'elements':>9}  unchanged")
        for row in rows:
            over = [
                name
                for name, value, most in (
                    ("time", row["p95_ms"], BUDGET_MS), ("commands", row["commands"], BUDGET_COMMANDS),
                    ("bytes", row["gzip_bytes"], BUDGET_BYTES), ("elements", row["elements"], BUDGET_ELEMENTS),
                )
                if value > most
            ]  # fmt: skip
            times = f"{row['median_ms']:6} ms {row['p95_ms']:6} ms {row['cpu_ms']:6} ms"
            counts = f"{row['commands']:5} {row['gzip_bytes']:8} {row['elements']:9}"
            verdict = f"OVER: {', '.join(over)}" if over else ""
            print(f"{row['fragment']:62} {times} {counts}  {row['unchanged']} {verdict}")
    if options.serve:
        from waitress import serve

        print(f"http://127.0.0.1:{os.environ.get('PORT', '8763')}/", flush=True)
        serve(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8763")), threads=4)
    history.close()
    app.extensions["gristmill_board"].snapshot.close()


if __name__ == "__main__":
    main()
