"""Intervals as Chrome trace events, for Perfetto and chrome://tracing; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gristmill_web.charts.timeline import lanes_of
from gristmill_web.history.spans import Span

MOST_LANES = 64
COLOURS = {"success": "good", "failed": "terrible", "canceled": "black", "running": "yellow"}


def trace_events(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """A process a worker, a thread for what overlaps; times in microseconds, as the format wants."""
    by_worker: dict[str, list[Span]] = {}
    for span in spans:
        by_worker.setdefault(span.worker, []).append(span)
    events: list[dict[str, Any]] = []
    for process, worker in enumerate(sorted(by_worker), start=1):
        own: Sequence[Span] = sorted(by_worker[worker], key=lambda span: span.start)
        events.append({"ph": "M", "pid": process, "name": "process_name", "args": {"name": worker}})
        for span, lane in zip(own, lanes_of(own, MOST_LANES), strict=True):
            events.append(
                {
                    "ph": "X",
                    "pid": process,
                    "tid": lane + 1,
                    "name": span.kind.function or "task",
                    "cat": span.kind.state,
                    "cname": COLOURS[span.kind.state],
                    "ts": span.start * 1000,
                    "dur": max(1, span.end - span.start) * 1000,
                    "args": {
                        "task": span.task, "state": span.kind.state, "attempts": span.attempts,
                        "busy_ms": round(span.busy_ms, 3), "lane": span.kind.lane,
                    },
                }
            )  # fmt: skip
    return events
