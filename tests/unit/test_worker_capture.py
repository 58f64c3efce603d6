"""Agent and processor take what a task prints by turns, and count together."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gristmill_worker.board import AgentBoard, ProcessorBoard, clock_ns, row_text
from gristmill_worker.capture import Capture, Taken


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


@pytest.fixture
def capture() -> Iterator[Capture]:
    capture = Capture.new()
    yield capture
    capture.close()


def test_what_is_taken_from_one_task_is_numbered_whoever_takes_it(
    agent: AgentBoard, processor: ProcessorBoard, capture: Capture
) -> None:
    writers = capture.open_to_write()
    assert writers is not None
    processor.hold([row_text(name, b"1", b"5-0", b'"f"') for name in (b"a", b"b")])
    for row in range(2):
        processor.start(row, clock_ns())
        os.write(writers[0], b"one\ntw")
        assert capture.take(agent.words, whole=False) == Taken([("out", "one")], 0, 0)
        assert capture.take(agent.words, whole=False) is None
        os.write(writers[0], b"o\nthree")
        assert capture.take(agent.words, whole=False) == Taken([("out", "two")], 0, 1)
        assert capture.take(processor.words, whole=True) == Taken([("out", "three")], 0, 2)
        assert capture.take(processor.words, whole=True) is None
        os.write(writers[1], b"of a child\n")
        assert capture.take(agent.words, whole=True) == Taken([("err", "of a child")], 0, 3)
        processor.finish(b"[]")
    for writer in writers:
        os.close(writer)
