"""A processor that a test plays: its board, written by hand, and a process that does nothing."""

from __future__ import annotations

import os
import subprocess

from gristmill_worker.board import AgentBoard, ProcessorBoard
from gristmill_worker.processors import Processor


class PlayedProcessor:
    """Both sides of it."""

    def __init__(self) -> None:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        board = AgentBoard()
        self.board = ProcessorBoard(os.dup(board.descriptor))
        """The processor's side."""
        read_end, leash = os.pipe()
        os.close(read_end)
        self.processor = Processor("p1", board, child, leash)
        """As its agent holds it."""

    def end(self) -> None:
        """Nothing is left of it."""
        self.processor.kill()
        self.processor.wait()
        self.processor.close()
        self.board.close()
