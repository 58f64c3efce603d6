"""A worker runs what lies in its stream and reports each task once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gristmill.errors import DeserializationError, MissingObjectError, ResultSerializationError
from gristmill.protocol.keys import Keys
from gristmill.protocol.payloads import dump_call, dump_value, text_of
from support import tasks
from support.byhand import ByHand, WorkerProcess
from support.database import Database
from support.leaks import Leaks
from support.server import RedisServer
from support.waiting import wait_until


@pytest.fixture
def worker(
    no_leaks: Leaks, server: RedisServer, namespace: str, tmp_path: Path, hand: ByHand
) -> Iterator[WorkerProcess]:
    """A registered worker with one processor."""
    with WorkerProcess(server.address, namespace, tmp_path, "--concurrency", "1") as worker:
        hand.register(worker)
        yield worker


@pytest.fixture
def hand(database: Database, keys: Keys) -> Iterator[ByHand]:
    hand = ByHand(database, keys)
    yield hand
    hand.close()


@pytest.mark.usefixtures("worker")
class TestWhatTasksReturn:
    def test_a_value_comes_back(self, hand: ByHand) -> None:
        row = hand.outcome(hand.assign(tasks.add, 1, 2))

        assert row.value == 3
        assert row.attempt == 1
        assert row.error is None
        assert row.duration_us >= 0
        assert 0 <= row.memory_peak_bytes < 50_000_000

    def test_every_one_of_many_short_tasks_has_exactly_one_outcome(self, hand: ByHand) -> None:
        """Or is given back, and has none: on a busy machine one may take long, with others behind it."""
        given = hand.assign_together([(tasks.double, number) for number in range(500)])

        hand.wait_ended(given)

        rows, returned = hand.rows(), hand.returned()
        values = {task: 2 * number for number, task in enumerate(given)}
        assert all(row.value == values[row.task] for row in rows)
        assert sorted([row.task for row in rows] + returned) == sorted(given)
        assert rows

    def test_a_large_value_is_an_object_that_lies_there_before_the_outcome(self, hand: ByHand, keys: Keys) -> None:
        def large() -> bytes:
            return b"x" * 3_000_000

        row = hand.outcome(hand.assign(large))

        assert row.payload["object"] == f"{row.task}.1-3"
        assert row.payload["size"] > 3_000_000
        assert hand.database.exists(keys.object(row.payload["object"]))
        assert hand.database.exists(keys.object_chunk(row.payload["object"], "2"))
        assert 0 < hand.database.lifetime_ms(keys.object(row.payload["object"])) <= 86_400_000

    def test_a_large_call_is_read_from_its_object(self, hand: ByHand, keys: Keys) -> None:
        hand.database.run("SET", keys.object("AbCdEfGhIj.c1-1"), dump_call(("y" * 10_000,), {}))

        row = hand.outcome(hand.assign(tasks.echo, extra={"object": "AbCdEfGhIj.c1-1", "size": "10000"}))

        assert hand.database.exists(keys.object(row.payload["object"]))

    def test_values_of_dependencies_come_with_the_entry_or_from_their_keys(self, hand: ByHand, keys: Keys) -> None:
        import io
        import pickle

        class Pickler(pickle.Pickler):
            def persistent_id(self, obj: Any) -> Any:
                return ("task", obj[1:]) if isinstance(obj, str) and obj.startswith("@") else None

        buffer = io.BytesIO()
        Pickler(buffer, 5).dump((("@AbCdEfGhIj.9000001", "@AbCdEfGhIj.9000002"), {}))
        hand.database.run("SET", keys.object("AbCdEfGhIj.c2-1"), buffer.getvalue())
        here, there = text_of(dump_value(40)), text_of(dump_value(2))
        hand.database.run("SET", keys.value("AbCdEfGhIj.9000002"), orjson.dumps(there))

        row = hand.outcome(
            hand.assign(
                tasks.add,
                extra={
                    "object": "AbCdEfGhIj.c2-1",
                    "values": orjson.dumps({"AbCdEfGhIj.9000001": here}).decode(),
                    "needs": "AbCdEfGhIj.9000002",
                },
            )
        )

        assert row.value == 42

    def test_the_task_knows_its_id_and_attempt(self, hand: ByHand) -> None:
        def who() -> object:
            from gristmill import client

            return client.current

        row = hand.outcome(hand.assign(who, attempt=7))

        assert row.value == (row.task, 7)

    def test_arguments_and_globals_changed_by_one_task_are_not_seen_by_the_next(self, hand: ByHand) -> None:
        seen: list[int] = []

        def remember(number: int) -> int:
            seen.append(number)
            return len(seen)

        # One after the other: none can be given back because another takes long.
        assert [hand.outcome(hand.assign(remember, number)).value for number in range(5)] == [1] * 5


@pytest.mark.usefixtures("worker")
class TestWhatTasksRaise:
    def test_an_exception_comes_back_with_its_traceback(self, hand: ByHand) -> None:
        row = hand.outcome(hand.assign(tasks.raise_while_handling))

        assert isinstance(row.exception, ValueError)
        assert row.error == "ValueError: second"
        text = str(row.exception.__cause__)
        assert "KeyError: 'first'" in text
        assert "tests/support/tasks.py" in text
        assert "gristmill_worker" not in text

    @pytest.mark.parametrize(
        ("function", "args", "kind"),
        [
            (tasks.raise_system_exit, (0,), "builtins.SystemExit: 0"),
            (tasks.raise_system_exit, (1,), "builtins.SystemExit: 1"),
            (tasks.raise_keyboard_interrupt, (), "builtins.KeyboardInterrupt"),
            (tasks.raise_lock_holding_error, (), "support.tasks.LockHoldingError: holds a lock"),
        ],
    )
    def test_what_would_end_a_program_ends_only_the_task(
        self, hand: ByHand, worker: WorkerProcess, function: Any, args: Any, kind: str
    ) -> None:
        row = hand.outcome(hand.assign(function, *args))

        assert str(row.exception) == kind
        assert hand.outcome(hand.assign(tasks.add, 1, 1)).value == 2
        assert len(worker.processors()) == 1

    @pytest.mark.parametrize("function", [tasks.return_a_lock, tasks.return_a_generator])
    def test_a_result_that_cannot_be_pickled_is_named(self, hand: ByHand, function: Any) -> None:
        error = hand.outcome(hand.assign(function)).exception

        assert isinstance(error, ResultSerializationError)
        assert "lock" in str(error) or "generator" in str(error)

    def test_a_coroutine_is_refused_with_a_sentence(self, hand: ByHand) -> None:
        async def later() -> None:
            await asyncio.sleep(0)

        error = hand.outcome(hand.assign(later)).exception

        assert isinstance(error, ResultSerializationError)
        assert "got a coroutine of the async function" in str(error)

    def test_a_missing_module_is_named_with_the_worker_and_a_remedy(
        self, hand: ByHand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        helper = tmp_path / "only_here" / "gristmill_test_helper.py"
        helper.parent.mkdir()
        helper.write_text("def helped():\n    return 1\n")
        monkeypatch.syspath_prepend(str(helper.parent))
        import gristmill_test_helper  # type: ignore[import-not-found]

        error = hand.outcome(hand.assign(gristmill_test_helper.helped)).exception

        assert isinstance(error, DeserializationError)
        assert "No module named 'gristmill_test_helper'" in str(error)
        assert hand.worker in str(error)
        assert "register_pickle_by_value(gristmill_test_helper)" in str(error)

    def test_a_missing_function_object_fails_the_task(self, hand: ByHand) -> None:
        error = hand.outcome(hand.assign(tasks.nothing, extra={"function": "AbCdEfGhIj.f77-1"})).exception

        assert isinstance(error, MissingObjectError)

    @pytest.mark.parametrize(
        ("retry_on", "status"),
        [(None, "retry"), (["builtins.LookupError"], "failed"), (["builtins.ValueError"], "retry")],
    )
    def test_the_status_says_whether_another_attempt_is_wanted(self, hand: ByHand, retry_on: Any, status: str) -> None:
        options = orjson.dumps({} if retry_on is None else {"retry_on": retry_on}).decode()

        assert hand.outcome(hand.assign(tasks.raise_value_error, "no", extra={"options": options})).status == status


class TestStandardStreams:
    def test_what_is_printed_is_marked_with_its_task_in_the_log(self, hand: ByHand, worker: WorkerProcess) -> None:
        def speak() -> None:
            import sys

            print("one\ntwo", end="")
            print("three", file=sys.stderr)

        task = hand.assign(speak)
        hand.outcome(task)

        for line in ("one", "two", "three"):
            wait_until(lambda line=line: f"task {task}: {line}\n" in worker.log, f"the log has {line}")  # type: ignore[misc]

    @pytest.mark.usefixtures("worker")
    def test_input_finds_the_end_of_the_file(self, hand: ByHand) -> None:
        def ask() -> str:
            return input("name? ")

        assert isinstance(hand.outcome(hand.assign(ask)).exception, EOFError)

    def test_a_task_that_closes_and_removes_the_streams_harms_nobody(self, hand: ByHand, worker: WorkerProcess) -> None:
        def spoil() -> None:
            import os
            import sys

            os.write(1, bytes(range(256)))
            print("x" * 1_000_000)
            for descriptor in (0, 1, 2):
                os.close(descriptor)
            sys.stdout = sys.stderr = sys.stdin = None

        def speak(word: str) -> str:
            print(word)
            return word

        hand.outcome(hand.assign(spoil))
        assert hand.outcome(hand.assign(speak, "still here")).value == "still here"
        wait_until(lambda: ": still here\n" in worker.log, "the next task's output is in the log")
        assert len(worker.processors()) == 1

    @pytest.mark.usefixtures("worker")
    def test_a_child_that_a_task_forks_and_forgets_does_not_become_a_second_processor(self, hand: ByHand) -> None:
        def fork() -> int:
            import os

            return os.fork()

        task = hand.assign(fork)
        assert hand.outcome(task).value > 0
        assert hand.outcome(hand.assign(tasks.add, 2, 2)).value == 4
        assert [row.task for row in hand.rows()].count(task) == 1
