"""A real scheduler that can be killed at any command, between played clients and workers.

The scheduler is the real loop on a real Redis, one turn at a time in this process, so that thousands of kills take
minutes. It keeps nothing but what lies in Redis, so ending the object and its connection is all that SIGKILL does to
it; that it is so in real processes too, `crash.processes` shows.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import hiredis

from crash.points import Mode, Point
from gristmill.errors import ConnectionLostError
from gristmill.protocol.keys import REQUEST_STREAMS, Keys
from gristmill.protocol.kinds import STREAM_OF, Request
from gristmill.protocol.states import TERMINAL
from gristmill.scheduler.loop import Loop
from gristmill.settings import SchedulerSettings
from gristmill.store.connection import Connection, ReplyError
from support.database import Database, Entry
from support.driver import FAILURE, Driver, PlayedClient, PlayedWorker
from support.invariants import violations

PATIENCE_SECONDS = 60.0
TAKEOVER_SECONDS = 0.04
SWEEP_SECONDS = 0.05
_TERMINAL = {state.value for state in TERMINAL}


class Killed(BaseException):
    """The scheduler is dead from here on."""


class BrokenLawError(AssertionError):
    """A law that did not hold."""


class CrashingConnection(Connection):
    """The scheduler's connection. At the crash point it lets exactly so much through, and raises `Killed`."""

    def __init__(self, address: str, name: str, point: Point | None) -> None:
        super().__init__(address, name=name)
        self.point = point
        self.seen = 0
        self.crashed_at = ""
        self._owed = 0
        self._dying = False

    def connect(self) -> None:
        self._owed = 0
        super().connect()

    def send(self, *commands: bytes) -> None:
        self._die_if_due()
        before, self.seen = self.seen, self.seen + len(commands)
        point = self.point
        if point is None or self.crashed_at or not before < point.number <= self.seen:
            self._owed += len(commands)
            super().send(*commands)
            return
        index = point.number - before - 1
        self.crashed_at = _name(commands[index])
        let_through = commands[: index + (point.mode is not Mode.BEFORE)]
        self._owed += len(let_through)
        if let_through:
            super().send(*let_through)
        if point.mode is Mode.AFTER:
            self._dying = True
            return
        while self._owed:
            self.read()
        if point.mode is Mode.CUT:
            self.close()
            raise ConnectionLostError("the reply was lost")
        raise Killed

    def read(self) -> Any:
        self._die_if_due()
        reply = super().read()
        self._owed -= 1
        return reply

    def _die_if_due(self) -> None:
        if self._dying and not self._owed:
            raise Killed

    def fileno(self) -> int:
        self._die_if_due()
        return super().fileno()


def _name(command: bytes) -> str:
    """The first words of a packed command."""
    reader = hiredis.Reader()
    reader.feed(command)
    words = reader.gets()
    return b" ".join(words[:2] if words[0] in (b"SCRIPT", b"XGROUP", b"SET", b"XINFO") else words[:1]).decode()


