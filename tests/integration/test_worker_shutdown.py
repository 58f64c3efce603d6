"""A worker that is told to end finishes what executes, gives back the rest, and leaves; or leaves at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill.protocol.keys import Keys
from support import tasks
from support.byhand import ByHand, WorkerProcess
from support.database import Database
from support.leaks import Leaks
from support.server import RedisServer
from support.waiting import wait_until

TRIES = 10
"""A machine may be too busy for what takes little time; not each time."""


@pytest.fixture
def hand(database: Database, keys: Keys) -> Iterator[ByHand]:
    hand = ByHand(database, keys)
    yield hand
    hand.close()


@pytest.fixture
def worker(
    no_leaks: Leaks, server: RedisServer, namespace: str, tmp_path: Path, hand: ByHand
) -> Iterator[WorkerProcess]:
    """A registered worker with two processors that may drain for as long as a test may need."""
    with WorkerProcess(server.address, namespace, tmp_path, "--concurrency", "2", "--drain-seconds", "120") as worker:
        hand.register(worker)
        hand.wait_ready(2)
        yield worker


class TestDraining:
    def test_an_idle_worker_leaves_at_once(
        self, no_leaks: Leaks, server: RedisServer, namespace: str, tmp_path: Path, hand: ByHand
    ) -> None:
        """Without waiting for the end of a read, which has two seconds to go when a processor has just become ready."""
        took: list[float] = []
        drained = []
        while not took or (took[-1] >= 1.5 and len(took) < TRIES):
            with WorkerProcess(server.address, namespace, tmp_path, "--concurrency", "2") as worker:
                hand.register(worker)
                hand.wait_ready(2)
                drained.append(hand.worker)
                began = time.monotonic()

                worker.signal(signal.SIGTERM)

                assert worker.exit_code() == 0
                took.append(time.monotonic() - began)
                assert hand.left()
        assert took[-1] < 1.5
        assert [body["worker"] for body in hand.said(hand.keys.heartbeats(), "drain")] == drained

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_what_executes_is_finished_although_the_whole_group_got_the_signal(
        self, hand: ByHand, worker: WorkerProcess, tmp_path: Path, number: signal.Signals
    ) -> None:
        started, gate = tmp_path / "started", tmp_path / "gate"
        task = hand.assign(tasks.wait_for_file, str(started), str(gate))
        wait_until(started.exists, "the task runs")

        os.killpg(worker.pid, number)
        wait_until(lambda: hand.said(hand.keys.heartbeats(), "drain"), "the worker drains")
        wait_until(lambda: hand.beats()[-1]["processors_ready"] == 0, "the worker takes no more")
        wait_until(lambda: len(worker.processors()) == 1, "the idle processor has ended")
        assert not hand.left()
        gate.touch()

        assert hand.outcome(task).status == "success"
        assert worker.exit_code() == 0
        assert hand.left()

    def test_what_was_prefetched_goes_back_at_once(self, hand: ByHand, worker: WorkerProcess, tmp_path: Path) -> None:
        def short_or_long(started: str, gate: str) -> None:
            import os
            import time
            from pathlib import Path

            if started:
                Path(started).touch()
            while gate and not os.path.exists(gate):
                time.sleep(0.005)

        started, gate = tmp_path / "started", tmp_path / "gate"
        hand.warm_up()
        hand.wait_ended(hand.assign_together([(short_or_long, "", "")] * 200))
        other = hand.assign(tasks.wait_for_file, str(tmp_path / "other"), str(gate))
        wait_until((tmp_path / "other").exists, "one processor is busy")
        given = hand.assign_together([(short_or_long, str(started), str(gate))] + [(short_or_long, "", "")] * 10)
        wait_until(started.exists, "the other one is busy too")

        worker.signal(signal.SIGTERM)

        # What it has not read is the schedulers' business: on a busy machine it may read few at a time.
        read = hand.delivered(given)
        wait_until(
            lambda: [task for task in hand.returned() if task in given] == read[1:], "what it had read is given back"
        )
        gate.touch()
        hand.outcomes([other, given[0]])
        assert worker.exit_code() == 0

    def test_the_scheduler_can_ask_for_it(self, hand: ByHand, worker: WorkerProcess) -> None:
        hand.control("drain", {})

        assert worker.exit_code() == 0
        assert hand.left()

    def test_drain_seconds_bound_it_and_the_executing_task_is_not_reported_as_failed(
        self, no_leaks: Leaks, server: RedisServer, namespace: str, tmp_path: Path, hand: ByHand
    ) -> None:
        with WorkerProcess(
            server.address, namespace, tmp_path, "--concurrency", "1", "--drain-seconds", "0.5"
        ) as worker:
            hand.register(worker)
            task = hand.assign(tasks.hang_politely, str(tmp_path / "started"))
            wait_until((tmp_path / "started").exists, "the task runs")
            began = time.monotonic()

            worker.signal(signal.SIGTERM)

            assert worker.exit_code() == 0
            assert 0.5 <= time.monotonic() - began < 30
            assert hand.left()
            assert task not in {row.task for row in hand.rows()}


class TestStoppingAtOnce:
    @pytest.mark.parametrize(
        "signals", [(signal.SIGQUIT,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)]
    )
    def test_a_second_signal_or_sigquit_does_not_wait_for_what_executes(
        self, hand: ByHand, worker: WorkerProcess, tmp_path: Path, signals: tuple[int, ...]
    ) -> None:
        finished = hand.assign(tasks.add, 1, 1)
        hand.outcome(finished)
        task = hand.assign(tasks.hang_stubbornly, str(tmp_path / "started"))
        wait_until((tmp_path / "started").exists, "the task runs")
        began = time.monotonic()

        for number in signals:
            worker.signal(number)
            if len(signals) > 1:
                wait_until(lambda: hand.said(hand.keys.heartbeats(), "drain"), "the worker drains")

        assert worker.exit_code() == 0
        assert time.monotonic() - began < 30
        assert hand.left()
        assert {row.task for row in hand.rows()} == {finished}  # perhaps twice: the answer may not have come
        assert task not in hand.returned()

    def test_a_worker_that_nobody_has_registered_just_ends(
        self, no_leaks: Leaks, server: RedisServer, namespace: str, tmp_path: Path, hand: ByHand
    ) -> None:
        with WorkerProcess(server.address, namespace, tmp_path, "--concurrency", "1") as worker:
            wait_until(lambda: hand.said(hand.keys.heartbeats(), "worker"), "it asks to be registered")
            worker.signal(signal.SIGTERM)
            assert worker.exit_code() == 0
            assert not hand.said(hand.keys.heartbeats(), "leave")

    def test_it_ends_with_its_owner(
        self, no_leaks: Leaks, server: RedisServer, namespace: str, tmp_path: Path, hand: ByHand
    ) -> None:
        with WorkerProcess(server.address, namespace, tmp_path) as worker:
            hand.register(worker)
            hand.assign(tasks.hang_stubbornly, str(tmp_path / "started"))
            wait_until((tmp_path / "started").exists, "the task runs")

            worker.lifeline.cut()

            assert worker.exit_code() == 0
            assert hand.left()
