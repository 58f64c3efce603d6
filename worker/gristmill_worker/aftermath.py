"""What a task may leave behind in its processor that would meet the tasks after it.

- Processes that an interrupted task had started: they end with it. (A task that ended by itself may leave some: that is
  its own decision, and they end with the processor.)
- Resource limits and timers: they are set back; where the system does not allow that, the processor ends after this
  task and a fresh one takes its place.
- A fork of the processor that came back from the task.

Looking for all this costs far more than a short task, so it is only done when something says that there is reason to:
`due`, the one thing that is looked at after every task.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_CHANGERS: tuple[tuple[ModuleType, str], ...] = (
    (resource, "setrlimit"), (resource, "prlimit"), (signal, "setitimer"), (signal, "alarm"),
)  # fmt: skip
ROUNDS = 10
"""Processes may start others while they are being ended: so often it is looked again."""


class Aftermath:
    """Of the tasks of this processor; made once, before the first."""

    def __init__(self) -> None:
        self.due = False
        """Whether something has happened that must be looked after."""
        self.forked = False
        """This is a child that a task has forked."""
        self._interrupted = False
        self._changed = False
        self._limits = {number: resource.getrlimit(number) for number in _LIMITS}
        os.register_at_fork(after_in_child=self._note_fork)
        for module, name in _CHANGERS:
            if hasattr(module, name):
                setattr(module, name, self._noting(getattr(module, name)))

    def note_interrupt(self) -> None:
        """The task was interrupted."""
        self.due = self._interrupted = True

    def look_after(self) -> bool:
        """Put right what can be; False when this process is not fit for another task."""
        self.due = False
        fit = True
        if self._interrupted:
            self._interrupted = False
            end_company()
        if self._changed:
            self._changed = False
            for timer in _TIMERS:
                signal.setitimer(timer, 0)
            fit = self._set_limits_back()
            self.due = self._changed = False  # that was ourselves
        return fit

    def _set_limits_back(self) -> bool:
        fit = True
        for number, before in self._limits.items():
            if resource.getrlimit(number) != before:
                try:
                    resource.setrlimit(number, before)
                except (ValueError, OSError):
                    fit = False
        return fit

    def _note_fork(self) -> None:
        self.due = self.forked = True

    def _noting(self, change: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(change)
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.due = self._changed = True
            return change(*args, **kwargs)

        return noted


def end_company() -> int:
    """Kill every process that belongs to this one: descendants, and what is left of its session; how many there were.

    Only where there is a /proc; elsewhere they end with the processor.
    """
    killed = 0
    for _ in range(ROUNDS):
        company = list(_company())
        for pid in company:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        if not company:
            break
    return killed


def _company() -> Iterator[int]:
    own = os.getpid()
    parents: dict[int, int] = {}
    ours = {own}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # pid (name, which may hold anything) state parent group session ...
            state, parent, _, session, *_ = entry.read_text().rpartition(")")[2].split()
            pid = int(entry.parent.name)
            if state in "ZX":
                continue
            parents[pid] = int(parent)
            if int(session) == own:
                ours.add(pid)
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours |= more
        grown = bool(more)
    return iter(ours - {own})
