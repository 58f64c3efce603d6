"""A worker stops, gives back and limits tasks as it is told, and answers what is true of that attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from gristmill.protocol.keys import Keys
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
    """A registered worker with one processor and much patience: who reacts is not killed, however late."""
    with WorkerProcess(
        server.address, namespace, tmp_path, "--concurrency", "1", "--cancel-grace-seconds", "60"
    ) as worker:
        hand.register(worker)
        hand.wait_ready(1)
        yield worker


@pytest.fixture
def impatient(
    no_leaks: Leaks, server: RedisServer, namespace: str, tmp_path: Path, hand: ByHand
) -> Iterator[WorkerProcess]:
    """The same with little patience."""
    with WorkerProcess(
        server.address, namespace, tmp_path, "--concurrency", "1", "--cancel-grace-seconds", "0.5"
    ) as worker:
        hand.register(worker)
        hand.wait_ready(1)
        yield worker


def make_native_call() -> Callable[[str], None]:
    """A function that makes one native call without end, in which nothing else of Python runs.

    Made here, so that it travels by value: workers cannot import this module.
    """

    def native_call(started: str) -> None:
        from collections import deque
        from itertools import chain, repeat
        from pathlib import Path

        # The file is made inside the call: an interrupt that comes because of it finds nothing of Python running.
        deque(chain((Path(started).write_text("") for _ in [0]), repeat(0)), maxlen=0)

    return native_call


class TestCancel:
    def test_an_executing_task_is_interrupted_and_its_processor_goes_on(
        self, hand: ByHand, worker: WorkerProcess, tmp_path: Path
    ) -> None:
        started = tmp_path / "started"
        (before,) = worker.processors()
        task = hand.assign(tasks.hang_politely, str(started))
        wait_until(started.exists, "the task runs")

        assert hand.answer(hand.request("cancel", task)) == "canceled"
        assert hand.outcome(hand.assign(tasks.pid)).value == before.pid
        assert task not in {row.task for row in hand.rows()}

    @pytest.mark.parametrize("function", [tasks.hang_stubbornly, make_native_call()], ids=["stubborn", "native call"])
    def test_a_task_that_does_not_react_is_killed_and_nothing_is_reported_of_it(
        self, hand: ByHand, impatient: WorkerProcess, tmp_path: Path, function: Callable[[str], None]
    ) -> None:
        took = []
        for number in range(TRIES):
            started = tmp_path / f"started-{number}"
            before = hand.outcome(hand.assign(tasks.pid)).value
            task = hand.assign(function, str(started))
            wait_until(started.exists, "the task runs")
            began = time.monotonic()

            assert hand.answer(hand.request("cancel", task)) == "canceled"
            took.append(time.monotonic() - began)
            assert hand.outcome(hand.assign(tasks.pid)).value != before
            assert task not in {row.task for row in hand.rows()}
            if took[-1] < 1.5:
                break
        assert 0.5 <= min(took) < 1.5

    def test_a_task_that_ends_well_in_spite_of_the_interrupt_keeps_its_value(
        self, hand: ByHand, worker: WorkerProcess, tmp_path: Path
    ) -> None:
        def finish_anyway(started: str) -> str:
            import time
            from pathlib import Path

            try:
                Path(started).touch()
                time.sleep(60)
            except BaseException as error:
                return type(error).__name__
            return "not interrupted"

        started = tmp_path / "started"
        task = hand.assign(finish_anyway, str(started))
        wait_until(started.exists, "the task runs")

        assert hand.answer(hand.request("cancel", task)) == "failed"
        assert hand.outcome(task).value == "TaskCancelled"

    def test_a_task_that_was_prefetched_never_starts(self, hand: ByHand, worker: WorkerProcess, tmp_path: Path) -> None:
        log, gate = str(tmp_path / "log"), tmp_path / "gate"
        hand.warm_up()
        (processor,) = worker.processors()
        # Behind one that cannot end before the answer has come.
        first = (tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        given = hand.assign_to_frozen(
            processor, [first, *((tasks.note_start, log, str(number)) for number in range(1, 10))]
        )
        request = hand.request("cancel", given[5])
        processor.resume()

        assert hand.answer(request) == "canceled"
        gate.touch()
        hand.wait_ended(given[:5] + given[6:])

        assert given[5] not in {row.task for row in hand.rows()}
        assert "5" not in tasks.started_lines(log)

    def test_a_task_whose_outcome_is_on_its_way_is_answered_failed(self, hand: ByHand, worker: WorkerProcess) -> None:
        task = hand.assign(tasks.add, 1, 2)
        hand.outcome(task)

        assert hand.answer(hand.request("cancel", task)) == "failed"

    def test_a_task_whose_processor_died_is_answered_failed(self, hand: ByHand, worker: WorkerProcess) -> None:
        earlier = hand.assign(tasks.add, 1, 2)
        deadly = hand.assign(tasks.kill_own_process)
        hand.outcomes([earlier, deadly])

        assert hand.answer(hand.request("cancel", deadly)) == "failed"
        assert hand.answer(hand.request("cancel", earlier)) == "failed"

    def test_what_was_never_received_is_not_found_at_once(self, hand: ByHand, worker: WorkerProcess) -> None:
        """Without waiting for the end of a read, which may take two seconds each time."""
        task = hand.assign(tasks.add, 1, 2)
        hand.outcome(task)
        took = []
        for _ in range(TRIES):
            began = time.monotonic()
            assert hand.answer(hand.request("cancel", "AbCdEfGhIj.8888888")) == "not_found"
            assert hand.answer(hand.request("cancel", task, attempt=2)) == "not_found"
            took.append(time.monotonic() - began)
        assert min(took) < 1.5

    def test_not_found_waits_for_what_redis_may_have_handed_out(
        self, hand: ByHand, worker: WorkerProcess, tmp_path: Path
    ) -> None:
        """Given a processor that is frozen, and a task that lies in its socket
        If the task is cancelled
        I expect no answer until the processor goes on, and then that it was stopped."""
        (processor,) = worker.processors()
        (task,) = hand.assign_to_frozen(processor, [(tasks.hang_politely, str(tmp_path / "started"))])
        request = hand.request("cancel", task)
        other = hand.request("cancel", "AbCdEfGhIj.8888888")
        beats = len(hand.beats())
        wait_until(lambda: len(hand.beats()) > beats, "the agent has had time")
        assert hand.said(hand.keys.results(), "confirms") == []

        processor.resume()

        assert hand.answer(request) == "canceled"
        assert hand.answer(other) == "not_found"

    def test_many_cancels_in_quick_succession_leave_one_healthy_processor(
        self, hand: ByHand, impatient: WorkerProcess, tmp_path: Path
    ) -> None:
        log = str(tmp_path / "log")
        given = [hand.assign(tasks.note_start_and_work, log, f"line-{number}", 60.0) for number in range(20)]
        requests = [hand.request("cancel", task) for task in given]

        # Those that no processor has read are the schedulers' business: here they come to be executed in their turn.
        answers = [hand.answer(request) for request in requests]
        for number, (task, answer) in enumerate(zip(given, answers, strict=True)):
            if answer == "not_found":
                started = f"line-{number}"
                wait_until(lambda line=started: line in tasks.started_lines(log), f"{task} executes")  # type: ignore[misc]
                assert hand.answer(hand.request("cancel", task)) == "canceled"

        assert set(answers) <= {"canceled", "not_found"}
        assert hand.outcome(hand.assign(tasks.add, 1, 1)).value == 2
        wait_until(lambda: len(impatient.processors()) == 1, "one processor is left")


class TestGiveBack:
    def test_what_executes_is_not_given_back(self, hand: ByHand, worker: WorkerProcess, tmp_path: Path) -> None:
        gate = tmp_path / "gate"
        task = hand.assign(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
        wait_until((tmp_path / "started").exists, "the task runs")

        assert hand.answer(hand.request("give_back", task)) == "failed"
        gate.touch()
        assert hand.outcome(task).status == "success"

    def test_a_long_task_lets_go_of_what_waits_behind_it_and_of_what_was_finished_before_it(
        self, hand: ByHand, worker: WorkerProcess, tmp_path: Path
    ) -> None:
        def short_or_long(gate: str) -> str:
            import os
            import time

            while gate and not os.path.exists(gate):
                time.sleep(0.005)
            return gate

        def returned() -> list[str]:
            return [task for task in hand.returned() if task in given]

        def let_go_of() -> set[str]:
            return {row.task for row in hand.rows()}.union(hand.returned())

        for number in range(TRIES):
            gate = tmp_path / f"gate-{number}"
            hand.warm_up()
            hand.wait_ended(hand.assign_together([(short_or_long, "")] * 40))
            given = hand.assign_together(
                [(short_or_long, "")] * 20 + [(short_or_long, str(gate))] + [(short_or_long, "")] * 60
            )
            long = given[20]
            wait_until(lambda: long in hand.delivered(given), "the long task has come")  # noqa: B023
            wait_until(
                lambda: set(hand.delivered(given)) <= let_go_of() | {long},  # noqa: B023
                "what was finished is sent, and the rest is given back",
            )
            if returned() == given[21:]:
                break
            # On a busy machine one before it took long as well, or fewer were read together.
            gate.touch()
            hand.wait_ended(given)
            assert not {row.task for row in hand.rows()} & set(returned())
        outcomes = {row.task: row for row in hand.rows()}

        assert all(outcomes[task].value == "" for task in given[:20])
        assert returned() == given[21:]
        for task in (given[21], given[80]):
            assert hand.answer(hand.request("cancel", task)) == "canceled"
        gate.touch()
        assert hand.outcome(given[20]).value == str(gate)
        assert not {row.task for row in hand.rows()} & set(given[21:])
        assert sorted(row.task for row in hand.rows()) == sorted({row.task for row in hand.rows()})


class TestTimeLimit:
    @pytest.mark.parametrize(
        "function",
        [tasks.hang_politely, tasks.hang_stubbornly, make_native_call()],
        ids=["polite", "stubborn", "native call"],
    )
    def test_a_task_that_runs_longer_fails_by_name(
        self, hand: ByHand, impatient: WorkerProcess, tmp_path: Path, function: Callable[[str], None]
    ) -> None:
        durations = []
        for number in range(TRIES):
            task = hand.assign(
                function,
                str(tmp_path / f"started-{number}"),
                extra={"options": orjson.dumps({"timeout_ms": 300, "retry_on": []}).decode()},
            )

            row = hand.outcome(task)

            assert row.status == "failed"
            assert row.error is not None
            assert row.error.startswith("TaskTimeoutError: expected the task to end within 0.3 s")
            durations.append(row.duration_us)
            if durations[-1] < 1_500_000:
                break
        assert 300_000 <= min(durations) < 1_500_000
        assert hand.outcome(hand.assign(tasks.add, 1, 1)).value == 2

    def test_a_task_that_ends_in_time_is_left_alone(self, hand: ByHand, worker: WorkerProcess) -> None:
        options = {"options": orjson.dumps({"timeout_ms": 60_000}).decode()}

        assert hand.outcome(hand.assign(tasks.add, 1, 1, extra=options)).value == 2


class TestWhatTasksLeaveBehind:
    def test_what_a_cancelled_task_has_started_ends_with_it(
        self, hand: ByHand, worker: WorkerProcess, tmp_path: Path
    ) -> None:
        def start_others(path: str) -> None:
            import os
            import subprocess
            import time
            from pathlib import Path

            child = subprocess.Popen(["sleep", "600"])
            apart = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE,
                                     start_new_session=True)  # fmt: skip
            assert apart.stdout is not None
            grandchild = int(apart.stdout.readline())
            Path(path + ".new").write_text(f"{os.getpid()} {child.pid} {apart.pid} {grandchild}")
            os.replace(path + ".new", path)
            time.sleep(600)

        task = hand.assign(start_others, str(tmp_path / "pids"))
        wait_until((tmp_path / "pids").exists, "the task has started others")
        own, *others = map(int, (tmp_path / "pids").read_text().split())
        assert hand.answer(hand.request("cancel", task)) == "canceled"

        wait_until(lambda: not [pid for pid in others if alive(pid)], "what it has started has ended")
        assert hand.outcome(hand.assign(tasks.pid)).value == own

    def test_what_a_task_leaves_of_its_own_accord_is_left_alone(self, hand: ByHand, worker: WorkerProcess) -> None:
        def leave_one() -> int:
            import subprocess

            return subprocess.Popen(["sleep", "600"]).pid

        left = hand.outcome(hand.assign(leave_one)).value
        assert hand.outcome(hand.assign(tasks.nothing)).status == "success"

        assert alive(left)

    def test_limits_and_timers_of_a_task_do_not_meet_the_next_one(self, hand: ByHand, worker: WorkerProcess) -> None:
        def tighten() -> tuple[int, int]:
            import resource
            import signal

            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] // 2, before[1]))
            # Were it short, it could go off in the task itself, on a busy machine.
            signal.setitimer(signal.ITIMER_REAL, 600.0)
            return before

        def look() -> tuple[tuple[int, int], tuple[float, float], int]:
            import os
            import resource
            import signal

            return resource.getrlimit(resource.RLIMIT_NOFILE), signal.getitimer(signal.ITIMER_REAL), os.getpid()

        pid = hand.outcome(hand.assign(tasks.pid)).value

        def run_both() -> list[str]:
            given = hand.assign_together([(tighten,), (look,)])
            hand.wait_ended(given)
            # On a busy machine the first may take long, and the second is given back.
            return [] if set(given) & set(hand.returned()) else given

        first, second = wait_until(run_both, "both have run")

        assert hand.outcome(second).value == (hand.outcome(first).value, (0.0, 0.0), pid)

    def test_a_processor_that_cannot_be_put_right_is_replaced(self, hand: ByHand, worker: WorkerProcess) -> None:
        def spoil() -> int:
            import os
            import resource

            def refuse(number: int, limits: tuple[int, int]) -> None:
                raise ValueError("not allowed to raise maximum limit")

            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
            # As for somebody who is not root: a hard limit that was lowered stays.
            resource.setrlimit = refuse
            return os.getpid()

        spoiled = hand.outcome(hand.assign(spoil)).value
        wait_until(lambda: spoiled not in {process.pid for process in worker.processors()}, "the processor has ended")

        assert hand.outcome(hand.assign(tasks.pid)).value != spoiled
        assert "a processor ended between tasks" not in worker.log
