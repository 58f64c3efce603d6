"""How the client's own program is doing: what its beats say."""

from __future__ import annotations

import time


class Figures:
    """Of the process that has the client."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._cpu = time.process_time()
        self.latency_seconds = 0.0
        """How long Redis took to answer the last write that the I/O thread has waited for."""

    def take(self) -> dict[str, float]:
        """CPU in percent of one core since the last call, resident bytes, and the latency in ms."""
        import psutil  # here: most programs are done before their first beat

        now, cpu = time.monotonic(), time.process_time()
        percent = 100 * (cpu - self._cpu) / max(now - self._at, 1e-3)
        self._at, self._cpu = now, cpu
        return {
            "cpu_percent": round(percent, 1),
            "rss_bytes": psutil.Process().memory_info().rss,
            "latency_ms": round(self.latency_seconds * 1000, 2),
        }
