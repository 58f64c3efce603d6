"""What a plain task costs, counted instead of timed: `make bench-guard`.

Counts do not depend on the machine's mood: Redis commands and bytes on the wire, and calls of Python functions in the
client, the scheduler and the processor. The programs' own code does the work, a step at a time in this process: the
client submits and sends, the scheduler takes its turns, the processor reads, runs and answers, until all have their
values. What is counted is compared with `guard.json`; more than the tolerance above it fails, and below it says so.

    python benchmarks/guard.py              compare
    python benchmarks/guard.py --record     write guard.json anew, after a change that is meant
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from gristmill import Client
from gristmill.bench.tasks import noop
from gristmill.client.courier import BUSY, Courier
from gristmill.protocol.kinds import VERSION
from gristmill.scheduler.loop import Loop
from gristmill.settings import SchedulerSettings, WorkerSettings
from gristmill.store.connection import connect
from gristmill.store.embedded import EmbeddedRedis
from gristmill_worker import processor as processor_module
from gristmill_worker.board import FRESH_UNTIL, AgentBoard
from gristmill_worker.handover import handover
from gristmill_worker.output import Output
from gristmill_worker.processor import MOST_TASKS, Processor

RECORDED = Path(__file__).with_name("guard.json")
TASKS = 1_000
WARM_UP_TASKS = 3_000
"""So many that the worker's queue, which doubles, has grown to its size."""
PASSES = 5
TOLERANCE = 0.02
WORKER = "played|1|guard|000001"
TURN_SECONDS = 0.005
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


class Calls:
    """Counts calls of functions, those written in C too, in the blocks that it is asked to watch."""

    def __init__(self) -> None:
        self.made: dict[str, int] = {}

    @contextmanager
    def counted(self, role: str) -> Iterator[None]:
        """Count for this role, in this thread."""
        made = 0

        def watch(_: FrameType, event: str, __: Any) -> None:
            nonlocal made
            if event in ("call", "c_call"):
                made += 1

        sys.setprofile(watch)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.made[role] = self.made.get(role, 0) + made


class Stage:
    """A client, a scheduler and a processor in one process, which move when they are told to."""

    def __init__(self, address: str) -> None:
        self.store = connect(address)
        self._folder = tempfile.TemporaryDirectory(prefix="gristmill-guard-")
        self._objects = Path(self._folder.name) / "objects"
        self.loop = Loop(SchedulerSettings(redis=address))
        self.client = self._client(address)
        self.loop._run_duties = lambda: None  # type: ignore[method-assign]
        version = f"python{PYTHON}"
        facts = {"name": "guard", "host": "played", "pid": 1, "python": PYTHON, "release": "0"}
        self._ask("worker", concurrency=1, queue_size=1000, capabilities={version: -1}, lease_ms=600_000, **facts)
        self._ask("beat", processors_ready=1)
        self.schedule()
        self.processor = self._processor(address)

    def close(self) -> None:
        """Take everything down."""
        self.processor._link.close()
        self.client._session.close_connections()
        self.store.close()
        self._folder.cleanup()

    def submit(self, tasks: int) -> list[Any]:
        """Submit no-ops and send them."""
        session = self.client._session
        # Calls only queue. On a fast Redis many would send a batch each: that is not counted alike.
        session.state = BUSY
        futures = [self.client.submit(noop, number) for number in range(tasks)]
        while session.outbox.has_more or session.write is not None:
            session.courier._turn(TURN_SECONDS)
        return futures

    def schedule(self) -> None:
        """Apply what there is."""
        while True:
            self.loop._next_duty = time.monotonic() + TURN_SECONDS
            self.loop._turn()
            if not self.loop._todo:
                return

    def process(self) -> int:
        """Read once, run all of it and send the outcomes; answers how many there were."""
        processor = self.processor
        processor._count = MOST_TASKS
        entries = processor._link.exchange(processor._count, processor._tidy)
        if entries:
            processor._hold(entries)
            processor._walk(entries)
        processor._link.flush()
        return len(entries)

    def receive(self, futures: list[Any]) -> None:
        """Read outcomes until all are done."""
        courier = self.client._session.courier
        while not all(future.done() for future in futures[-1:]):
            courier._turn(TURN_SECONDS)

    def _client(self, address: str) -> Client:
        over = threading.Event()

        def schedule() -> None:
            while not over.is_set():
                self.loop._turn()

        self.loop._connect()
        scheduler = threading.Thread(target=schedule)
        scheduler.start()
        start, Courier.start = Courier.start, lambda self: None  # type: ignore[method-assign]
        try:
            client = Client(address)
        finally:
            Courier.start = start  # type: ignore[method-assign]
            over.set()
            scheduler.join()
        return client

    def _processor(self, address: str) -> Processor:
        agent = AgentBoard()
        agent.words[FRESH_UNTIL] = 1 << 62
        self._agent = agent
        facts = handover(WORKER, "played", address, WorkerSettings(redis=address), self._objects)
        read, write = os.pipe()
        os.set_blocking(write, False)
        standard = sys.stdin, sys.stdout, sys.stderr
        output = Output(os.open(os.devnull, os.O_RDWR))
        output.install()
        sys.stdin, sys.stdout, sys.stderr = standard
        output.end = lambda: None  # type: ignore[method-assign]
        # Queue and prefetch follow the measured durations: each task takes a microsecond here.
        processor_module.clock_ns = itertools.count(0, 1000).__next__  # type: ignore[attr-defined]
        made = facts._replace(processor="p1", board=os.dup(agent.descriptor), wake=write, bell=read)
        processor = Processor(made, output)
        processor._link.connect()
        return processor

    def _ask(self, kind: str, **fields: Any) -> None:
        body = json.dumps({"version": VERSION, "worker": WORKER, **fields})
        self.store.xadd(self.loop.replica.keys.heartbeats(), {kind: body})


