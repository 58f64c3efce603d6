"""The stack of a processor: tasks that it runs while those below them wait, as the agent sees it.

At the bottom is the row of the batch that executes (`board.executing`); on it lie claimed tasks, each in a slot of the
shared memory, with the number of the slot below. One word, TOP, says which slot is on top, 0 for none: its store is
what puts a task on the stack or takes it off. Slots are used by turns, so that the last few hundred can still be found.
"""

from __future__ import annotations

import fcntl
import struct
from typing import NamedTuple

import orjson

from gristmill_worker.board import (
    CLAIMED_AT,
    CLAIMED_SLOTS,
    SLOT_BYTES,
    START,
    TOP,
    AgentBoard,
    Executing,
    Held,
    ProcessorBoard,
)

_HEAD = struct.Struct("QQQQ")
"""START, when it started, the slot below plus 1, length of the row."""
MOST_CLAIMED = CLAIMED_SLOTS * 3 // 4
"""The stack of one processor is at most so high."""
_CLAIMED = 0xFFFF
"""Where the START of a row has its index plus 1; more than any."""


class Level(NamedTuple):
    """One task on the stack."""

    held: Held
    executing: Executing


class ProcessorStack:
    """The processor's side."""

    def __init__(self, board: ProcessorBoard) -> None:
        self._board = board
        self._words = board.words
        self._slots: list[int] = []
        self._next = 0
        self._count = 0

    @property
    def height(self) -> int:
        """How many claimed tasks there are."""
        return len(self._slots)

    def top_start(self) -> int:
        """The START of what executes."""
        return self._start_of(self._slots[-1]) if self._slots else self._words[START]

    def _start_of(self, slot: int) -> int:
        return int(_HEAD.unpack_from(self._board.memory, CLAIMED_AT + slot * SLOT_BYTES)[0])

    def push(self, row: bytes, now: int) -> int:
        """A claimed task (a row of `board.row_text`) starts; answers its START."""
        while self._next in self._slots:
            self._next = (self._next + 1) % CLAIMED_SLOTS
        slot, self._next = self._next, (self._next + 1) % CLAIMED_SLOTS
        self._count += 1
        start = self._count << 16 | _CLAIMED
        below = self._slots[-1] + 1 if self._slots else 0
        at = CLAIMED_AT + slot * SLOT_BYTES
        text = _HEAD.pack(start, now, below, len(row)) + row
        if len(text) > SLOT_BYTES:
            raise ValueError(f"expected a row of at most {SLOT_BYTES - _HEAD.size} bytes; got {len(row)}")
        self._board.memory[at : at + len(text)] = text
        self._set_top(slot + 1)
        self._slots.append(slot)
        return start

    def pop(self, *, stopped: bool) -> None:
        """What executes has ended; its outcome is in the board, unless it was `stopped`."""
        start = self.top_start()
        self._slots.pop()
        self._set_top(self._slots[-1] + 1 if self._slots else 0, start if stopped else 0)

    def _set_top(self, top: int, stopped: int = 0) -> None:
        """Under the lock: what the agent wants to interrupt must not end meanwhile."""
        fcntl.lockf(self._board.descriptor, fcntl.LOCK_EX, 1)
        try:
            if stopped:
                self._board.note_stop(stopped)
            self._words[TOP] = top
        finally:
            fcntl.lockf(self._board.descriptor, fcntl.LOCK_UN, 1)


def top_start(board: AgentBoard) -> int:
    """The START of what executes, as a hint."""
    top = board.words[TOP]
    return int(_HEAD.unpack_from(board.memory, CLAIMED_AT + (top - 1) * SLOT_BYTES)[0]) if top else board.words[START]


def levels(board: AgentBoard) -> list[Level]:
    """All that is on the stack, the bottom first; empty when nothing executes. Needs the lock, or a dead processor."""
    bottom = board.executing()
    if bottom is None:
        return []
    found: list[Level] = []
    top = board.words[TOP]
    while top and len(found) < CLAIMED_SLOTS:
        at = CLAIMED_AT + (top - 1) * SLOT_BYTES
        start, started_at, below, length = _HEAD.unpack_from(board.memory, at)
        task, attempt, entry, name, run = orjson.loads(board.memory[at + _HEAD.size : at + _HEAD.size + length])
        found.append(Level(Held(task, attempt, entry, name, run or {}), Executing(start, -1, started_at)))
        top = below
    found.append(Level(board.rows()[bottom.row], bottom))
    found.reverse()
    return found
