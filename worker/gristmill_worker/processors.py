"""Starting, counting and ending processors.

Each is a fresh interpreter, never a fork of this one (which has threads), in a session and process group of its own:
signals of a terminal or for the agent's group do not reach tasks, and what a task has started ends with it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import subprocess
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from gristmill.interpreter import python
from gristmill_worker.board import (
    FINISHED,
    FRESH_UNTIL,
    HELPLESS,
    LEAVE,
    LEAVING,
    LEFT,
    PARKED,
    READY,
    SERVER,
    START,
    STATUS,
    WAITING,
    AgentBoard,
    Executing,
    Held,
    clock_ns,
)
from gristmill_worker.capture import Capture
from gristmill_worker.handover import Handover, environment
from gristmill_worker.nameless import nameless_file
from gristmill_worker.stack import Level, levels, top_start

logger = logging.getLogger(__name__)

SECOND = 1_000_000_000
STACK_BYTES = 4096
CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
PAUSES_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Before a new processor is started after 1, 2, ... in a row that ended before their first task."""


class Stop:
    """The agent is ending what a processor executes."""

    def __init__(self, start: int, held: Held, reason: int, kill_at: int) -> None:
        self.start = start
        self.held = held
        self.reason = reason
        """`board.CANCEL` or `board.TIME_LIMIT`."""
        self.kill_at = kill_at
        """Of `clock_ns`."""
        self.requests: list[int] = []
        """Numbers of the scheduler's requests that want an answer."""


class Deadline(NamedTuple):
    """The time limit of what executes."""

    start: int
    at: int
    """Of `clock_ns`."""


