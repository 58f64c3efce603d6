"""What executes now: what heartbeats say, and what was assigned since the last one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill_web.history.fleet import Presence
from gristmill_web.history.index import Index
from gristmill_web.history.spans import Kind, Span

MOST = 5000
RUNNING = "running"


def running_spans(index: Index, workers: Mapping[str, Presence], now: int) -> list[Span]:
    """A span up to now for every task that executes on these workers.

    A heartbeat names what each processor executes. Of what was assigned after it, the oldest executes as long as
    processors are free; the rest is queued.
    """
    if not workers:
        return []
    marks = ", ".join("?" * len(workers))
    rows = index.select(
        "SELECT task, worker, function, lane, assigned FROM tasks WHERE state <> 'success' "
        f"AND state IN ('running', 'canceling', 'balance_canceling') AND worker IN ({marks}) ORDER BY id LIMIT ?",
        (*workers, MOST),
    )
    assigned: dict[str, list[Any]] = {}
    for row in rows:
        assigned.setdefault(row[1], []).append(row)
    found = []
    for name, presence in workers.items():
        if presence.gone:
            continue
        worker = presence.figures
        own = {row[0]: row for row in assigned.get(name, ())}
        executing = 0
        for processor in worker.executing:
            # One that has ended since the heartbeat is in the history as such.
            if processor.task in own:
                row = own.pop(processor.task)
                executing += 1
                found.append(_span(row, worker.seen - processor.running_ms, now))
        for row in own.values():
            if executing >= worker.concurrency:
                break
            if row[4] is not None and row[4] >= worker.seen:
                executing += 1
                found.append(_span(row, row[4], now))
    return found


def _span(row: Any, start: int, now: int) -> Span:
    task, worker, function, lane, _ = row
    end = max(now, start)
    return Span(worker, Kind(RUNNING, function, lane or ""), start, end, task, busy_ms=end - start)
