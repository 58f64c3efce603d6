"""A worker process, and what schedulers do for it, done by hand: its record, its streams, its tasks.

So tests of the worker depend on nothing but Redis, and see everything that it says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import orjson
import psutil
import redis

from gristmill.owner import OWNER_VARIABLE, Lifeline
from gristmill.protocol.keys import GROUP_PROCESSORS, Keys
from gristmill.protocol.payloads import bytes_of, dump_call, load_failure, text_of
from support.database import ANSWER_SECONDS, Database, Pending
from support.temporary import alive
from support.waiting import wait_until

TESTS = Path(__file__).resolve().parent.parent


class Row(NamedTuple):
    """One outcome (`messages.OUTCOME_COLUMNS`)."""

    task: str
    attempt: int
    status: str
    payload: Any
    duration_us: int
    cpu_us: int
    memory_peak_bytes: int
    error: str | None
    traceback: str | None = None

    @property
    def value(self) -> Any:
        """What the task returned."""
        assert self.status == "success", self
        return cloudpickle.loads(bytes_of(self.payload))

    @property
    def exception(self) -> Exception:
        """What the task raised."""
        assert self.status in ("failed", "retry"), self
        return load_failure(bytes_of(self.payload))


class WorkerProcess:
    """`python -m gristmill_worker` in a session of its own; what it logs is in `log`.

    A context manager: afterwards nothing of it is left. It ends with the tests, however they end.
    """

    def __init__(self, address: str, namespace: str, folder: Path, *options: str) -> None:
        self.log_path = folder / "worker.log"
        self.lifeline = Lifeline()
        paths = [str(TESTS.parent / root) for root in ("broker", "worker")] + [str(TESTS), str(folder)]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gristmill_worker", "--log-level", "debug", *options],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GRISTMILL_REDIS": address,
                     "GRISTMILL_NAMESPACE": namespace, OWNER_VARIABLE: str(self.lifeline.descriptor)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True,
                pass_fds=(self.lifeline.descriptor,),
            )  # fmt: skip
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def processors(self) -> list[psutil.Process]:
        """Its living processors."""
        try:
            children = psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return []
        return [child for child in children if alive(child.pid)]

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def exit_code(self, timeout: float = 60.0) -> int:
        """Wait for its end."""
        wait_until(lambda: self.process.poll() is not None, f"the worker ends; its log is\n{self.log}", timeout)
        assert self.process.returncode is not None
        return self.process.returncode

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.lifeline.cut()


class ByHand:
    """The scheduler's part."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self.database = database
        self.keys = keys
        self.worker = ""
        self._registered: set[str] = set()
        self._redis = redis.Redis.from_url(database.address, protocol=2, socket_timeout=ANSWER_SECONDS)
        self._number = 0
        self._functions: dict[bytes, str] = {}
        self._requests = 0
        self._entries: dict[str, str] = {}

    def register(self, worker_process: WorkerProcess | None = None) -> str:
        """Wait for a registration that was not yet answered, and answer it; the worker's id."""
        log = worker_process.log if worker_process is not None else ""
        message = wait_until(self._next_registration, f"a worker registers; its log is\n{log}")
        self.worker = str(message["worker"])
        self._registered.add(self.worker)
        tasks = self.keys.worker_tasks(self.worker)
        self.database.run("XGROUP", "CREATE", tasks, GROUP_PROCESSORS, "0", "MKSTREAM")
        self.database.run("HSET", self.keys.worker(self.worker), "lease_ms", message["lease_ms"])
        self.control("registered", {})
        return self.worker

    def _next_registration(self) -> dict[str, Any] | None:
        # One that waits for long for its answer asks again, perhaps while that is on its way.
        found = self.said(self.keys.heartbeats(), "worker")
        return next((body for body in reversed(found) if body["worker"] not in self._registered), None)

    def said(self, stream: str, kind: str) -> list[dict[str, Any]]:
        """Bodies of all messages of this kind."""
        return [orjson.loads(entry.fields[kind]) for entry in self.database.stream(stream) if kind in entry.fields]

    def control(self, kind: str, body: dict[str, Any]) -> None:
        self.database.run("XADD", self.keys.worker_control(self.worker), "*", kind, orjson.dumps(body))

    def settle(self) -> None:
        """Answer what the worker says when another server has come: from then on its processors read."""
        (message, *_) = wait_until(
            lambda: self.said(self.keys.results(), "held")[::-1], "the worker says what it holds"
        )
        self.control("settled", {"number": message["number"]})

    def function(self, function: Callable[..., Any]) -> str:
        """The object that holds the function."""
        data = cloudpickle.dumps(function)
        if data not in self._functions:
            self._functions[data] = f"AbCdEfGhIj.f{len(self._functions)}-1"
        self.database.run("SET", self.keys.object(self._functions[data]), data)
        return self._functions[data]

    def assign(
        self, function: Callable[..., Any], *args: Any, extra: dict[str, str] | None = None, attempt: int = 1
    ) -> str:
        """Give the worker a task; its id."""
        task, command = self._entry(function, args, extra or {}, attempt)
        self._entries[task] = self.database.run(*command).decode()
        return task

    def assign_together(self, calls: list[tuple[Any, ...]]) -> list[str]:
        """Give it tasks (function and arguments) in one step, so that one read may get them all; their ids."""
        entries = [self._entry(function, args, {}, 1) for function, *args in calls]
        pipeline = self._redis.pipeline(transaction=True)
        for _, command in entries:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        given = [task for task, _ in entries]
        self._entries.update(zip(given, (entry.decode() for entry in pipeline.execute()), strict=True))
        return given

    def assign_to_frozen(self, processor: psutil.Process, calls: list[tuple[Any, ...]]) -> list[str]:
        """Freeze the worker's one processor, and have Redis hand it tasks in one step; their ids. It stays frozen."""

        def handed_out() -> list[str]:
            processor.suspend()
            wait_until(lambda: processor.status() == psutil.STATUS_STOPPED, "the processor is frozen")
            given = self.assign_together(calls)
            # Redis hands them out before it answers; not when the processor does not wait for tasks at this moment.
            delivered = self.delivered(given)
            if delivered == given:
                return given
            unread = [self._entries[task] for task in given if task not in delivered]
            self.database.run("XDEL", self.keys.worker_tasks(self.worker), *unread)
            processor.resume()
            if delivered:
                self.wait_ended(delivered)
                self.warm_up()
            return []

        return wait_until(handed_out, "Redis has handed the tasks to a frozen processor")

    def warm_up(self) -> None:
        """Have the worker's processor learn that tasks are short, so that it prefetches a hundred."""

        def nothing() -> None:
            pass

        for number in range(50):  # on a busy machine some are held up, and then they do not look short
            given = self.assign_together([(nothing,)] * 150)
            self.wait_ended(given)
            if number >= 7 and self._were_short(given):
                return

    def _were_short(self, tasks: list[str]) -> bool:
        """Whether a hundred of them came together, and none of the last ones, which count most, was held up."""
        given, last = set(tasks), set(tasks[-20:])
        batches = [body["outcomes"] for body in self.said(self.keys.results(), "outcomes")]
        if max(sum(row[0] in given for row in batch) for batch in batches) < 100:
            return False
        durations = [row.duration_us for row in self.rows() if row.task in last]
        return len(durations) >= len(last) and max(durations) < 500

    def _entry(
        self, function: Callable[..., Any], args: Any, extra: dict[str, str], attempt: int
    ) -> tuple[str, tuple[Any, ...]]:
        self._number += 1
        task = f"AbCdEfGhIj.{self._number:07d}"
        call = "-" if "object" in extra else text_of(dump_call(tuple(args), {}))
        name = getattr(function, "__name__", "function")
        fields = {"task": f"{task} {attempt} {call} {self.function(function)} {name}", **extra}
        flat = [word for pair in fields.items() for word in pair]
        return task, ("XADD", self.keys.worker_tasks(self.worker), "*", *flat)

    def request(self, kind: str, task: str, attempt: int = 1) -> int:
        """Ask for a cancel or give_back; the request's number."""
        self._requests += 1
        self.control(kind, {"task": task, "attempt": attempt, "request": self._requests})
        return self._requests

    def rows(self) -> list[Row]:
        """Every outcome so far."""
        return [Row(*row) for body in self.said(self.keys.results(), "outcomes") for row in body["outcomes"]]

    def outcome(self, task: str, timeout: float = 60.0) -> Row:
        """Wait for the task's outcome."""
        return wait_until(
            lambda: next((row for row in self.rows() if row.task == task), None), f"{task} has an outcome", timeout
        )

    def outcomes(self, tasks: list[str], timeout: float = 60.0) -> dict[str, Row]:
        """Wait until all of them have an outcome."""
        wait_until(lambda: set(tasks) <= {row.task for row in self.rows()}, "all tasks have outcomes", timeout)
        return {row.task: row for row in self.rows()}

    def wait_ended(self, tasks: list[str]) -> None:
        """Wait until each has an outcome or is given back: behind one that takes long on a busy machine, others are."""
        wait_until(
            lambda: set(tasks) <= {row.task for row in self.rows()}.union(self.returned()),
            "all tasks have outcomes or are given back",
        )

    def returned(self) -> list[str]:
        """Every task that was given back so far."""
        return [task for body in self.said(self.keys.results(), "returned") for task, _ in body["tasks"]]

    def answer(self, request: int, timeout: float = 60.0) -> str:
        """Wait for the answer to a request."""

        def find() -> str | None:
            for body in self.said(self.keys.results(), "confirms"):
                for confirm in body["confirms"]:
                    if confirm["request"] == request:
                        return str(confirm["answer"])
            return None

        return wait_until(find, f"request {request} is answered", timeout)

    def beats(self) -> list[dict[str, Any]]:
        return [beat for beat in self.said(self.keys.heartbeats(), "beat") if beat["worker"] == self.worker]

    def wait_ready(self, count: int, timeout: float = 60.0) -> None:
        """Wait for a beat that says so many processors are ready."""

        def ready() -> bool:
            beats = self.beats()
            return bool(beats) and beats[-1]["processors_ready"] == count

        wait_until(ready, f"{count} processors are ready", timeout)

    def pending(self) -> list[Pending]:
        return self.database.pending(self.keys.worker_tasks(self.worker), GROUP_PROCESSORS)

    def delivered(self, tasks: list[str]) -> list[str]:
        """Those of these tasks that Redis has handed to a processor."""
        read = {pending.id for pending in self.pending()}
        return [task for task in tasks if self._entries[task] in read]

    def close(self) -> None:
        self._redis.close()

    def left(self) -> bool:
        return any(body["worker"] == self.worker for body in self.said(self.keys.heartbeats(), "leave"))
