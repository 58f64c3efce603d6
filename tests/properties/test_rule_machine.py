"""A Hypothesis rule machine: random clients, workers and schedulers, requests applied late, in any order and twice.

After each single step a model in plain Python and the real Redis are compared in full: every record, every place, every
outcome that a client was told. After each settling all invariants hold; at the end everything is worked off, and every
task has exactly one outcome.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import Request
from gristmill.protocol.states import TERMINAL, State
from properties.model import Model
from support.database import Database, Entry
from support.driver import CALL, FAILURE, LANE, LONG_CALL, Driver, Outcome, PlayedClient, PlayedWorker
from support.invariants import check_invariants
from support.server import RedisServer

GPU_LANE = f"gpu,{LANE}"
WALKS = os.environ.get("GRISTMILL_TEST_WALKS")
"""How many walks, each another one every time; without it there are a few, always the same."""

LEASE_MS = 3_600_000
"""Of a worker: none ends but by `lose`, however slowly a walk is walked."""
SWEEP_MS = 60_000
"""While a heartbeat has waited for longer nobody is ended; some wait here."""

STATUSES = ("success", "failed", "retry", "died")
ANSWERS = ("canceled", "failed", "not_found")


class LateDriver(Driver):
    """A scheduler that may leave a request for later."""

    def __init__(self, database: Database, keys: Keys) -> None:
        super().__init__(database, keys)
        self.late = False
        self.waiting: list[tuple[str, Entry]] = []
        self.applied: list[tuple[str, Entry]] = []
        self.model = Model()
        self.broken = True
        """Whether something went wrong in a step: then nothing is worked off."""

    def apply_entry(self, stream: str, entry: Entry) -> str:
        if self.late:
            self.waiting.append((stream, entry))
            return "applied"
        word = self.apply_now(stream, entry)
        if word != "early":
            self.applied.append((stream, entry))
        return word

    def apply_now(self, stream: str, entry: Entry) -> str:
        """Apply it, tell the model, and compare."""
        word = super().apply_entry(stream, entry)
        ((kind, body),) = entry.fields.items()
        self.model.apply(kind, json.loads(body), word)
        self.compare(f"after {kind} {body[:300]}, which was {word}")
        return word

    def apply_waiting(self, index: int) -> None:
        """Apply one of the requests that were left; one that is early is left again."""
        stream, entry = self.waiting.pop(index % len(self.waiting))
        if self.apply_now(stream, entry) == "early":
            self.waiting.append((stream, entry))
        else:
            self.applied.append((stream, entry))

    def duty(self, name: str, *arguments: Any) -> str:
        word = super().duty(name, *arguments)
        self.compare(f"after the duty {name}")
        return word

    def compare(self, when: str) -> None:
        """Everything in Redis that is about tasks, against the model."""
        database, keys, model = self.database, self.keys, self.model
        prefix = keys.task("")
        records = {key[len(prefix) :]: self.record(key[len(prefix) :]) for key in database.keys(prefix)}
        self.broken = True
        model.adopt(records)
        told = {
            client: Counter((outcome.number, outcome.state, outcome.attempt) for outcome in self.outcomes_of(client))
            for client in model.told
            if client not in model.ended_clients
        }
        lanes = [database.zset(key) for key in database.keys(keys.ready(""))]
        places = {"ready": {task for lane in lanes for task in lane}, "delayed": set(database.zset(keys.delayed()))}
        found = list(model.differences(records, told, places))
        assert not found, f"{when}:\n  " + "\n  ".join(found)
        self.broken = False

    def outcomes_of(self, client: str) -> list[Outcome]:
        """What a client was told."""
        return PlayedClient.outcomes(self.listeners[client]) if client in self.listeners else []

    listeners: dict[str, PlayedClient]


class Installation(RuleBasedStateMachine):
    """Everybody who talks to Redis. No precondition asks what Redis has answered: that may depend on the time."""

    server: RedisServer

    @initialize()
    def begin(self) -> None:
        self.database = Database(self.server.address)
        self.keys = Keys(f"walk-{secrets.token_hex(4)}")
        self.driver = LateDriver(self.database, self.keys)
        self.driver.listeners = {}
        self.clients: list[PlayedClient] = []
        self.gone: list[PlayedClient] = []
        self.workers: list[PlayedWorker] = []
        self.held: dict[str, list[Entry]] = {}
        """Entries that processors of a worker have read and not answered."""
        self.suspensions = 0
        self.claims: list[PlayedWorker] = []
        """Where each claim was made for."""
        self.received: set[int] = set()
        self.sent: list[tuple[PlayedWorker, list[Any]]] = []
        """Outcomes that were sent before, to be sent again."""
        self.numbers: dict[str, int] = {}
        self.connect()
        self.connect()
        self.add_worker(processors=1, gpu=False)

    # --- clients --------------------------------------------------------------------------------------------

    @rule(
        which=st.integers(0, 3),
        count=st.integers(1, 8),
        priority=st.sampled_from([0, 0, 0, 5, -5]),
        lane=st.sampled_from([None, None, GPU_LANE]),
        retries=st.sampled_from([0, 0, 1, 2]),
        delay=st.sampled_from([0, 0, 60_000]),
        long=st.booleans(),
        needs=st.lists(st.integers(1, 12), max_size=3),
    )
    def submit(
        self,
        which: int,
        count: int,
        priority: int,
        lane: str | None,
        retries: int,
        delay: int,
        long: bool,
        needs: list[int],
    ) -> None:
        client = self.clients[which % len(self.clients)]
        first = self.numbers[client.id] + 1
        self.numbers[client.id] += count
        rows = []
        for number in range(first, first + count):
            options: dict[str, Any] = {"priority": priority, "retries": retries, "retry_delay_ms": delay}
            if lane:
                options["lane"] = lane
            dependencies = sorted({number - back for back in needs if number - back >= 1})
            if dependencies:
                options["dependencies"] = [client.task(dependency) for dependency in dependencies]
            rows.append([number, 0, LONG_CALL if long else CALL, options])
        client.submit(*rows, after=client.batch if needs else 0)

    @rule(which=st.integers(0, 3), chosen=st.lists(st.integers(1, 40), min_size=1, max_size=4))
    def cancel(self, which: int, chosen: list[int]) -> None:
        client = self.clients[which % len(self.clients)]
        if self.numbers[client.id]:
            client.cancel(*(1 + number % self.numbers[client.id] for number in chosen), after=client.batch)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(which=st.integers(0, 3))
    def disconnect(self, which: int) -> None:
        client = self.clients.pop(which % len(self.clients))
        self.gone.append(client)
        client.disconnect(after=client.batch)

    @precondition(lambda self: len(self.clients) < 3)
    @rule()
    def connect(self) -> None:
        late, self.driver.late = self.driver.late, False
        client = self.driver.client()
        self.driver.late = late
        self.driver.listeners[client.id] = client
        self.clients.append(client)
        self.numbers[client.id] = 0

    # --- workers --------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.workers) < 4)
    @rule(processors=st.integers(0, 3), gpu=st.booleans())
    def add_worker(self, processors: int, gpu: bool) -> None:
        late, self.driver.late = self.driver.late, False
        capabilities = {LANE: -1, "gpu": 1} if gpu else {LANE: -1}
        worker = self.driver.worker(processors, capabilities=capabilities, lease_ms=LEASE_MS)
        self.driver.late = late
        self.workers.append(worker)
        self.held[worker.id] = []

    def some_worker(self, which: int) -> PlayedWorker:
        return self.workers[which % len(self.workers)]

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3), processors=st.integers(0, 3), oldest=st.sampled_from([0, 0, 5000]))
    def beat(self, which: int, processors: int, oldest: int) -> None:
        self.some_worker(which).beat(processors, oldest_running_ms=oldest)

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3), count=st.integers(1, 5), processor=st.integers(1, 2))
    def read(self, which: int, count: int, processor: int) -> None:
        self.take(self.some_worker(which), count, processor)

    def take(self, worker: PlayedWorker, count: int, processor: int) -> list[Entry]:
        entries = worker.read(count, processor)
        for entry in entries:
            task, attempt = entry.fields["task"], int(entry.fields["attempt"])
            self.driver.model.read(worker.id, str(processor), entry.id, task, attempt)
        self.held[worker.id] += entries
        return entries

    @precondition(lambda self: self.workers)
    @rule(
        which=st.integers(0, 3),
        index=st.integers(0, 9),
        status=st.sampled_from(STATUSES),
        ms=st.sampled_from([0.1, 50.0, 5000.0]),
    )
    def finish(self, which: int, index: int, status: str, ms: float) -> None:
        worker = self.some_worker(which)
        if not self.held[worker.id]:
            return
        entry = self.held[worker.id].pop(index % len(self.held[worker.id]))
        row = self.row(worker, entry, status, ms)
        self.sent.append((worker, row))
        worker.send_outcomes(row)

    @staticmethod
    def row(worker: PlayedWorker, entry: Entry, status: str, ms: float = 1.0) -> list[Any]:
        row = worker.row(entry.fields["task"], status, attempt=int(entry.fields["attempt"]), ms=ms)
        if status != "success":
            row[3] = FAILURE
        return row

    @rule(index=st.integers(0, 30))
    def finish_again(self, index: int) -> None:
        if self.sent:
            worker, row = self.sent[index % len(self.sent)]
            worker.send_outcomes(row)

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3), index=st.integers(0, 9))
    def give_back(self, which: int, index: int) -> None:
        worker = self.some_worker(which)
        if not self.held[worker.id]:
            return
        entry = self.held[worker.id].pop(index % len(self.held[worker.id]))
        worker.give_back(entry.fields["task"], attempt=int(entry.fields["attempt"]))

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3), index=st.integers(0, 9), answer=st.sampled_from(ANSWERS))
    def answer(self, which: int, index: int, answer: str) -> None:
        """Answer some request of the control stream, perhaps not for the first time."""
        worker = self.some_worker(which)
        asked = [*worker.asked("cancel"), *worker.asked("give_back")]
        if asked:
            self.answer_request(worker, asked[index % len(asked)], answer)

    def answer_request(self, worker: PlayedWorker, asked: dict[str, Any], answer: str) -> None:
        task, attempt = asked["task"], asked["attempt"]
        if answer != "failed":
            self.held[worker.id] = [
                entry
                for entry in self.held[worker.id]
                if (entry.fields["task"], entry.fields["attempt"]) != (task, str(attempt))
            ]
        worker.confirm(task, answer, request=asked["request"], attempt=attempt)

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3))
    def drain(self, which: int) -> None:
        self.some_worker(which).drain()

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3))
    def leave(self, which: int) -> None:
        worker = self.workers.pop(which % len(self.workers))
        self.held.pop(worker.id)
        worker.leave()

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3))
    def lose(self, which: int) -> None:
        worker = self.workers.pop(which % len(self.workers))
        self.held.pop(worker.id)
        self.database.run("ZADD", self.keys.workers(), "XX", -1, worker.id)
        self.driver.duty("sweep", SWEEP_MS)

    # --- tasks that wait ------------------------------------------------------------------------------------

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3), ready=st.integers(0, 3), waiting=st.integers(0, 2), back=st.integers(0, 2))
    def suspend(self, which: int, ready: int, waiting: int, back: int) -> None:
        """Some of what it holds waits for other tasks; perhaps an older message says so."""
        worker = self.some_worker(which)
        self.suspensions += 1
        tasks = [entry.fields["task"] for entry in self.held[worker.id][:waiting]]
        worker.suspend(*tasks, number=max(1, self.suspensions - back), ready=ready)

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3), at=st.integers(0, 3), chosen=st.lists(st.integers(1, 40), min_size=1, max_size=4))
    def claim(self, which: int, at: int, chosen: list[int]) -> None:
        client, worker = self.clients[which % len(self.clients)], self.some_worker(at)
        if self.numbers[client.id]:
            self.claims.append(worker)
            tasks = [1 + number % self.numbers[client.id] for number in chosen]
            client.claim(worker, *tasks, claim=len(self.claims), after=client.batch)

    @rule()
    def receive_claims(self) -> None:
        """What was claimed executes from now on."""
        for client in self.clients:
            for body, entry in zip(client.told("claimed"), client.claimed(), strict=True):
                worker = self.claims[body["claim"] - 1]
                if body["claim"] not in self.received and entry is not None and worker.id in self.held:
                    self.held[worker.id].append(entry)
                self.received.add(body["claim"])

    # --- schedulers -----------------------------------------------------------------------------------------

    @rule(late=st.booleans())
    def be_late(self, late: bool) -> None:
        self.driver.late = late

    @rule(index=st.integers(0, 30))
    def apply_late(self, index: int) -> None:
        if self.driver.waiting:
            self.driver.apply_waiting(index)

    @rule(index=st.integers(0, 100))
    def apply_again(self, index: int) -> None:
        if self.driver.applied:
            stream, entry = self.driver.applied[index % len(self.driver.applied)]
            assert self.driver.apply_now(stream, entry) == "duplicate"

    @rule(lane=st.sampled_from([LANE, GPU_LANE]), name=st.sampled_from(["balance", "dispatch_waiting", "run_alone"]))
    def run_duty(self, lane: str, name: str) -> None:
        self.driver.duty(name, lane)

    @rule()
    def promote(self) -> None:
        due = set(self.database.zset(self.keys.delayed()))
        for task in due:
            self.database.run("ZADD", self.keys.delayed(), 1, task)
        self.driver.model.promoted(due)
        self.driver.duty("promote")

    @rule()
    def settle(self) -> None:
        """All requests are applied; now everything must be in its place."""
        self.driver.late = False
        self.driver.waiting.clear()
        self.driver.settle()
        check_invariants(self.database, self.keys)
        self.nobody_was_told_twice()

    def nobody_was_told_twice(self) -> None:
        for client in self.clients:
            told = [outcome.number for outcome in client.outcomes()]
            assert len(told) == len(set(told)), f"{client.id} was told twice: {sorted(told)}"
            for outcome in client.outcomes():
                self.somebody_said_so(client, outcome)

    def somebody_said_so(self, client: PlayedClient, outcome: Outcome) -> None:
        """What a client is told, a worker has sent about that very attempt."""
        said = {row[2] for _, row in self.sent if (row[0], row[1]) == (client.task(outcome.number), outcome.attempt)}
        if outcome.state == State.SUCCESS:
            assert "success" in said, f"nobody sent a value of {client.task(outcome.number)}: {outcome}"
        elif outcome.state == State.FAILED and outcome.because is None:
            assert said & {"failed", "retry"}, f"nobody sent a failure of {client.task(outcome.number)}: {outcome}"
        else:
            assert outcome.state in TERMINAL

    # --- the end --------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        try:
            if not self.driver.broken:
                self.work_off()
        finally:
            self.driver.close()
            self.database.close()

    def work_off(self) -> None:
        """Two good workers work off all that is left; then every task has had exactly one outcome."""
        self.settle()
        for worker in self.workers:
            for asked in [*worker.asked("cancel"), *worker.asked("give_back")]:
                self.answer_request(worker, asked, "canceled")
        for worker in self.workers:
            self.held.pop(worker.id)
            worker.leave()
        self.settle()
        self.workers = []
        for gpu in (True, False):
            self.add_worker(processors=3, gpu=gpu)
        for _ in range(500):
            self.promote()
            for lane in (LANE, GPU_LANE):
                self.driver.duty("run_alone", lane)
            for worker in self.workers:
                entries = self.take(worker, 50, 1)
                if entries:
                    self.held[worker.id].clear()
                    rows = [self.row(worker, entry, "success") for entry in entries]
                    self.sent += [(worker, row) for row in rows]
                    worker.send_outcomes(*rows)
            self.settle()
            if not any(worker.queue() for worker in self.workers) and not self.database.keys(self.keys.task("")):
                break
        assert self.database.keys(self.keys.task("")) == []
        for client in self.clients:
            told = {outcome.number for outcome in client.outcomes()}
            told |= {row[0] for body in client.told("missing") for row in body["tasks"]}
            assert told == set(range(1, self.numbers[client.id] + 1))
        for client in self.clients:
            client.disconnect()
        self.settle()


@pytest.mark.timeout(900)
def test_whatever_happens_in_whatever_order_every_task_has_exactly_one_outcome(server: RedisServer) -> None:
    Installation.server = server
    run_state_machine_as_test(
        Installation,
        settings=settings(
            max_examples=int(WALKS or 40),
            stateful_step_count=50,
            derandomize=WALKS is None,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink) if WALKS else (Phase.generate,),
        ),
    )


def test_the_machine_knows_every_request_but_those_that_have_tests_of_their_own() -> None:
    walked = {Request.TASKS, Request.CANCEL, Request.DISCONNECT, Request.CLIENT, Request.WORKER, Request.BEAT}
    walked |= {Request.OUTCOMES, Request.CONFIRMS, Request.RETURNED, Request.DRAIN, Request.LEAVE}
    walked |= {Request.SUSPENDED, Request.CLAIM}
    by_scripts = {Request.END_CLIENT, Request.END_WORKER, Request.RESOLVE, Request.DROP_USES}
    of_people = {Request.CANCEL_CLIENT, Request.RETRY, Request.ORDER_WORKER, Request.PAUSE, Request.SHUTDOWN}
    after_another_server = {Request.KNOWN, Request.HELD}

    assert set(Request) - walked - by_scripts - of_people - after_another_server == {
        Request.RELEASE,
        Request.CLIENT_BEAT,
        Request.WATCH,
        Request.OUTPUT,
        Request.DEPEND,
    }
