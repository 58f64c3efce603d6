"""Machines: the workers of the fleet, grouped by the host on which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gristmill.snapshot.fleet import natural
from gristmill.snapshot.records import Worker


@dataclass(frozen=True)
class Machine:
    """One host, as the worker on it that was heard last describes it; times in ms, sizes in bytes."""

    host: str
    workers: int
    busy: int
    """Workers of which a processor has a task."""
    processors: int
    cpu_percent: float
    memory_percent: float
    memory_free_bytes: int
    memory_used_bytes: int
    sent_bytes_per_s: int
    received_bytes_per_s: int
    queued: int
    outstanding: int
    free: int
    seen: int

    @property
    def idle(self) -> int:
        """Workers without a task."""
        return self.workers - self.busy


MACHINE_SORTS: dict[str, Callable[[Machine], Any]] = {
    "host": lambda machine: natural(machine.host),
    "workers": lambda machine: machine.workers,
    "busy": lambda machine: machine.busy,
    "idle": lambda machine: machine.idle,
    "cpu": lambda machine: machine.cpu_percent,
    "used": lambda machine: machine.memory_used_bytes,
    "memory_free": lambda machine: machine.memory_free_bytes,
    "memory": lambda machine: machine.memory_percent,
    "queued": lambda machine: machine.queued,
    "sent": lambda machine: machine.outstanding,
    "free": lambda machine: machine.free,
    "net_out": lambda machine: machine.sent_bytes_per_s,
    "net_in": lambda machine: machine.received_bytes_per_s,
    "seen": lambda machine: machine.seen,
}


def machines_of(workers: Iterable[Worker]) -> list[Machine]:
    """The machines of these workers, by name. Pure."""
    hosts: dict[str, list[Worker]] = {}
    for worker in workers:
        hosts.setdefault(worker.host, []).append(worker)
    return [_machine(host, hosts[host]) for host in sorted(hosts, key=natural)]


def _machine(host: str, workers: list[Worker]) -> Machine:
    last = max(workers, key=lambda worker: worker.seen)
    used_share = min(last.host_memory_percent / 100, 0.9999)
    return Machine(
        host=host,
        workers=len(workers),
        busy=sum(bool(worker.executing) for worker in workers),
        processors=sum(worker.processors_ready for worker in workers),
        cpu_percent=last.host_cpu_percent,
        memory_percent=last.host_memory_percent,
        memory_free_bytes=last.host_memory_free_bytes,
        memory_used_bytes=round(last.host_memory_free_bytes / (1 - used_share) * used_share),
        sent_bytes_per_s=last.host_sent_bytes_per_s,
        received_bytes_per_s=last.host_received_bytes_per_s,
        queued=sum(worker.queued for worker in workers),
        outstanding=sum(worker.outstanding for worker in workers),
        free=sum(worker.free for worker in workers),
        seen=last.seen,
    )