class Processor:
    """One processor, as its agent holds it."""

    def __init__(
        self,
        name: str,
        board: AgentBoard,
        process: subprocess.Popen[bytes],
        leash: int,
        stack: int = -1,
        bell: int = -1,
        capture: Capture | None = None,
    ) -> None:
        self.name = name
        self.board = board
        self.capture = capture
        """Where what tasks print lies, when their clients want to see it."""
        self.captured_start = 0
        """The START of which it is known whether its output is captured, and whether it is."""
        self.captures = False
        self.pid = process.pid
        self.was_ready = False
        self.exit_status: int | None = None
        """Its exit code, or minus the signal's number, once it is dead."""
        self.stops: dict[int, Stop] = {}
        """What is being stopped, by START: what executes, or waits below it."""
        self.stopped: list[tuple[Stop, bool]] = []
        """What was to be stopped and has ended, and whether there is an outcome; nobody has answered yet."""
        self.deadline: Deadline | None = None
        """Of the row that executes; those of claimed tasks are looked up."""
        self.settled = 0
        """The START that was seen to be long, and for which all is done."""
        self.left_since = 0
        self.parked_since = 0
        """Since when it stands by (`clock_ns`); 0 when it does not."""
        self.positions: deque[tuple[int, int]] = deque()
        """How far its outcomes had come (`board.position`) at the beats of the last seconds, with the time."""
        self._process = process
        self._leash = leash
        self._stack = stack
        self._bell = bell

    @property
    def ready(self) -> bool:
        """Whether it takes tasks."""
        return self.board.words[STATUS] == READY

    @property
    def parked(self) -> bool:
        """Whether it stands by."""
        return self.board.words[STATUS] == PARKED

    @property
    def waiting(self) -> bool:
        """Whether its task waits for other tasks: it holds no slot then."""
        words = self.board.words
        return words[START] != words[FINISHED] and words[WAITING] == top_start(self.board)

    @property
    def helpless(self) -> bool:
        """Whether its task waits where it cannot run its children itself."""
        return self.waiting and self.board.words[HELPLESS] == top_start(self.board)

    def direct(self, leaving: int) -> None:
        """Set what it shall do when it falls free: go on (0), LEAVE or PARK; ends its standing by if need be."""
        words = self.board.words
        if words[LEAVING] not in (leaving, LEAVE):  # one that leaves does not come back
            words[LEAVING] = leaving
            self.parked_since = 0  # what it may read before it stands by is to be given back
            if words[STATUS] == PARKED:
                self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full, so it will wake; or closed with its reader
            os.write(self._bell, b".")

    @property
    def has_done_nothing(self) -> bool:
        """Whether it ended of itself without having started a task."""
        words = self.board.words
        return words[START] == 0 and words[STATUS] != LEFT

    def executing(self) -> tuple[Held, Executing] | None:
        """What it executes; None when nothing, or when it cannot be told now."""
        levels = self.levels()
        return levels[-1] if levels else None

    def levels(self) -> list[Level]:
        """What it executes and, below it, what waits for that; empty when nothing, or when it cannot be told now."""
        if self.board.executing() is None:
            return []
        with self.board.locked() as locked:
            return levels(self.board) if locked else []

    def interrupt(self, stack: Sequence[Level], level: Level, reason: int, kill_at: int) -> Stop:
        """Ask a task of the stack to end. Inside `board.locked`: until it is left, no other task can start.

        One on top of another that is being stopped ends with that one, whose interrupt must not be overwritten.
        """
        held, executing = level
        below = itertools.takewhile(lambda one: one.executing.start != executing.start, stack)
        if not any(one.executing.start in self.stops for one in below):
            self.board.interrupt(executing.start, reason)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)
        stop = self.stops[executing.start] = Stop(executing.start, held, reason, kill_at)
        return stop

    def note_ended(self, stack: Sequence[Level]) -> None:
        """Note what was to be stopped and is no more on the stack. Inside `board.locked`, or of a dead processor."""
        if self.stops:
            starts = {executing.start for _, executing in stack}
            for stop in list(self.stops.values()):
                if stop.start not in starts:
                    del self.stops[stop.start]
                    self.stopped.append((stop, not self.board.was_stopped(stop.start)))

    def kill(self) -> None:
        """End it and all that its tasks have started, at once."""
        for kill in (os.killpg, os.kill):  # its task may have left the group
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Whether it is dead; then nothing of its process group is left either."""
        if self.exit_status is None and self._is_zombie():
            self.kill()  # while its pid still is its own: afterwards the number may be anybody's
            self.exit_status = self._process.wait()
        return self.exit_status is not None

    def _is_zombie(self) -> bool:
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self) -> None:
        """Until it is dead; after `kill`."""
        if self.exit_status is None:
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self.kill()
            self.exit_status = self._process.wait()

    def crash_stack(self) -> str:
        """The Python stack that it wrote when it crashed; empty when it did not, though a process of its own might."""
        if self._stack < 0 or -(self.exit_status or 0) not in CRASHES:
            return ""
        written = os.fstat(self._stack).st_size
        text = os.pread(self._stack, STACK_BYTES, max(0, written - STACK_BYTES)).decode(errors="backslashreplace")
        _, error, stack = text.rpartition("Fatal Python error")
        return (error + stack).partition("\nExtension modules:")[0].strip()

    def close(self) -> None:
        """Let go of what it shared with us; it must be dead."""
        self.board.close()
        os.close(self._leash)
        if self._stack >= 0:
            os.close(self._stack)
        if self._bell >= 0:
            os.close(self._bell)
        if self.capture is not None:
            self.capture.close()


class Processors:
    """All processors of one worker id."""

    def __init__(self, wake: int) -> None:
        self.alive: list[Processor] = []
        self.fresh_until = 0
        self.server = 0
        """`board.server_word` of the server from which they may read."""
        self._wake = wake
        self._started = 0
        self._failures = 0
        self.not_before = 0
        """No new one before this time (`clock_ns`)."""

    def start_missing(self, handover: Handover, missing: int) -> None:
        """Start so many more, unless the last ones died before they were ready; only in the main thread.

        What the system has not got now, such as memory or descriptors, it may have later.
        """
        for _ in range(missing):
            if clock_ns() < self.not_before:
                return
            self._started += 1
            name = f"p{self._started}"
            try:
                self.alive.append(self._start(handover._replace(processor=name)))
            except OSError as error:
                pause = self._note_failure()
                logger.error(
                    "a processor cannot be started; trying again",
                    extra={"processor": name, "cause": str(error), "pause_seconds": pause},
                )

    def _start(self, handover: Handover) -> Processor:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            board = AgentBoard()
            ours.callback(board.close)
            read_end, leash = os.pipe()
            theirs.callback(os.close, read_end)
            ours.callback(os.close, leash)
            stack = nameless_file("stack")
            ours.callback(os.close, stack)
            capture = Capture.new()
            ours.callback(capture.close)
            out, error = capture.descriptors
            bell_end, bell = os.pipe()
            theirs.callback(os.close, bell_end)
            ours.callback(os.close, bell)
            os.set_blocking(bell, False)
            board.words[FRESH_UNTIL] = self.fresh_until
            board.words[SERVER] = self.server
            handover = handover._replace(
                board=board.descriptor,
                wake=self._wake,
                leash=read_end,
                stack=stack,
                bell=bell_end,
                out=out,
                error=error,
            )
            process = subprocess.Popen(
                [*python(), "-m", "gristmill_worker.processor"],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=(board.descriptor, self._wake, read_end, stack, bell_end, out, error),
                env=environment(handover),
                start_new_session=True,
            )
            ours.pop_all()
        logger.debug("processor started", extra={"processor": handover.processor, "pid": process.pid})
        return Processor(handover.processor, board, process, leash, stack, bell, capture)

    def keep_fresh(self, until: int) -> None:
        """The agent was heard: processors may start tasks until then (`clock_ns`)."""
        self.fresh_until = until
        for processor in self.alive:
            processor.board.words[FRESH_UNTIL] = until

    def note_ready(self) -> bool:
        """Whether one has become ready since the last call."""
        news = False
        for processor in self.alive:
            if not processor.was_ready and processor.ready:
                processor.was_ready = news = True
                self._failures = 0
        return news

    def take_dead(self) -> list[Processor]:
        """Those that have ended since the last call; they are no longer among the living."""
        dead = [processor for processor in self.alive if processor.has_ended()]
        for processor in dead:
            self.alive.remove(processor)
            if processor.has_done_nothing:
                pause, how = self._note_failure(), describe_end(processor.exit_status)
                logger.error(
                    "a processor ended before its first task; its output above may say why; trying again",
                    extra={"processor": processor.name, "how": how, "pause_seconds": pause},
                )
        return dead

    def _note_failure(self) -> float:
        """For how many seconds none is started."""
        pause = PAUSES_SECONDS[min(self._failures, len(PAUSES_SECONDS) - 1)]
        self._failures += 1
        self.not_before = clock_ns() + int(pause * SECOND)
        return pause

    def kill_all(self) -> list[Processor]:
        """End all of them and wait for it; they are no longer among the living."""
        dead, self.alive = self.alive, []
        for processor in dead:
            processor.kill()
        for processor in dead:
            processor.wait()
        return dead


def describe_end(status: int | None) -> str:
    """How a process ended, for people."""
    if status is None:
        return "it has not ended"
    if status >= 0:
        return f"it ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    return f"it was killed by signal {-status} ({name})"
