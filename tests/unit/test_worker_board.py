"""The memory that an agent shares with a processor: who decides what, whatever moment either of them dies at."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gristmill_worker.board import (
    BATCH,
    BATCH_ROWS,
    CANCEL,
    FINISHED,
    INTERRUPT,
    LAP,
    OUTCOMES_BYTES,
    REASON,
    ROWS_BYTES,
    START,
    STATUS,
    AgentBoard,
    Held,
    ProcessorBoard,
    clock_ns,
    row_text,
)
from support.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def agent() -> Iterator[AgentBoard]:
    board = AgentBoard()
    yield board
    board.close()


@pytest.fixture
def processor(agent: AgentBoard) -> Iterator[ProcessorBoard]:
    board = ProcessorBoard(os.dup(agent.descriptor))
    yield board
    board.close()


def rows(*names: str, attempt: int = 1) -> list[bytes]:
    return [row_text(name.encode(), b"%d" % attempt, b"5-%d" % i, b'"f"') for i, name in enumerate(names)]


def outcome(name: str) -> bytes:
    return orjson.dumps([name, 1, "success", "gAVOLg==", 1, 1, 1, None])


def names_in(outcomes: bytes) -> list[str]:
    return [row[0] for row in orjson.loads(b"[" + outcomes + b"]")]


def walk(processor: ProcessorBoard, *names: str) -> None:
    """Start and finish the rows of these names, which are the first of the batch."""
    for index, name in enumerate(names):
        assert processor.start(index, clock_ns())
        processor.finish(outcome(name))


class TestWhatTheAgentSees:
    def test_nothing_at_first(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        assert agent.executing() is None
        assert agent.rows() == []
        assert agent.unstarted() == []
        assert agent.last_outcomes() == b""
        assert not agent.has_held("a", 1)

    def test_the_rows_of_the_batch(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        processor.hold([row_text(b"a.1", b"3", b"17-4", '"né"'.encode(), b'{"timeout_ms":5}'), *rows("b")])

        assert agent.rows() == [Held("a.1", 3, "17-4", "né", {"timeout_ms": 5}), Held("b", 1, "5-0", "f", {})]
        assert agent.unstarted() == [0, 1]

    def test_the_executing_row(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        processor.hold(rows("a", "b"))
        walk(processor, "a")
        start = processor.start(1, 12345)

        executing = agent.executing()
        assert executing is not None
        assert (executing.start, executing.row, executing.started_at) == (start, 1, 12345)
        assert agent.unstarted() == []

        processor.finish(outcome("b"))
        assert agent.executing() is None

    def test_the_next_batch_begins_with_nothing_started(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        processor.hold(rows("a", "b"))
        walk(processor, "a", "b")
        processor.hold(rows("c", "d", "e"))

        assert [row.task for row in agent.rows()] == ["c", "d", "e"]
        assert agent.unstarted() == [0, 1, 2]

    def test_a_stopped_row_has_no_outcome(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        processor.hold(rows("a"))
        processor.start(0, 1)
        processor.stop()

        assert agent.executing() is None
        assert agent.last_outcomes() == b""

    def test_a_batch_that_does_not_fit_is_refused(self, processor: ProcessorBoard) -> None:
        with pytest.raises(ValueError, match="expected at most 128 rows"):
            processor.hold(rows(*(str(number) for number in range(BATCH_ROWS + 1))))


class TestTaking:
    def test_a_taken_row_does_not_start(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        processor.hold(rows("a", "b", "c"))
        with agent.locked() as locked:
            assert locked
            agent.take(1)

        assert processor.taken(1)
        assert processor.start(0, 1)
        processor.finish(outcome("a"))
        assert processor.start(1, 1) == 0
        assert processor.start(2, 1)
        assert agent.unstarted() == []

    def test_the_marks_are_gone_with_the_batch(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        for _ in range(3):
            processor.hold(rows("a", "b"))
            assert agent.unstarted() == [0, 1]
            agent.take(0)
            agent.take(1)
            assert agent.unstarted() == []

    def test_an_interrupt_names_its_start_and_its_reason(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        processor.hold(rows("a"))
        start = processor.start(0, 1)
        agent.interrupt(start, CANCEL)

        assert processor.words[INTERRUPT] == start
        assert processor.words[REASON] == CANCEL


class TestOutcomes:
    def test_they_are_sent_once(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        processor.hold(rows("a", "b", "c"))
        walk(processor, "a", "b")
        assert names_in(processor.unsent()) == ["a", "b"]

        processor.sent()

        assert processor.unsent() == b""
        assert processor.unsent_bytes() == 0
        processor.start(2, 1)
        processor.finish(outcome("c"))
        assert names_in(processor.unsent()) == ["c"]

    def test_the_agent_takes_over_what_was_finished_before_the_executing_row(
        self, agent: AgentBoard, processor: ProcessorBoard
    ) -> None:
        processor.hold(rows("a", "b", "c", "d"))
        walk(processor, "a", "b")
        processor.start(2, 1)

        assert names_in(agent.take_outcomes()) == ["a", "b"]
        assert agent.take_outcomes() == b""
        assert processor.unsent() == b""
        processor.finish(outcome("c"))
        assert names_in(processor.unsent()) == ["c"]
        assert names_in(agent.last_outcomes()) == ["c"]

    def test_the_agent_does_not_take_what_may_be_half_written(
        self, agent: AgentBoard, processor: ProcessorBoard
    ) -> None:
        processor.hold(rows("a", "b"))
        walk(processor, "a")

        assert agent.take_outcomes() == b""
        assert names_in(processor.unsent()) == ["a"]


class TestHistory:
    def test_earlier_batches_are_remembered(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        for batch in range(20):
            processor.hold(rows(*(f"{batch}.{number}" for number in range(100)), attempt=2))

        assert agent.has_held("0.0", 2)
        assert agent.has_held("19.99", 2)
        assert not agent.has_held("0.0", 1)
        assert not agent.has_held("19.100", 2)
        assert b'["3.7",2,' in agent.history()

    def test_going_round_keeps_the_batch_whole_and_forgets_the_oldest(
        self, agent: AgentBoard, processor: ProcessorBoard
    ) -> None:
        batches = 3 * ROWS_BYTES // (100 * 40)
        for batch in range(batches):
            processor.hold(rows(*(f"task-{batch:05d}.{number:03d}" for number in range(100))))
            assert agent.rows()[99].task == f"task-{batch:05d}.099"
            history = agent.history()
            assert all(row in history for row in rows(f"task-{batch:05d}.000"))

        assert not agent.has_held("task-00000.000", 1)
        assert agent.has_held(f"task-{batches - 50:05d}.000", 1)


CHILD = f"""
import os, sys
sys.path[:0] = [{str(ROOT / "broker")!r}, {str(ROOT / "worker")!r}]
from gristmill_worker.board import *
board = ProcessorBoard(int(sys.argv[1]))
batches = int(sys.argv[2])
board.words[STATUS] = READY
for batch in range(batches):
    names = [b"%d.%d" % (batch, row) for row in range(100)]
    board.hold([row_text(name, b"1", name, b'"f"') for name in names])
    for index, name in enumerate(names):
        if index == 50 and batches < 1000 and batch % 10 == 0:
            print("half", flush=True)
            sys.stdin.readline()
        if board.start(index, 1):
            board.finish(b'["%b",1]' % name)
    if batches < 1000:
        print(board.unsent().decode(), flush=True)
    board.sent()
