"""The state machine of an installation in plain Python, without Redis and without Lua.

It is told each request that a scheduler has applied and each entry that a processor has read, and says what must lie in
Redis then: every record, every outcome that a client was told. Where the scripts have a choice (which worker gets a
task, what balance moves) the model looks which one was taken and checks that it was allowed: see `adopt`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gristmill.protocol.states import ASSIGNED, TERMINAL, Event, State, next_state

MAX_DEATHS = 3
CLAIMED = "-18446744073709551615"
"""How the entry of a task ends that a waiting task has claimed: it lies in no stream."""
STATUS_EVENTS = {
    "success": Event.RESULT_SUCCESS,
    "failed": Event.RESULT_FAILED,
    "retry": Event.RESULT_FAILED_RETRY,
    "died": Event.RESULT_WORKER_DIED,
}
CONFIRM_EVENTS = {
    "canceled": Event.CANCEL_CONFIRM_CANCELED,
    "failed": Event.CANCEL_CONFIRM_FAILED,
    "not_found": Event.CANCEL_CONFIRM_NOT_FOUND,
}


class MismatchError(AssertionError):
    """Redis and the model do not agree."""


@dataclass
class Task:
    """What the model knows about one task."""

    id: str
    lane: str
    priority: int = 0
    retries: int = 0
    delay: int = 0
    needs: list[str] = field(default_factory=list)
    state: State = State.INACTIVE
    attempt: int = 0
    deaths: int = 0
    left: int = 0
    """Dependencies that have not ended."""
    users: int = 0
    """Unfinished tasks that need its value."""
    delayed: bool = False
    worker: str = ""
    entry: str = ""
    request: int = 0

    @property
    def client(self) -> str:
        return self.id.partition(".")[0]

    @property
    def number(self) -> int:
        return int(self.id.partition(".")[2])

    @property
    def ready(self) -> bool:
        return self.state is State.INACTIVE and not self.left and not self.delayed


class Model:
    """Everything there is."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        """Those that have a record."""
        self.ended_clients: set[str] = set()
        self.told: dict[str, Counter[tuple[int, str, int]]] = {}
        """By client: (number, state, attempt) of each outcome."""
        self.missing: dict[str, set[int]] = {}
        self.readers: dict[tuple[str, str], str] = {}
        """(worker, entry) to the processor that has read it."""
        self.capabilities: dict[str, set[str]] = {}
        self.gone: set[str] = set()
        self.draining: set[str] = set()
        self.waiting: dict[str, tuple[int, set[str]]] = {}
        """By worker: the tasks of its that wait for others, and the number of the message that said so."""
        self.claiming = ""
        """The worker for which the last request was a claim."""

    # --- requests -------------------------------------------------------------------------------------------

    def apply(self, kind: str, body: dict[str, Any], word: str) -> None:
        """A scheduler has applied a request, and its script has answered this word."""
        self.claiming = body["worker"] if kind == "claim" and word == "applied" else ""
        if word in ("applied", "unknown"):
            getattr(self, f"_{kind}", lambda _: None)(body)

    def _client(self, body: dict[str, Any]) -> None:
        self.told.setdefault(body["client"], Counter())
        self.missing.setdefault(body["client"], set())

    def _worker(self, body: dict[str, Any]) -> None:
        self.capabilities.setdefault(body["worker"], set(body["capabilities"]))

    def _tasks(self, body: dict[str, Any]) -> None:
        client = body["client"]
        if client in self.ended_clients:
            return
        for number, _, _, options in body["tasks"]:
            options = options or {}
            task = Task(
                f"{client}.{number:07d}",
                options.get("lane", body["lane"]),
                options.get("priority", 0),
                options.get("retries", 0),
                options.get("retry_delay_ms", 0),
                list(dict.fromkeys(options.get("dependencies", []))),
            )
            self._enter(task)

    def _enter(self, task: Task) -> None:
        needed = [self.tasks.get(need) for need in task.needs]
        ended = [need for need in needed if need and need.state in TERMINAL and need.state is not State.SUCCESS]
        if ended:
            canceled = ended[-1].state in (State.CANCELED, State.CANCELED_NOT_FOUND)
            self._tell(task, State.CANCELED if canceled else State.FAILED)
        elif None in needed:
            self.missing[task.client].add(task.number)
        else:
            for need in needed:
                assert need is not None
                need.users += 1
                task.left += need.state is not State.SUCCESS
            self.tasks[task.id] = task

    def _outcomes(self, body: dict[str, Any]) -> None:
        for identity, attempt, status, *_ in body["outcomes"]:
            task = self._assigned(identity, body["worker"], attempt)
            if task is None:
                continue
            event = STATUS_EVENTS[status]
            if event is Event.RESULT_FAILED_RETRY and task.retries <= 0:
                event = Event.RESULT_FAILED
            to = next_state(task.state, event)
            if to is State.INACTIVE:
                task.retries -= 1
                self._requeue(task)
                task.delayed = task.delay > 0
            elif to:
                self._finish(task, to)

    def _confirms(self, body: dict[str, Any]) -> None:
        for confirm in body["confirms"]:
            task = self._assigned(confirm["task"], body["worker"], confirm["attempt"])
            if task is None or task.request != confirm["request"]:
                continue
            to = next_state(task.state, CONFIRM_EVENTS[confirm["answer"]])
            if to is State.RUNNING:
                task.state = to
            elif to:
                self._end_or_requeue(task, to)

    def _returned(self, body: dict[str, Any]) -> None:
        for identity, attempt in body["tasks"]:
            task = self._assigned(identity, body["worker"], attempt)
            to = task and next_state(task.state, Event.TASK_RETURNED)
            if task and to:
                self._end_or_requeue(task, to)

    def _cancel(self, body: dict[str, Any]) -> None:
        for identity in body["tasks"]:
            task = self.tasks.get(identity)
            if task and task.client == body["client"]:
                self._cancel_task(task)

    def _cancel_task(self, task: Task) -> None:
        to = next_state(task.state, Event.TASK_CANCEL)
        if to is State.CANCELING and not self._unread(task):
            task.state = to
            task.request += 1
        elif to:
            self._finish(task, State.CANCELED)

    def _end_client(self, body: dict[str, Any]) -> None:
        client = body["client"]
        self.ended_clients.add(client)
        for task in [task for task in self.tasks.values() if task.client == client]:
            if task.id in self.tasks:
                self._cancel_task(task)

    def _suspended(self, body: dict[str, Any]) -> None:
        number, _ = self.waiting.get(body["worker"], (0, set()))
        if body["suspensions"] >= number:
            self.waiting[body["worker"]] = (body["suspensions"], set(body["waiting"]))

    def _drain(self, body: dict[str, Any]) -> None:
        self.draining.add(body["worker"])

    _leave = _drain

    def _end_worker(self, body: dict[str, Any]) -> None:
        worker = body["worker"]
        first, lost = worker not in self.gone, body["reason"] != "left"
        self.gone.add(worker)
        oldest = self.executing(worker) if first and lost else set()
        _, waiting = self.waiting.get(worker, (0, set()))
        for task in [task for task in self.tasks.values() if task.worker == worker]:
            held = task.entry in oldest or (lost and task.entry.endswith(CLAIMED))
            charged = held and task.id not in waiting
            if task.state is State.CANCELING:
                self._finish(task, State.CANCELED)
            elif charged and task.deaths + 1 >= MAX_DEATHS:
                self._finish(task, State.FAILED_WORKER_DIED)
            else:
                task.deaths += charged
                self._requeue(task)

    def promoted(self, tasks: set[str]) -> None:
        """Retries have fallen due."""
        for identity in tasks:
            self.tasks[identity].delayed = False

    # --- what happens to a task -----------------------------------------------------------------------------

    def _assigned(self, identity: str, worker: str, attempt: int) -> Task | None:
        task = self.tasks.get(identity)
        held = task and task.state in ASSIGNED and task.worker == worker and task.attempt == attempt
        return task if held else None

    def _unread(self, task: Task) -> bool:
        """Whether no processor has got it yet."""
        return (task.worker, task.entry) not in self.readers and not task.entry.endswith(CLAIMED)

    def _release(self, task: Task) -> None:
        self.readers.pop((task.worker, task.entry), None)
        task.worker, task.entry, task.request = "", "", 0

    def _requeue(self, task: Task) -> None:
        self._release(task)
        task.state = State.INACTIVE

    def _end_or_requeue(self, task: Task, to: State) -> None:
        if to is State.INACTIVE:
            self._requeue(task)
        else:
            self._finish(task, to)

    def _tell(self, task: Task, to: State) -> None:
        if task.client not in self.ended_clients:
            self.told[task.client][task.number, to.value, task.attempt] += 1

    def _finish(self, task: Task, to: State) -> None:
        self._tell(task, to)
        self._release(task)
        task.state, task.delayed, task.left = to, False, 0
        for need in task.needs:
            if other := self.tasks.get(need):
                other.users -= 1
                if other.users <= 0 and other.state in TERMINAL:
                    del self.tasks[need]
        if task.users <= 0:
            self.tasks.pop(task.id, None)
        canceled = to in (State.CANCELED, State.CANCELED_NOT_FOUND)
        event = Event.DEPENDENCY_CANCELED if canceled else Event.DEPENDENCY_FAILED
        for dependent in [other for other in self.tasks.values() if task.id in other.needs]:
            if dependent.state in TERMINAL or dependent.id not in self.tasks:
                continue
            if to is State.SUCCESS:
                dependent.left -= 1
            elif after := next_state(dependent.state, event):
                self._finish(dependent, after)

    # --- what a processor does ------------------------------------------------------------------------------

    def read(self, worker: str, processor: str, entry: str, identity: str, attempt: int) -> None:
        """A processor has read an entry of its worker's stream."""
        task = self.tasks.get(identity)
        if task is None or (task.worker, task.entry, task.attempt) != (worker, entry, attempt):
            raise MismatchError(f"{worker} reads attempt {attempt} of {identity}; the model has {task}")
        self.readers[worker, entry] = processor

    def executing(self, worker: str) -> set[str]:
        """The oldest entry that each processor of a worker has read and not answered."""
        oldest: dict[str, str] = {}
        for (holder, entry), processor in self.readers.items():
            if holder == worker:
                oldest[processor] = min(oldest.get(processor, entry), entry, key=_moment)
        return set(oldest.values())

    # --- comparison -----------------------------------------------------------------------------------------

    def adopt(self, records: dict[str, dict[str, str]]) -> None:
        """Follow the choices that the scripts have made; one that they may not make is a mismatch.

        A task that waits may have been assigned, to a worker that serves its lane; one that no processor has read may
        have been taken back, and be waiting or assigned anew, all in one script; one that is held and not executing may
        have been asked back.
        """
        for task in self.tasks.values():
            record = records.get(task.id)
            if record is None or self._agrees(task, record):
                continue
            state, attempt = State(record.get("state", "")), int(record.get("attempt", "0"))
            unread = task.state is State.RUNNING and self._unread(task)
            if (task.ready or unread) and state is State.RUNNING and attempt > task.attempt:
                self._release(task)
                self._assign(task, record)
            elif (task.ready or unread) and state is State.INACTIVE and attempt >= task.attempt:
                self._requeue(task)
                task.attempt = attempt
            elif task.state is State.RUNNING and state is State.BALANCE_CANCELING and not unread:
                if task.entry in self.executing(task.worker):
                    raise MismatchError(f"{task.id} is asked back while it executes")
                task.state, task.request = state, task.request + 1

    def _assign(self, task: Task, record: dict[str, str]) -> None:
        worker = record["worker"]
        if record["entry"].endswith(CLAIMED):
            if worker != self.claiming:
                raise MismatchError(f"{task.id} is claimed for {worker}, which nobody has asked for")
        elif worker in self.gone or worker in self.draining:
            raise MismatchError(f"{task.id} is assigned to {worker}, which takes nothing any more")
        if not set(task.lane.split(",")) <= self.capabilities.get(worker, set()):
            raise MismatchError(f"{task.id} of lane {task.lane} is assigned to {worker}, which does not serve it")
        task.state, task.attempt = State.RUNNING, int(record["attempt"])
        task.worker, task.entry = worker, record["entry"]

    @staticmethod
    def _agrees(task: Task, record: dict[str, str]) -> bool:
        expected = (task.state.value, task.attempt, task.worker, task.entry)
        got = (record.get("state"), int(record.get("attempt", "0")), record.get("worker", ""), record.get("entry", ""))
        return expected == got or (task.state in TERMINAL and expected[0] == got[0])

    def differences(
        self,
        records: dict[str, dict[str, str]],
        told: dict[str, Counter[tuple[int, str, int]]],
        places: dict[str, set[str]],
    ) -> Iterator[str]:
        """Everything in which Redis and the model differ. `places`: the tasks in the lanes, and in `delayed`."""
        for identity in sorted(set(self.tasks) ^ set(records)):
            yield f"{identity}: the model has {self.tasks.get(identity)}, Redis {records.get(identity)}"
        for identity in set(self.tasks) & set(records):
            task, record = self.tasks[identity], records[identity]
            if not self._agrees(task, record):
                yield f"{identity}: the model has {task}, Redis {record}"
            if task.state in TERMINAL:
                numbers = {"users": task.users}
            else:
                numbers = {"users": task.users, "deaths": task.deaths, "retries": task.retries}
                numbers |= {"dependencies": task.left, "request": task.request, "priority": task.priority}
            for name, value in numbers.items():
                if int(record.get(name, "0")) != value:
                    yield f"{identity}: {name} is {record.get(name, '0')} in Redis, {value} in the model"
        expected = {"ready": {task.id for task in self.tasks.values() if task.ready}}
        expected["delayed"] = {task.id for task in self.tasks.values() if task.delayed}
        for name, tasks in expected.items():
            if places[name] != tasks:
                yield f"{name} has {sorted(places[name])} in Redis, {sorted(tasks)} in the model"
        for client, outcomes in told.items():
            if outcomes != self.told[client]:
                surplus, lacking = outcomes - self.told[client], self.told[client] - outcomes
                yield f"{client} was told {dict(surplus)} too much, {dict(lacking)} too little"


def _moment(entry: str) -> tuple[int, int]:
    """The id of an entry as it sorts."""
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence)
