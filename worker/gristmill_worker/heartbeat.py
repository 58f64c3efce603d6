"""What a worker measures of itself, its processors and its machine, and the beat that says so."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

import psutil

from gristmill.protocol.messages import BeatMessage, ProcessorFigures
from gristmill_worker.board import DONE, READY, STATUS, clock_ns
from gristmill_worker.processors import Processor
from gristmill_worker.suspension import Suspension


def interval_seconds(lease_seconds: float) -> float:
    """How often a worker beats: a fifth of its lease, at least every two seconds."""
    return min(lease_seconds / 5, 2.0)


class Heartbeat:
    """Keeps what psutil needs between two measurements."""

    def __init__(self) -> None:
        self._agent = psutil.Process()
        self._agent.cpu_percent()
        psutil.cpu_percent()
        self._processes: dict[int, psutil.Process] = {}
        self._counted: tuple[float, Any] | None = None
        self.latency_ms = 0.0
        """Round trip to Redis of the last beat."""

    def message(self, worker: str, processors: list[Processor], suspension: Suspension, *, taking: bool) -> BeatMessage:
        """The beat; `taking` says whether processors that are ready may be given tasks."""
        suspension.look(processors)
        figures = [self._figures(processor) for processor in processors]
        self._forget_all_but({processor.pid for processor in processors})
        memory = psutil.virtual_memory()
        sent, received = self._traffic()
        with self._agent.oneshot():
            cpu, rss = self._agent.cpu_percent(), self._agent.memory_info().rss
        return BeatMessage(
            worker=worker,
            processors_ready=suspension.picture.ready if taking else 0,
            suspended=suspension.picture.suspended,
            suspensions=suspension.number,
            oldest_running_ms=max((figure.running_ms for figure in figures if not figure.waiting), default=0),
            cpu_percent=round(cpu, 1),
            rss_bytes=rss,
            host_cpu_percent=round(psutil.cpu_percent(), 1),
            host_memory_percent=round(memory.percent, 1),
            host_memory_free_bytes=memory.available,
            host_sent_bytes_per_s=sent,
            host_received_bytes_per_s=received,
            latency_ms=round(self.latency_ms, 3) if math.isfinite(self.latency_ms) else 0.0,
            processors=figures,
        )

    def _traffic(self) -> tuple[int, int]:
        """Bytes a second that the machine sent and received since the last beat; zero where that is not told."""
        now, counters = time.monotonic(), psutil.net_io_counters()
        before, self._counted = self._counted, (now, counters)
        if counters is None or before is None or before[1] is None or now - before[0] < 0.1:
            return 0, 0
        elapsed = now - before[0]
        sent, received = counters.bytes_sent - before[1].bytes_sent, counters.bytes_recv - before[1].bytes_recv
        return max(0, round(sent / elapsed)), max(0, round(received / elapsed))

    def _figures(self, processor: Processor) -> ProcessorFigures:
        words = processor.board.words
        cpu, rss = 0.0, 0
        with contextlib.suppress(psutil.Error):
            process = self._processes.get(processor.pid)
            if process is None:
                process = self._processes[processor.pid] = psutil.Process(processor.pid)
            with process.oneshot():
                cpu, rss = process.cpu_percent(), process.memory_info().rss
        task, function, running_ms = "", "", 0
        executing = processor.executing()
        if executing is not None:
            held, since = executing
            task, function = held.task, held.name
            running_ms = max(0, clock_ns() - since.started_at) // 1_000_000
        return ProcessorFigures(
            processor=processor.name,
            pid=processor.pid,
            ready=words[STATUS] == READY,
            task=task,
            function=function,
            running_ms=running_ms,
            waiting=processor.waiting,
            parked=processor.parked,
            cpu_percent=round(cpu, 1),
            rss_bytes=rss,
            tasks_done=words[DONE],
        )

    def _forget_all_but(self, pids: set[int]) -> None:
        for pid in self._processes.keys() - pids:
            del self._processes[pid]
