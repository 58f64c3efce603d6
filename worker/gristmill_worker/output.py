"""The standard streams of a processor.

Tasks read from nothing (`input()` raises EOFError) and write into the worker's log: what they print goes line by line
to standard error, marked with the task; what C code and child processes write goes there unmarked.
A task may close the descriptors or set the streams to None: `restore` puts them back for the next one.
"""

from __future__ import annotations

import faulthandler
import fcntl
import io
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined,unused-ignore]

LINE_BYTES = 8192
"""A longer line is written in pieces."""

_FIRST_FREE = 100
"""Our own copy of standard error lies here or above, out of the way of tasks that close what they find."""


class Lines(io.RawIOBase):
    """Writes whole lines, each marked with the task that executes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = b""
        self.task = b""

    def writable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """Where child processes write to that are given this stream."""
        return self._descriptor

    def write(self, data: Buffer) -> int:
        """Take everything; the last, unfinished line waits for its end."""
        taken = bytes(data)
        *lines, self._pending = (self._pending + taken).split(b"\n")
        if len(self._pending) > LINE_BYTES:
            lines.append(self._pending)
            self._pending = b""
        if lines:
            self._put(lines)
        return len(taken)

    def end_line(self) -> None:
        """The task has ended: nothing will be added to its last line."""
        if self._pending:
            line, self._pending = self._pending, b""
            self._put([line])

    def _put(self, lines: list[bytes]) -> None:
        mark = b"task %b: " % self.task if self.task else b""
        pieces = [
            b"%b%b\n" % (mark, line[begin : begin + LINE_BYTES])
            for line in lines
            for begin in range(0, len(line) or 1, LINE_BYTES)
        ]
        try:
            os.write(self._descriptor, b"".join(pieces))
        except OSError:
            pass  # nobody reads the log any more: that is no reason to fail a task


class Output:
    """The three streams, as they shall be for each task."""

    def __init__(self, stack: int) -> None:
        """The log goes to a copy of what the agent gave us as standard error; the Python stack of a crash goes to
        `stack`, a file that the agent looks at.
        """
        self._log = _high_copy(2)
        self._nothing = _high_copy(0)
        self._identities = [_identity(number) for number in (0, 1, 2)]
        sys.stderr = open(self._log, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        faulthandler.enable(file=stack)

    def install(self) -> None:
        """From here on the standard streams are those of tasks; who has taken `sys.stderr` before keeps the log."""
        self._out, self._error = Lines(1), Lines(2)
        self._stdin = open(0, closefd=False)  # noqa: SIM115
        self._stdout = _text(self._out)
        self._stderr = _text(self._error)
        sys.stdin = sys.__stdin__ = self._stdin  # type: ignore[misc]
        sys.stdout = sys.__stdout__ = self._stdout  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self._stderr  # type: ignore[misc]

    def begin(self, task: bytes) -> None:
        """What is printed from now on belongs to this task."""
        self._out.task = self._error.task = task

    def begin_capture(self, out: int, error: int) -> None:
        """What the task prints, by whatever way, goes into these files, unmarked; what it logs too."""
        self._out.task = self._error.task = b""
        os.dup2(out, 1, inheritable=True)
        os.dup2(error, 2, inheritable=True)
        self._handler = logging.StreamHandler(self._stderr)
        self._handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
        logging.getLogger().addHandler(self._handler)

    def end_capture(self) -> None:
        """The task has ended: all that it printed is in the files."""
        logging.getLogger().removeHandler(self._handler)
        self.end()
        _flush_c_streams()
        os.dup2(self._log, 1, inheritable=True)
        os.dup2(self._log, 2, inheritable=True)

    def interlude(self, task: bytes) -> tuple[Any, ...]:
        """Another task runs while this one waits; answers what `resume` puts back."""
        before = (self._out.task, sys.stdin, sys.stdout, sys.stderr)
        self._out.end_line()
        self._error.end_line()
        sys.stdin, sys.stdout, sys.stderr = self._stdin, self._stdout, self._stderr
        self.begin(task)
        return before

    def resume(self, before: tuple[Any, ...]) -> None:
        """The other task has ended."""
        self.end()
        self.begin(before[0])
        sys.stdin, sys.stdout, sys.stderr = before[1:]

    def end(self) -> None:
        """The task has ended; puts right what it did to `sys`."""
        out, error = self._out, self._error
        if out._pending:
            out.end_line()
        if error._pending:
            error.end_line()
        as_they_were = sys.stdout is self._stdout and sys.stderr is self._stderr and sys.stdin is self._stdin
        if not as_they_were or self._stdout.closed or self._stderr.closed or self._stdin.closed:
            self.install()

    def restore(self) -> None:
        """Put right what tasks did to the descriptors 0 to 2, before anything else gets those numbers."""
        for number, source in ((0, self._nothing), (1, self._log), (2, self._log)):
            if _identity(number) != self._identities[number]:
                os.dup2(source, number, inheritable=True)
                self._identities[number] = _identity(number)


def _flush_c_streams() -> None:
    """What C code has printed may lie in its buffers."""
    import ctypes

    ctypes.CDLL(None).fflush(None)


def _text(lines: Lines) -> io.TextIOWrapper:
    buffer = cast("BinaryIO", lines)  # unbuffered: TextIOWrapper needs no more of it than RawIOBase has
    return io.TextIOWrapper(buffer, encoding="utf-8", errors="backslashreplace", write_through=True)


def _high_copy(number: int) -> int:
    return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)


def _identity(number: int) -> tuple[int, int] | None:
    """Which file the descriptor is; None when it is closed."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino
