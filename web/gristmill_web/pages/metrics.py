"""/metrics: the text format of Prometheus, with labels whose number is bounded: no task, worker or client is one."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator

from flask import Blueprint, Response, current_app

from gristmill._version import __version__
from gristmill.protocol.states import TERMINAL
from gristmill.snapshot import Fleet, Pulse
from gristmill_web.frame import board
from gristmill_web.histograms import Durations, Histogram
from gristmill_web.history import History
from gristmill_web.memory import Memory

page = Blueprint("metrics", __name__)

LANES_SHOWN = 20
"""Of more lanes with tasks that wait, the fullest; a lane is one requirement, not one task."""
WORKER_STATES = ("live", "paused", "alone", "draining", "stale")
ENDED = tuple(sorted(state.value for state in TERMINAL))

Sample = tuple[dict[str, str], float]


@page.get("/metrics")
def metrics() -> Response:
    """Everything; `gristmill_redis_up` alone says so when Redis is away."""
    memory: Memory = current_app.extensions["gristmill_memory"]
    history: History = current_app.extensions["gristmill_history"]
    durations: Durations = current_app.extensions["gristmill_durations"]
    history.start()
    pulse, fleet = memory.pulse(board()), memory.fleet(board())
    up = not pulse.problem and pulse.value is not None
    lines = [*_family("redis_up", "gauge", "Whether Redis serves the namespace.", [({}, float(up))])]
    info = {"version": __version__, "python": platform.python_version()}
    lines += _family("build_info", "gauge", "What runs here.", [(info, 1)])
    lines += _histogram("task_wait_seconds", "From submit to the first assignment, of attempts ended.", durations.waits)
    lines += _histogram("task_run_seconds", "How long attempts ran.", durations.runs)
    if up and pulse.value:
        lines += _of_pulse(pulse.value[0])
        if fleet.value:
            lines += _of_fleet(fleet.value)
    text = "\n".join(lines) + "\n"
    return Response(text, content_type="text/plain; version=0.0.4; charset=utf-8")


def _of_pulse(pulse: Pulse) -> Iterator[str]:
    counts, redis = pulse.counts, pulse.redis
    active = [({"state": state}, float(count)) for state, count in counts.states.items() if state not in ENDED]
    yield from _family("tasks", "gauge", "Tasks that have not ended.", active)
    ended = [({"state": state}, float(counts.states[state])) for state in ENDED]
    yield from _family("tasks_ended_total", "counter", "Tasks that have reached a terminal state.", ended)
    applied = [({"kind": kind}, float(count)) for kind, count in counts.requests.items()]
    yield from _family("requests_applied_total", "counter", "Requests that schedulers have applied.", applied)
    refused = [({"state": key.partition(":")[0], "event": key.partition(":")[2]}, float(count))
               for key, count in counts.refused.items()]  # fmt: skip
    yield from _family("transitions_refused_total", "counter", "What the state table has refused.", refused)
    repaired = [({"what": what}, float(count)) for what, count in counts.repaired.items()]
    yield from _family("repaired_total", "counter", "What housekeeping has found and put right.", repaired)
    backlog = [({"stream": name}, float(waiting)) for name, waiting in pulse.backlog.items()]
    yield from _family("requests_waiting", "gauge", "Requests that wait to be applied.", backlog)
    yield from _one("changes_total", "counter", "Changes of tasks, ever.", counts.changes)
    yield from _one("delayed_tasks", "gauge", "Tasks that failed and wait for their next attempt.", pulse.delayed)
    yield from _one("quarantined_requests", "gauge", "Requests that nobody could understand.", pulse.quarantined)
    yield from _one("clients", "gauge", "Clients that are connected.", pulse.clients)
    yield from _one("intake_open", "gauge", "Whether new tasks are taken.", pulse.intake.open)
    yield from _one("redis_memory_bytes", "gauge", "Memory that Redis uses.", redis.used_memory_bytes)
    yield from _one("redis_memory_max_bytes", "gauge", "maxmemory of Redis; 0 is no limit.", redis.max_memory_bytes)
    yield from _one("redis_persistence_ok", "gauge", "Whether Redis could write to disk.", not redis.persistence_error)
    if redis.eviction_policy:
        keeps = redis.eviction_policy == "noeviction"
        yield from _one("redis_noeviction", "gauge", "Whether Redis keeps what it holds.", keeps)


def _of_fleet(fleet: Fleet) -> Iterator[str]:
    states = Counter(worker.state for worker in fleet.workers)
    yield from _family("workers", "gauge", "Workers.", [({"state": state}, states[state]) for state in WORKER_STATES])
    yield from _one("processors_ready", "gauge", "Processors that take tasks.",
                    sum(worker.processors_ready for worker in fleet.workers))  # fmt: skip
    executing = sum(len(worker.executing) for worker in fleet.workers)
    yield from _one("processors_busy", "gauge", "Processors with a task.", executing)
    assigned = [
        ({"place": "queued"}, float(sum(worker.queued for worker in fleet.workers))),
        ({"place": "held"}, float(sum(worker.held for worker in fleet.workers))),
        ({"place": "suspended"}, float(sum(worker.suspended for worker in fleet.workers))),
    ]
    yield from _family("tasks_assigned", "gauge", "Tasks at workers.", assigned)
    yield from _one("workers_rss_bytes", "gauge", "Resident memory of all workers.",
                    sum(worker.rss_bytes for worker in fleet.workers))  # fmt: skip
    yield from _one("workers_cpu_cores", "gauge", "Cores that all workers use.",
                    sum(worker.cpu_percent for worker in fleet.workers) / 100)  # fmt: skip
    oldest = fleet.oldest_waiting
    yield from _one("oldest_waiting_seconds", "gauge", "How long the task at the head of a lane has waited.",
                    max(0, fleet.now - oldest) / 1000 if oldest else 0)  # fmt: skip
    lanes = fleet.lanes[:LANES_SHOWN]
    yield from _family(
        "lane_waiting", "gauge", "Tasks that wait in a lane.", [({"lane": one.lane}, one.waiting) for one in lanes]
    )
    yield from _family("lane_workers", "gauge", "Workers that take tasks of a lane in which some wait.",
                       [({"lane": one.lane}, one.workers) for one in lanes])  # fmt: skip
    yield from _one("dispatch_paused", "gauge", "Whether a person has paused dispatch.", fleet.paused)
    live = [scheduler for scheduler in fleet.schedulers if scheduler.live]
    yield from _one("schedulers", "gauge", "Scheduler replicas that are heard.", len(live))
    yield from _one("scheduler_loop_lag_seconds", "gauge", "How late duties begin, at the latest replica.",
                    max((scheduler.loop_lag_ms for scheduler in live), default=0) / 1000)  # fmt: skip
    yield from _one("scheduler_requests_per_second", "gauge", "Requests applied, by all replicas.",
                    sum(scheduler.requests_per_s for scheduler in live))  # fmt: skip


def _one(name: str, kind: str, help_text: str, value: float | None) -> Iterator[str]:
    if value is not None:
        yield from _family(name, kind, help_text, [({}, float(value))])


def _family(name: str, kind: str, help_text: str, samples: list[Sample]) -> Iterator[str]:
    yield f"# HELP gristmill_{name} {help_text}"
    yield f"# TYPE gristmill_{name} {kind}"
    for labels, value in samples:
        yield f"gristmill_{name}{_labels(labels)} {value:.15g}"


def _histogram(name: str, help_text: str, histogram: Histogram) -> Iterator[str]:
    rows, total, count = histogram.read()
    yield f"# HELP gristmill_{name} {help_text}"
    yield f"# TYPE gristmill_{name} histogram"
    for bound, so_far in rows:
        yield f'gristmill_{name}_bucket{{le="{bound}"}} {so_far}'
    yield f"gristmill_{name}_sum {total:.15g}"
    yield f"gristmill_{name}_count {count}"


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