def pass_through(stage: Stage, tasks: int, counted: Callable[[str], Any]) -> None:
    """So many tasks from submit to value."""
    with counted("client"):
        futures = stage.submit(tasks)
    with counted("scheduler"):
        stage.schedule()
    while True:
        with counted("processor"):
            found = stage.process()
        if not found:
            break
        with counted("scheduler"):
            stage.schedule()
    with counted("client"):
        stage.receive(futures)
    if [future.result() for future in futures] != list(range(tasks)):
        raise SystemExit("bench-guard: a task gave a wrong value")


def count() -> dict[str, float]:
    """What a plain task costs, by kind of cost: the least of some passes, for a turn may find nothing to do."""
    with EmbeddedRedis() as redis:
        stage = Stage(redis.address)
        try:
            pass_through(stage, WARM_UP_TASKS, Calls().counted)
            passes = [count_pass(stage) for _ in range(PASSES)]
        finally:
            stage.close()
    return {name: round(min(found[name] for found in passes), 3) for name in passes[0]}


def count_pass(stage: Stage) -> dict[str, float]:
    """One pass."""
    calls = Calls()
    before = stage.store.info("all")
    pass_through(stage, TASKS, calls.counted)
    after = stage.store.info("all")
    commands = sum(
        after[name]["calls"] - before.get(name, {"calls": 0})["calls"] for name in after if name.startswith("cmdstat_")
    )
    wire = sum(after[name] - before[name] for name in ("total_net_input_bytes", "total_net_output_bytes"))
    found = {"redis_commands": commands / TASKS, "wire_bytes": wire / TASKS}
    return found | {f"{role}_calls": number / TASKS for role, number in calls.made.items()}


def main(arguments: list[str]) -> int:
    """Compare, or record."""
    found = count()
    recorded: dict[str, dict[str, float]] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if arguments == ["--record"]:
        RECORDED.write_text(json.dumps({**recorded, PYTHON: found}, indent=2, sort_keys=True) + "\n")
        print(f"bench-guard: recorded for Python {PYTHON}: {found}")
        return 0
    if PYTHON not in recorded:
        print(f"bench-guard: nothing is recorded for Python {PYTHON}; found {found}")
        return 0
    worse = 0
    for name, value in found.items():
        before = recorded[PYTHON][name]
        change = value / before - 1
        verdict = "as recorded"
        if change > TOLERANCE:
            verdict, worse = "MORE than recorded", worse + 1
        elif change < -TOLERANCE:
            verdict = "less than recorded: record it anew"
        print(f"bench-guard: {name:18} {value:10.2f} a task, recorded {before:10.2f} ({change:+.1%}): {verdict}")
    if worse:
        print("bench-guard: a plain task costs more than before; mend it, or say why in the commit and record it anew")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
