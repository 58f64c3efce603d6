"""The output of a task that its client wants to see: two files without names, which agent and processor share.

While such a task executes, the descriptors 1 and 2 are these files, so that what child processes and C code write is
in them too. The agent reads whole lines from them now and then, the processor what is left when the task has ended;
the agent that as well when the processor has died. Both read by the same descriptor, whose place in the file they
share, under the lock of the board. Needs /proc to open a file once more, so without it such output goes to the log.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from gristmill_worker.board import NOTICES, START
from gristmill_worker.nameless import nameless_file

if TYPE_CHECKING:
    from gristmill_worker.processors import Processor
    from gristmill_worker.reports import Reports

MOST_BYTES = 64 * 1024
"""So much of one stream is taken at once; what is more is left out and its lines are counted."""
LONGEST_LINE = 8192
LOOK_NS = 100_000_000
"""How often the agent reads what an executing task has printed."""
BEGIN_ANEW_BYTES = 16 << 20
"""A file that has been read to its end begins anew from this size on."""
_COUNTED_AT_ONCE = 1 << 20


class Taken(NamedTuple):
    """What was read."""

    lines: list[tuple[str, str]]
    """(`out` or `err`, text without the line's end)."""
    dropped: int
    """Lines that were left out behind them."""
    number: int
    """0, 1, 2... within one attempt of the task: replicas may apply what is sent in any order."""


class Capture:
    """One pair of files."""

    def __init__(self, out: int, error: int) -> None:
        self.descriptors = (out, error)

    @classmethod
    def new(cls) -> Capture:
        """Two new files."""
        out = nameless_file("output")
        try:
            return cls(out, nameless_file("errors"))
        except OSError:
            os.close(out)
            raise

    def open_to_write(self) -> tuple[int, int] | None:
        """Descriptors that append to the files; None where that cannot be."""
        try:
            out, error = (
                os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                for number in self.descriptors
            )
        except OSError:
            return None
        return out, error

    def take(self, words: memoryview, *, whole: bool) -> Taken | None:
        """What was written since the last time: whole lines, and the unfinished one too when the task has ended.

        None when that is nothing. Under the lock of the board, whose `words` count.
        """
        lines: list[tuple[str, str]] = []
        dropped = 0
        for stream, descriptor in zip(("out", "err"), self.descriptors, strict=True):
            data, left_out = _read(descriptor, whole=whole)
            dropped += left_out
            lines += [(stream, line.decode("utf-8", "backslashreplace")) for line in _split(data)]
            if whole or os.lseek(descriptor, 0, os.SEEK_CUR) >= max(os.fstat(descriptor).st_size, BEGIN_ANEW_BYTES):
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
        if not lines and not dropped:
            return None
        words[NOTICES] += 1
        return Taken(lines, dropped, words[NOTICES] - 1)

    def close(self) -> None:
        """Let go of them."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def _read(descriptor: int, *, whole: bool) -> tuple[bytes, int]:
    """Bytes, and how many lines behind them were left out."""
    data = os.read(descriptor, MOST_BYTES)
    if len(data) == MOST_BYTES:
        dropped = 0
        while more := os.read(descriptor, _COUNTED_AT_ONCE):
            dropped += more.count(b"\n")
        return data, dropped
    if not whole and (end := data.rfind(b"\n") + 1) < len(data) and len(data) - end < LONGEST_LINE:
        os.lseek(descriptor, end - len(data), os.SEEK_CUR)
        data = data[:end]
    return data, 0


def _split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line[begin : begin + LONGEST_LINE] for line in lines for begin in range(0, len(line) or 1, LONGEST_LINE)]


def send_captured(processor: Processor, reports: Reports, now: int, *, dead: bool = False) -> int | None:
    """Agent: send what the executing task has printed; when to look again (`clock_ns`), None for no reason to."""
    board, capture = processor.board, processor.capture
    executing = board.executing()
    if executing is None or capture is None:
        return None
    start = board.words[START]
    if processor.captured_start == start and not processor.captures:
        return None
    with board.locked() as locked:
        executing = board.executing() if locked or dead else None
        if executing is None:
            return now + LOOK_NS
        held = board.rows()[executing.row]
        processor.captured_start, processor.captures = executing.start, bool(held.run.get("output"))
        if not processor.captures:
            return None
        taken = capture.take(board.words, whole=dead)
    if taken is not None:
        reports.output(held.task, held.attempt, *taken)
    return now + LOOK_NS
