"""The process pool that we compare with: `python -m gristmill.bench.pool WORKERS`, driven by lines of JSON.

It runs in a process of its own, because a pool that forks must not do so beside a client's threads, and it gets what
one would give it: one pool that stays, warmed up, with the platform's own way of starting processes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Any

from gristmill.bench.clock import WrongValueError, map_all, round_trips, submit_loop
from gristmill.bench.tasks import noop
from gristmill.bench.workloads import payloads, shared_argument, spin_tasks
from gristmill.errors import GristmillError

WARM_UP_TASKS = 500
WORKLOADS = {"spin": spin_tasks, "payloads": payloads, "shared": shared_argument}


class PoolProcess:
    """The other process, as the benchmark sees it: one call is one workload."""

    def __init__(self, workers: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gristmill.bench.pool", str(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,  # Ctrl-C is for us: its processes would answer with tracebacks
        )

    def __enter__(self) -> PoolProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            # Whatever it is at work on, nobody waits for it any more.
            os.killpg(self._process.pid, signal.SIGKILL)
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def submit(self, tasks: int) -> float:
        """Seconds for `tasks` no-ops by submit, then gather."""
        return float(self._ask("submit", tasks))

    def map(self, items: int) -> float:
        """Seconds for `items` no-ops by map, in the chunks that suit a pool."""
        return float(self._ask("map", items))

    def latency(self, rounds: int) -> list[float]:
        """Milliseconds of each of `rounds` single no-ops."""
        return [float(value) for value in self._ask("latency", rounds)]

    def workload(self, name: str) -> float:
        """Seconds of one of `WORKLOADS`."""
        return float(self._ask(name, 0))

    def close(self) -> None:
        """End the pool and wait for it; end of input is its signal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, workload: str, count: int) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{json.dumps([workload, count])}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise GristmillError("the process pool that is compared with has ended by itself")
        answer = json.loads(line)
        if "wrong" in answer:
            raise WrongValueError(f"process pool: {answer['wrong']}")
        return answer["measured"]


def chunk_size(items: int, workers: int) -> int:
    """What `multiprocessing.Pool.map` would choose; the executor's own default of 1 would make map a submit loop."""
    return max(1, -(-items // (workers * 4)))


def main(workers: int) -> None:
    """Answer one line with one line until the input ends."""
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(noop, range(WARM_UP_TASKS)))
        for line in sys.stdin:
            workload, count = json.loads(line)
            measured: float | list[float]
            try:
                if workload == "submit":
                    measured = submit_loop(pool.submit, count)
                elif workload == "map":
                    measured = map_all(functools.partial(pool.map, chunksize=chunk_size(count, workers)), count)
                elif workload == "latency":
                    measured = round_trips(pool.submit, count)
                else:
                    measured = WORKLOADS[workload](pool.submit)
            except WrongValueError as error:
                print(json.dumps({"wrong": str(error)}), flush=True)
            else:
                print(json.dumps({"measured": measured}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