"""


HOLDER = """
import fcntl, sys, time
fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX, 1)
print('locked', flush=True)
time.sleep(600)
"""


def start_child(agent: AgentBoard, batches: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(agent.descriptor), str(batches)],
        pass_fds=(agent.descriptor,),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class TestTwoProcesses:
    def test_every_row_is_either_started_or_taken(self, agent: AgentBoard) -> None:
        taken: set[str] = set()
        ran: list[str] = []
        dice = random.Random(7)
        with start_child(agent, 900) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            for line in child.stdout:
                halfway = line == "half\n"
                if not halfway:
                    ran += [row[0] for row in orjson.loads(f"[{line}]")]
                for _ in range(5):
                    with agent.locked() as locked:
                        if locked and (unstarted := agent.unstarted()):
                            index = dice.choice(unstarted)
                            agent.take(index)
                            taken.add(agent.rows()[index].task)
                if halfway:
                    child.stdin.write("go on\n")
                    child.stdin.flush()

        everything = {f"{batch}.{row}" for batch in range(900) for row in range(100)}
        assert len(ran) == len(set(ran))
        assert set(ran) | taken == everything
        assert set(ran) & taken == set()
        # In the middle of every tenth batch it waits: there is something to take, however little they run at once.
        assert len(taken) > 400

    def test_whatever_moment_it_is_killed_at_each_row_has_one_fate(self, agent: AgentBoard) -> None:
        dice = random.Random(11)
        for _ in range(25):
            board = AgentBoard()
            child = start_child(board, 1_000_000)
            target = dice.randrange(1, 60)
            wait_until(lambda board=board, target=target: board.words[BATCH] >= target, "it has run for a while")  # type: ignore[misc]
            for _ in range(dice.randrange(2000)):
                pass  # somewhere between two steps
            child.kill()
            child.communicate()

            batch = board.words[BATCH] - 1
            all_rows = [row.task for row in board.rows()]
            assert all_rows == [f"{batch}.{row}" for row in range(100)]
            executing, finished = board.executing(), names_in(board.last_outcomes())
            unstarted = [all_rows[index] for index in board.unstarted()]
            done = set(finished)
            running = set() if executing is None else {all_rows[executing.row]} - done
            # What was sent is gone from the outcomes, all of it or nothing.
            assert not done or done | running | set(unstarted) == set(all_rows)
            assert len(done) + len(running) + len(unstarted) == len(done | running | set(unstarted))
            assert f'["{batch}.0",1,'.encode() in board.history()
            assert f'["{batch + 1}.0",1,'.encode() not in board.history()
            board.close()

    def test_the_lock_dies_with_its_holder_and_a_frozen_holder_does_not_stop_the_agent(self, agent: AgentBoard) -> None:
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(agent.descriptor)],
            pass_fds=(agent.descriptor,),
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        child.stdout.readline()
        os.kill(child.pid, signal.SIGSTOP)

        with agent.locked() as locked:
            assert not locked

        child.kill()
        child.communicate()
        with agent.locked() as locked:
            assert locked

    def test_words_are_where_both_sides_look(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        processor.words[STATUS] = 3
        agent.words[INTERRUPT] = 2**63

        assert agent.words[STATUS] == 3
        assert processor.words[INTERRUPT] == 2**63
        assert agent.words[START] == agent.words[FINISHED] == 0


class TestOutcomesOfTheLastSeconds:
    def test_what_was_sent_after_a_position_can_be_read_again(
        self, agent: AgentBoard, processor: ProcessorBoard
    ) -> None:
        processor.hold(rows("a", "b", "c"))
        walk(processor, "a")
        processor.sent()
        position = agent.position()
        assert processor.start(1, clock_ns())
        processor.finish(outcome("b"))
        processor.sent()
        assert processor.start(2, clock_ns())

        assert [row[0] for row in agent.outcomes_since(position)] == ["b"]
        assert [row[0] for row in agent.outcomes_since(0)] == ["a", "b"]
        assert processor.unsent() == b""

    def test_what_was_finished_and_not_sent_is_among_them(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        processor.hold(rows("a", "b"))
        walk(processor, "a", "b")

        assert [row[0] for row in agent.outcomes_since(0)] == ["a", "b"]
        assert names_in(processor.unsent()) == ["a", "b"]

    def test_they_go_on_over_the_end_of_their_memory(self, agent: AgentBoard, processor: ProcessorBoard) -> None:
        sizes = OUTCOMES_BYTES // 1500
        positions = {}
        for number in range(2 * sizes + 7):
            name = f"n{number}"
            processor.hold(rows(name))
            assert processor.start(0, clock_ns())
            processor.finish(orjson.dumps([name, 1, "success", "A" * 1450, 1, 1, 1, None]))
            processor.sent()
            positions[number] = agent.position()
        last = 2 * sizes + 6
        assert agent.words[LAP] == 2

        for back in (0, 1, 10, 500):
            found = [row[0] for row in agent.outcomes_since(positions[last - back])]
            assert found == [f"n{number}" for number in range(last - back + 1, last + 1)]
        everything = [row[0] for row in agent.outcomes_since(0)]
        assert everything == [f"n{number}" for number in range(last - len(everything) + 1, last + 1)]
        assert len(everything) > sizes * 0.9

    def test_what_is_held_is_what_executes_and_what_would_be_next(
        self, agent: AgentBoard, processor: ProcessorBoard
    ) -> None:
        processor.hold(rows("a", "b", "c", "d"))
        walk(processor, "a")
        assert processor.start(1, clock_ns())
        agent.take(3)

        assert [row.task for row in agent.held()] == ["b", "c"]
