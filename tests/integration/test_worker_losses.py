"""A worker that loses Redis, its record, or time: it comes back by itself and starts nothing that may run elsewhere."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gristmill.protocol.keys import GROUP_PROCESSORS, Keys
from support import tasks
from support.byhand import ByHand, WorkerProcess
from support.database import Database
from support.leaks import Leaks
from support.server import RedisServer
from support.waiting import wait_until


@pytest.fixture
def own_hand(own_server: RedisServer, keys: Keys) -> Iterator[ByHand]:
    """On a Redis that may be stopped."""
    database = Database(own_server.address)
    hand = ByHand(database, keys)
    yield hand
    hand.close()
    database.close()


@pytest.fixture
def worker(
    no_leaks: Leaks, own_server: RedisServer, namespace: str, tmp_path: Path, own_hand: ByHand
) -> Iterator[WorkerProcess]:
    """A registered worker with one processor and a short lease."""
    with WorkerProcess(
        own_server.address, namespace, tmp_path, "--concurrency", "1", "--worker-lease-seconds", "3"
    ) as worker:
        own_hand.register(worker)
        own_hand.wait_ready(1)
        yield worker


class TestTheConnection:
    def test_a_restart_of_redis_with_its_data_loses_no_outcome(
        self, own_server: RedisServer, own_hand: ByHand, worker: WorkerProcess, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        executing = own_hand.assign(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "the task runs")

        own_server.kill()
        gate.touch()
        wait_until(lambda: "cannot reach Redis" in worker.log, "the worker has noticed")
        own_server.start()
        own_hand.settle()

        assert own_hand.outcome(executing).status == "success"
        assert own_hand.outcome(own_hand.assign(tasks.add, 1, 1)).value == 2
        # It may be said twice to a server that has lost it, perhaps: the schedulers apply it once.
        assert {(row.attempt, row.status) for row in own_hand.rows() if row.task == executing} == {(1, "success")}
        assert worker.log.count("cannot reach Redis; trying again") == 1
        wait_until(lambda: worker.log.count("reached Redis again") == 1, "it says once that Redis is back")

    def test_tasks_that_redis_was_just_handing_out_when_the_connection_broke_run_once(
        self, own_hand: ByHand, worker: WorkerProcess
    ) -> None:
        own_hand.warm_up()
        (processor,) = worker.processors()
        given = own_hand.assign_to_frozen(processor, [(tasks.double, number) for number in range(40)])

        own_hand.database.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        processor.resume()

        own_hand.wait_ended(given)
        returned = own_hand.returned()
        outcomes = {row.task: row for row in own_hand.rows()}
        # On a busy machine one may take long, and what waits behind it is given back.
        ran = {task: 2 * number for number, task in enumerate(given) if task not in returned}
        assert given[0] in ran
        assert {task: outcomes[task].value for task in ran} == ran
        assert not set(returned) & set(outcomes)
        assert [row.task for row in own_hand.rows()].count(given[0]) == 1

    def test_outcomes_wait_for_a_redis_that_is_full(
        self, own_hand: ByHand, worker: WorkerProcess, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        task = own_hand.assign(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "the task runs")
        own_hand.database.run("CONFIG", "SET", "maxmemory", "1")
        gate.touch()
        wait_until(lambda: "Redis refuses; trying again" in worker.log, "the processor says that it waits")
        assert own_hand.rows() == []

        own_hand.database.run("CONFIG", "SET", "maxmemory", "0")

        assert own_hand.outcome(task).status == "success"
        assert worker.log.count("Redis refuses; trying again") == 1

    def test_a_worker_that_starts_before_redis_waits_for_it(
        self, no_leaks: Leaks, own_server: RedisServer, namespace: str, tmp_path: Path, own_hand: ByHand
    ) -> None:
        own_server.kill()
        with WorkerProcess(own_server.address, namespace, tmp_path, "--concurrency", "1") as worker:
            wait_until(lambda: "cannot reach Redis" in worker.log, "the worker says that it waits")
            own_server.start()
            own_hand.register(worker)
            assert own_hand.outcome(own_hand.assign(tasks.add, 1, 1)).value == 2


class TestTheRecord:
    @pytest.mark.parametrize("how", ["FLUSHALL", "group deleted", "marked as gone", "unknown"])
    def test_without_it_the_worker_stops_what_runs_and_registers_anew_under_a_new_id(
        self, own_hand: ByHand, worker: WorkerProcess, tmp_path: Path, keys: Keys, how: str
    ) -> None:
        own_hand.assign(tasks.hang_stubbornly, str(tmp_path / "started"))
        wait_until((tmp_path / "started").exists, "the task runs")
        (before,), former = worker.processors(), own_hand.worker

        if how == "FLUSHALL":
            own_hand.database.run("FLUSHALL")
        elif how == "marked as gone":
            own_hand.database.run("HSET", keys.worker(former), "gone", "1")
        elif how == "unknown":
            own_hand.control("unknown", {})
        else:
            own_hand.control("cancel", {"task": "AbCdEfGhIj.0000001", "attempt": 1, "request": 1})
            own_hand.database.run("XGROUP", "DESTROY", keys.worker_tasks(former), GROUP_PROCESSORS)
        own_hand.register(worker)

        assert own_hand.worker != former
        assert not psutil.pid_exists(before.pid)
        assert own_hand.outcome(own_hand.assign(tasks.pid)).value != before.pid
        assert own_hand.returned() == []
        assert not [row for row in own_hand.rows() if isinstance(row.payload, dict) and "error" in row.payload]

    def test_a_registration_that_nobody_answers_is_sent_again(
        self, no_leaks: Leaks, own_server: RedisServer, namespace: str, tmp_path: Path, own_hand: ByHand, keys: Keys
    ) -> None:
        with WorkerProcess(own_server.address, namespace, tmp_path, "--concurrency", "1") as worker:
            wait_until(lambda: own_hand.said(keys.heartbeats(), "worker"), "it asks to be registered")
            own_hand.database.run("DEL", keys.heartbeats())
            own_hand.register(worker)
            assert own_hand.outcome(own_hand.assign(tasks.add, 1, 1)).value == 2


class TestAFrozenAgent:
    def test_its_processors_finish_what_executes_and_start_nothing_after_two_thirds_of_the_lease(
        self, own_hand: ByHand, worker: WorkerProcess, tmp_path: Path
    ) -> None:
        def work(started: str, gate: str) -> None:
            import os
            import time
            from pathlib import Path

            Path(started).touch()
            while not os.path.exists(gate):
                time.sleep(0.005)

        def when_may_tasks_start() -> float:
            return 0.0

        gate = tmp_path / "gate"
        executing = own_hand.assign(work, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "the task runs")
        (processor,) = worker.processors()

        worker.signal(signal.SIGSTOP)
        agent = psutil.Process(worker.pid)
        wait_until(lambda: agent.status() == psutil.STATUS_STOPPED, "the agent is frozen")

        def last_beat_ms() -> int:
            # One may have been on its way.
            return int(own_hand.database.stream(own_hand.keys.heartbeats())[-1].id.partition("-")[0])

        wait_until(lambda: redis_ms(own_hand) > last_beat_ms() + 2200, "two thirds of the lease are over")
        gate.touch()
        assert own_hand.outcome(executing).status == "success"
        later = own_hand.assign(when_may_tasks_start)
        wait_until(lambda: own_hand.delivered([later]), "the processor has read it")
        cpu = processor.cpu_times().user
        resumed = redis_ms(own_hand)
        worker.signal(signal.SIGCONT)

        row = own_hand.outcome(later)
        entries = own_hand.database.stream(own_hand.keys.results())
        sent = next(entry.id for entry in entries if row.task in entry.fields.get("outcomes", ""))
        assert int(sent.partition("-")[0]) >= resumed - 5
        assert processor.cpu_times().user - cpu < 0.5


def redis_ms(hand: ByHand) -> int:
    seconds, microseconds = hand.database.run("TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


def test_what_a_frozen_processor_was_handed_by_a_former_server_does_not_start_when_nobody_counts_it_as_held(
    own_server: RedisServer, own_hand: ByHand, worker: WorkerProcess, tmp_path: Path
) -> None:
    """The agent tells the new server that it holds nothing; from then on the task runs elsewhere."""
    log = tmp_path / "log"
    own_hand.outcome(own_hand.assign(tasks.add, 1, 1))
    (processor,) = worker.processors()
    own_hand.assign_to_frozen(processor, [(tasks.note_start, str(log), "handed over while it was frozen")])
    own_server.restart()
    said = wait_until(lambda: own_hand.said(own_hand.keys.results(), "held"), "the agent says what is held")
    assert said[-1]["tasks"] == []
    processor.resume()
    own_hand.database.run("XTRIM", own_hand.keys.worker_tasks(own_hand.worker), "MAXLEN", 0)
    own_hand.control("settled", {"number": said[-1]["number"]})

    assert own_hand.outcome(own_hand.assign(tasks.add, 2, 2)).value == 4, "it goes on with what is new"
    assert tasks.started_lines(log) == []
