"""Whatever dies in a worker: what was finished counts, what executed fails by name, the rest is given back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gristmill.protocol.keys import GROUP_PROCESSORS, Keys
from support import tasks
from support.byhand import ByHand, WorkerProcess
from support.database import Database
from support.leaks import Leaks
from support.server import RedisServer
from support.temporary import alive
from support.waiting import wait_until

TRIES = 20
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
    """A registered worker with one processor."""
    with WorkerProcess(server.address, namespace, tmp_path, "--concurrency", "1") as worker:
        hand.register(worker)
        hand.wait_ready(1)
        yield worker


class TestAProcessorThatDies:
    @pytest.mark.parametrize(
        ("function", "args", "how"),
        [
            (tasks.crash, (), "killed by signal 11 (SIGSEGV)"),
            (tasks.exit_at_once, (3,), "ended with exit code 3"),
            (tasks.exit_at_once, (0,), "ended with exit code 0"),
            (tasks.kill_own_process, (), "killed by signal 9 (SIGKILL)"),
        ],
    )
    def test_its_task_fails_by_name_and_a_fresh_one_takes_over(
        self, hand: ByHand, worker: WorkerProcess, function: Callable[..., None], args: tuple[int], how: str
    ) -> None:
        (before,) = worker.processors()

        row = hand.outcome(hand.assign(function, *args))

        assert row.payload["error"] == "ProcessorDiedError"
        for word in (how, hand.worker, os.uname().nodename, str(before.pid)):
            assert word in row.payload["message"]
        assert hand.outcome(hand.assign(tasks.pid)).value != before.pid

    def test_the_python_stack_of_a_segmentation_fault_is_in_the_log(self, hand: ByHand, worker: WorkerProcess) -> None:
        hand.outcome(hand.assign(tasks.crash))

        wait_until(lambda: "Segmentation fault" in worker.log and "in crash" in worker.log, "the log has the stack")

    def test_killed_from_outside_its_task_fails_and_nothing_else(
        self, hand: ByHand, worker: WorkerProcess, tmp_path: Path
    ) -> None:
        started = tmp_path / "started"
        task = hand.assign(tasks.hang_politely, str(started))
        wait_until(started.exists, "the task runs")

        worker.processors()[0].kill()

        assert "SIGKILL" in hand.outcome(task).payload["message"]
        assert hand.outcome(hand.assign(tasks.add, 1, 1)).value == 2

    def test_killed_while_idle_it_is_replaced(self, hand: ByHand, worker: WorkerProcess) -> None:
        (before,) = worker.processors()

        before.kill()

        wait_until(
            lambda: (
                [figures["pid"] for figures in hand.beats()[-1]["processors"] if figures["ready"]]
                not in ([], [before.pid])
            ),
            "another one is ready",
        )
        assert hand.outcome(hand.assign(tasks.pid)).value != before.pid
        assert hand.returned() == []

    def test_what_it_had_finished_counts_and_what_it_had_not_started_is_given_back(
        self, hand: ByHand, worker: WorkerProcess
    ) -> None:
        def short_or_deadly(number: int) -> int:
            if number == 50:
                import os

                os._exit(9)
            return number

        for _ in range(TRIES):
            hand.warm_up()
            hand.wait_ended(hand.assign_together([(short_or_deadly, 0)] * 30))
            given = hand.assign_together([(short_or_deadly, 1 + number) for number in range(90)])
            hand.wait_ended(given)
            returned = [task for task in hand.returned() if task in given]
            outcomes = {row.task: row for row in hand.rows() if row.task in given}
            assert not set(returned) & set(outcomes)
            if returned == given[50:]:
                break  # else one before it took long, or fewer were read together: the machine is busy

        deadly = given[49]
        assert [outcomes[task].value for task in given[:49]] == list(range(1, 50))
        assert outcomes[deadly].payload["error"] == "ProcessorDiedError"
        assert returned == given[50:]
        assert [row.task for row in hand.rows()].count(deadly) == 1

    def test_what_its_task_has_started_dies_with_it(self, hand: ByHand, worker: WorkerProcess, tmp_path: Path) -> None:
        def start_child_and_die(path: str) -> None:
            import os
            import subprocess

            child = subprocess.Popen(["sleep", "600"])
            with open(path, "w") as file:
                file.write(str(child.pid))
            os._exit(1)

        path = tmp_path / "child"
        hand.outcome(hand.assign(start_child_and_die, str(path)))

        wait_until(lambda: not alive(int(path.read_text())), "the task's child is gone")

    def test_tasks_that_it_was_handed_but_never_saw_are_given_back(
        self, hand: ByHand, worker: WorkerProcess, keys: Keys
    ) -> None:
        """Given a processor that is frozen while it waits, and a task that Redis hands to it
        If it is killed
        I expect the task to be given back, although it is in no board."""
        (processor,) = worker.processors()
        (task,) = hand.assign_to_frozen(processor, [(tasks.add, 1, 1)])

        processor.kill()

        wait_until(lambda: hand.returned() == [task], "the task is given back")
        (pending,) = hand.pending()
        hand.database.run("XACK", keys.worker_tasks(hand.worker), GROUP_PROCESSORS, pending.id)
        assert hand.outcome(hand.assign(tasks.add, 2, 2)).value == 4
        wait_until(lambda: pending.consumer not in consumers(hand, keys), "its name is removed from the group")

    def test_the_name_of_a_dead_processor_stays_while_entries_are_pending_under_it(
        self, hand: ByHand, worker: WorkerProcess, keys: Keys
    ) -> None:
        task = hand.assign(tasks.kill_own_process)
        hand.outcome(task)
        (pending,) = hand.pending()
        beats = len(hand.beats())
        wait_until(lambda: len(hand.beats()) > beats + 1, "the agent has looked again")

        assert pending.consumer in consumers(hand, keys)
        assert [(item.id, item.consumer) for item in hand.pending()] == [(pending.id, pending.consumer)]


def consumers(hand: ByHand, keys: Keys) -> list[str]:
    rows = hand.database.run("XINFO", "CONSUMERS", keys.worker_tasks(hand.worker), GROUP_PROCESSORS)
    return [row[1].decode() for row in rows]


class TestAnAgentThatDies:
    def test_its_processors_and_their_children_die_with_it(
        self, hand: ByHand, worker: WorkerProcess, tmp_path: Path
    ) -> None:
        def hold_the_interpreter(path: str) -> None:
            import os
            import subprocess
            from collections import deque
            from itertools import repeat

            child = subprocess.Popen(["sleep", "600"])
            with open(f"{path}.new", "w") as file:
                file.write(str(child.pid))
            os.replace(f"{path}.new", path)
            deque(repeat(0), maxlen=0)  # one native call without end, in which nothing else of Python runs

        path = tmp_path / "child"
        hand.assign(hold_the_interpreter, str(path))
        wait_until(path.exists, "the task runs")
        (processor,) = worker.processors()

        worker.signal(signal.SIGKILL)

        wait_until(lambda: not alive(processor.pid), "the processor is gone")
        wait_until(lambda: not alive(int(path.read_text())), "the task's child is gone")


class TestAProcessorThatCannotStart:
    def test_a_failing_preload_is_told_and_the_worker_takes_no_tasks(
        self, no_leaks: Leaks, server: RedisServer, namespace: str, tmp_path: Path, hand: ByHand
    ) -> None:
        (tmp_path / "gristmill_test_preload.py").write_text("def load():\n    raise RuntimeError('no model here')\n")
        with WorkerProcess(
            server.address, namespace, tmp_path, "--concurrency", "1", "--preload", "gristmill_test_preload:load()"
        ) as worker:
            hand.register(worker)
            wait_until(lambda: "ended before its first task" in worker.log, "the log says so")
            wait_until(lambda: len(hand.beats()) >= 2, "the worker beats")

            wait_until(lambda: "no model here" in worker.log, "the log says why")
            assert {beat["processors_ready"] for beat in hand.beats()} == {0}

            worker.signal(signal.SIGTERM)
            assert worker.exit_code() == 0

    def test_a_preload_runs_before_the_first_task(
        self, no_leaks: Leaks, server: RedisServer, namespace: str, tmp_path: Path, hand: ByHand
    ) -> None:
        (tmp_path / "gristmill_test_preload.py").write_text("loaded = []\ndef load(n):\n    loaded.append(n)\n")

        def what_is_loaded() -> object:
            import gristmill_test_preload  # type: ignore[import-not-found]

            return gristmill_test_preload.loaded

        with WorkerProcess(
            server.address, namespace, tmp_path, "--concurrency", "1", "--preload", "gristmill_test_preload:load(n=5)"
        ) as worker:
            hand.register(worker)
            assert hand.outcome(hand.assign(what_is_loaded)).value == [5]
