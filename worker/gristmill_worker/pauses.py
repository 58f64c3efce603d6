"""While a task waits for other tasks: its processor gives the slot up, and takes part in their running if it must.

The client calls `pause` in the thread that waits (`gristmill.client.waits`). The word WAITING in the board tells the
agent, which has another processor take the slot. What was finished before goes out at once: somebody may wait for it.

When no other processor can take it (the word ALONE), the main thread runs children of its task itself: the client
claims one that has not started, and it runs on the stack of the waiting task, as a function that this one calls would.
Other threads cannot do that: signals, by which tasks are stopped, only reach the main thread. For a task that waits in
them only (the word HELPLESS) the agent may start a processor beyond its bound. A process that the task has started
waits for itself alone, even if it is a fork of the processor.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from gristmill_worker.board import ALONE, HELPLESS, WAITING, ProcessorBoard
from gristmill_worker.interrupts import Interrupts
from gristmill_worker.link import Link, unpack_entry
from gristmill_worker.stack import MOST_CLAIMED, ProcessorStack

if TYPE_CHECKING:
    from gristmill.client.nested import Pause

FIRST_SECONDS, LONGEST_SECONDS = 0.001, 0.1
"""A waiting main thread looks this often whether it is alone: often at first, then twice as long each time."""

_USUAL_FRAMES = sys.getrecursionlimit()


class Runner(Protocol):
    """The processor."""

    def run_claimed(self, fields: dict[bytes, bytes], stack: ProcessorStack, below: int) -> None:
        """Run a task on top of the one that waits, whose START is `below`; 0 for one that nothing interrupts any more.

        Called while nothing may be interrupted.
        """

    def priority_of(self, task: str) -> int:
        """The priority of a task that executes here."""


class Pauses:
    """Of one processor; made in its main thread."""

    def __init__(
        self,
        board: ProcessorBoard,
        link: Link,
        interrupts: Interrupts,
        wake_agent: Callable[[], None],
        worker: str,
        runner: Runner,
    ) -> None:
        self.worker = worker
        self._words = board.words
        self._link = link
        self._interrupts = interrupts
        self._wake_agent = wake_agent
        self._runner = runner
        self.priority_of = runner.priority_of
        self._stack = ProcessorStack(board)
        self._pid = os.getpid()
        self._main = threading.get_ident()
        self._lock = threading.Lock()
        self._waiting: dict[int, list[bool]] = {}
        """By START: of each thread that waits, whether it is the main thread. Threads may outlive their task."""

    def pause(self, pause: Pause, timeout: float | None) -> bool:
        """Wait, and say that the task waits; answers whether what was waited for has come."""
        if os.getpid() != self._pid:
            return pause.sleep(timeout)  # a process that the task has forked: board and connection are not its own
        deadline = None if timeout is None else time.monotonic() + timeout
        start = self._stack.top_start()
        is_main = threading.get_ident() == self._main
        if is_main:
            self._flush()
        self._enter(start, is_main)
        try:
            seconds = FIRST_SECONDS
            while not pause.is_set():
                left = LONGEST_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                if is_main and self._take_part(pause, start):
                    seconds = FIRST_SECONDS
                    continue
                pause.sleep(min(left, seconds))
                seconds = min(2 * seconds, LONGEST_SECONDS)
            return True
        finally:
            self._leave(start, is_main)
            if is_main:
                pause.end_claims()

    def _flush(self) -> None:
        """Only the main thread may use the processor's connection, and no interrupt may come between it and a reply."""
        interrupts = self._interrupts
        running, interrupts.running = interrupts.running, 0
        self._link.flush()
        interrupts.resume(running)

    def _take_part(self, pause: Pause, start: int) -> bool:
        """Run a child if there is one to be run here; answers whether one was."""
        interrupts = self._interrupts
        running, interrupts.running = interrupts.running, 0  # an interrupt must not lose a call that has come
        call = pause.take_call()
        if call is None:
            interrupts.resume(running)
            if self._words[ALONE] and self._interrupts.running:
                if self._stack.height >= MOST_CLAIMED:
                    raise RecursionError(
                        f"tasks wait for tasks that wait for tasks, {MOST_CLAIMED} deep in one processor, and no other "
                        "is free: start more workers, raise max_processors, or nest less deeply"
                    )
                pause.claim(self.worker)
            return False
        self._leave(start, True)
        try:
            self._runner.run_claimed(unpack_entry(call), self._stack, running)
        finally:
            self._enter(start, True)
        return True

    def _enter(self, start: int, is_main: bool) -> None:
        with self._lock:
            self._waiting.setdefault(start, []).append(is_main)
            self._show(start)

    def _leave(self, start: int, is_main: bool) -> None:
        with self._lock:
            threads = self._waiting[start]
            threads.remove(is_main)
            if not threads:
                del self._waiting[start]
            self._show(start)

    def _show(self, start: int) -> None:
        """Let the agent see who waits, unless another task executes by now."""
        if start != self._stack.top_start():
            return
        threads = self._waiting.get(start)
        waiting = start if threads else 0
        helpless = start if threads and not any(threads) else 0
        words = self._words
        if words[WAITING] != waiting or words[HELPLESS] != helpless:
            words[WAITING], words[HELPLESS] = waiting, helpless
            self._wake_agent()


@contextlib.contextmanager
def frames_for_one_more() -> Iterator[None]:
    """A claimed task may call as deeply as any other, although it lies on the frames of those that wait."""
    before, used = sys.getrecursionlimit(), 0
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        used += 1
    sys.setrecursionlimit(max(before, used + _USUAL_FRAMES))
    try:
        yield
    finally:
        with contextlib.suppress(RecursionError):
            sys.setrecursionlimit(before)