class World(Driver):
    """Everybody in one namespace. `request` returns when the living scheduler has applied it."""

    def __init__(self, database: Database, point: Point | None = None) -> None:
        self.database = database
        self.keys = Keys(f"crash-{secrets.token_hex(4)}")
        self.words = []
        self.clients: list[PlayedClient] = []
        self.workers: list[PlayedWorker] = []
        self.held: dict[str, dict[tuple[str, str], Entry]] = {}
        self.answers: dict[int, str] = {}
        """What becomes of the task with this number; `success` without one. `retry`: fails once, then succeeds."""
        self.reported: set[str] = set()
        """Tasks whose final outcome a worker has sent, and Redis has taken."""
        self.answered: set[tuple[str, int]] = set()
        # Redis looks that often whether a blocked read is over: ten times a second would be most of a run.
        self.database.run("CONFIG", "SET", "hz", 500)
        settings = SchedulerSettings(redis=database.address, namespace=self.keys.namespace)
        self._settings = settings.model_copy(
            update={"takeover_seconds": TAKEOVER_SECONDS, "sweep_seconds": SWEEP_SECONDS}
        )
        self.first = self._start(point)
        self.loop = self._loop

    # --- the scheduler --------------------------------------------------------------------------------------

    def _start(self, point: Point | None) -> CrashingConnection:
        self._loop = Loop(self._settings)
        connection = CrashingConnection(self.database.address, "crashing-scheduler", point)
        self._loop.replica.connection = connection
        # The scenario waits for each turn: a read need not block until the next duty.
        self._loop._milliseconds_to_next_duty = lambda: 1  # type: ignore[method-assign]
        return connection

    @property
    def commands(self) -> int:
        """How many commands the first scheduler has sent."""
        return self.first.seen

    def turn(self) -> None:
        """One turn of the living scheduler; one that is killed in it is replaced."""
        loop = self._loop
        connection = loop.replica.connection
        try:
            if not connection.connected:
                loop._connect()
            loop._turn()
        except (ConnectionLostError, ReplyError):
            # As the loop itself does when it has lost Redis.
            connection.close()
            loop._todo, loop._aside = {}, []
        except Killed:
            self._bury()
            self._start(None)

    def _bury(self) -> None:
        self._loop.replica.connection.close()
        os.close(self._loop._woken)
        os.close(self._loop._wake)

    def close(self) -> None:
        self._bury()
        for key in self.database.keys(self.keys.prefix):
            self.database.run("UNLINK", key)
        self.database.run("CONFIG", "SET", "hz", 10)

    def until(self, condition: Callable[[], object], description: str) -> None:
        """Turns until something is true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise BrokenLawError(f"never came true: {description}")
            self.turn()

    def request(self, kind: Request | str, body: dict[str, Any] | bytes, stream: str = "") -> str:
        name = stream or STREAM_OF[Request(kind)]
        sent = self.send(kind, body, name)
        key = getattr(self.keys, name)()
        self.until(lambda: not self.database.run("XRANGE", key, sent, sent), f"the request {kind} is applied")
        return "applied"

    def waiting(self) -> int:
        """Requests that nobody has applied."""
        return sum(self.database.length(getattr(self.keys, name)()) for name in REQUEST_STREAMS)

    def settle(self) -> list[tuple[str, str]]:
        self.until(lambda: not self.waiting(), "all requests are applied")
        return []

    # --- the others -----------------------------------------------------------------------------------------

    def client(self, **changes: Any) -> PlayedClient:
        client = super().client(**changes)
        self.clients.append(client)
        return client

    def worker(self, processors: int = 1, **changes: Any) -> PlayedWorker:
        # Its beats are few: the lease must not end before the scenario does, however slow the machine.
        worker = super().worker(processors, **{"lease_ms": 600_000, **changes})
        self.workers.append(worker)
        self.held[worker.id] = {}
        return worker

    def take(self, worker: PlayedWorker, count: int) -> None:
        """A processor of the worker reads exactly so many tasks."""
        self.until(lambda: len(worker.queue()) >= count, f"{count} tasks lie in the stream of {worker.id}")
        self._read(worker, count)

    def _read(self, worker: PlayedWorker, count: int) -> None:
        for entry in worker.read(count):
            task = entry.fields["task"]
            if task in self.reported:
                raise BrokenLawError(f"{task} is given to a worker again, although its outcome has reached Redis")
            self.held[worker.id][task, entry.fields["attempt"]] = entry

    def lose(self, worker: PlayedWorker) -> None:
        """It is gone, and its lease ends."""
        self.workers.remove(worker)
        self.database.run("ZADD", self.keys.workers(), "XX", -1, worker.id)
        self.until(lambda: "gone" in worker.record() and not worker.queue(), "what the lost worker held moves on")

    def abandon(self, client: PlayedClient) -> None:
        """It is gone, and its lease ends."""
        self.clients.remove(client)
        self.database.run("ZADD", self.keys.clients(), "XX", -1, client.id)
        self.until(lambda: "ended" in client.record(), "the lost client is ended")

    def serve(self) -> None:
        """Each worker answers what it was asked, and finishes what it holds or can read."""
        for worker in list(self.workers):
            for kind in ("cancel", "give_back"):
                for asked in worker.asked(kind):
                    self._answer(worker, asked)
            self._read(worker, 10)
            for task, attempt in list(self.held[worker.id]):
                self._finish(worker, task, attempt)

    def _answer(self, worker: PlayedWorker, asked: dict[str, Any]) -> None:
        if (worker.id, asked["request"], asked["task"]) in self.answered:  # type: ignore[comparison-overlap]
            return
        self.answered.add((worker.id, asked["request"], asked["task"]))  # type: ignore[arg-type]
        held = self.held[worker.id].pop((asked["task"], str(asked["attempt"])), None)
        answer = "canceled" if held else "failed"
        worker.confirm(asked["task"], answer, request=asked["request"], attempt=asked["attempt"])

    def _finish(self, worker: PlayedWorker, task: str, attempt: str) -> None:
        del self.held[worker.id][task, attempt]
        answer = self.answers.get(int(task.rpartition(".")[2]), "success")
        if answer == "retry" and int(attempt) > 1:
            answer = "success"
        row = worker.row(task, answer, attempt=int(attempt))
        if answer != "success":
            row[3] = FAILURE
        worker.send_outcomes(row)
        if answer != "retry":
            self.reported.add(task)

    # --- the checker ----------------------------------------------------------------------------------------

    def work_off(self, expected: dict[PlayedClient, dict[int, str]]) -> None:
        """Serve until every client knows what became of its tasks; then judge everything."""

        def all_told() -> bool:
            self.serve()
            told = all(len(client.outcomes()) >= len(states) for client, states in expected.items())
            return told and not self.waiting()

        self.until(all_told, "every client is told what became of its tasks")
        for _ in range(3):
            self.serve()
            self.turn()
        self.settle()
        self._judge(expected)

    def _judge(self, expected: dict[PlayedClient, dict[int, str]]) -> None:
        for client, states in expected.items():
            told = Counter((outcome.number, outcome.state) for outcome in client.outcomes())
            if told != Counter(states.items()):
                raise BrokenLawError(f"a client was told {sorted(told.elements())}; expected {sorted(states.items())}")
        ends = Counter(row[0] for row in self.events() if row[1] in _TERMINAL)
        often = {task: count for task, count in ends.items() if count > 1}
        if often:
            raise BrokenLawError(f"tasks that ended more than once: {often}")
        for _ in range(5):
            # A lease may end between two looks: that passes, what is wrong stays.
            found = violations(self.database, self.keys)
            if not found:
                return
        raise BrokenLawError("invariants that do not hold:\n  " + "\n  ".join(found))
