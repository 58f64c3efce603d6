"""The lock of a future: made when somebody waits, and never for one that is done before.

A future is *decided* once, under `deciding`, one lock for all futures that is held for the length of a few statements:

- nobody has waited when the outcome comes: its state becomes final then and there. It will never have a gate, and
  needs none, because nothing about it changes any more.
- somebody waits first: it gets a gate. From then on its state changes only while the gate is held, as in the standard
  library, whose `wait` and `as_completed` rely on that: they take all Conditions, look at the states several times,
  and expect the same answer.

Why no wake-up is lost: whoever waits first makes the gate and looks at the state under it. Either the gate is made
before the outcome decides, which then finds it, waits for it to be released (the waiter is inside `Condition.wait`,
or has left its mark among the waiters) and notifies; or the outcome decides first, and then the waiter finds a final
state instead of a gate. `deciding` makes these two the only orders. The payload is stored before, so that whoever
sees a final state sees the outcome too.

A gate may be held for good: `wait` and `as_completed` take all gates in a loop, and Ctrl-C in the middle of it leaves
those locked that it had. Only the thread that was interrupted can still take them. So the I/O thread never insists
on a gate: it tries again later, and at the end of a session it settles the future without. Who entered at that moment
might then miss the outcome, but in time only a gate that nobody will ever release is passed by.

Nothing else is locked inside `deciding`. It is reentrant: the garbage collector may run anybody's `__del__` there.

(`future.__dict__.setdefault` could decide without a lock. But CPython 3.11 corrupts memory when two threads ask for an
object's `__dict__` for the first time while the garbage collector runs: futures keep all that is theirs in slots.)
"""

from __future__ import annotations

import os
import threading
from typing import Any

deciding = threading.RLock()


class Gate(threading.Condition):
    """The Condition of a future for which somebody waits, and who they are."""

    def __init__(self) -> None:
        super().__init__()
        self.waiters: list[Any] = []
        """Those of `concurrent.futures.wait` and `as_completed`."""
        self.callbacks: list[Any] = []
        self.watchers: list[Any] = []
        """The client's own callbacks, which wait for nothing: they are called by whoever settles the future."""


class NothingToLock:
    """Stands for the gate of a future that was done before anybody waited."""

    def __init__(self) -> None:
        self.waiters = NobodyWaits()

    @property
    def callbacks(self) -> list[Any]:
        """None can be added any more: they are called at once."""
        return []

    def acquire(self, *_: Any, **__: Any) -> bool:
        return True

    def release(self) -> None:
        pass

    def notify_all(self) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass


class NobodyWaits(list[Any]):
    """`wait` and `as_completed` enter themselves everywhere, even where they need not."""

    def append(self, item: Any) -> None:
        pass

    def remove(self, item: Any) -> None:
        pass


OPEN_GATE = NothingToLock()


def _after_fork() -> None:
    """In the forked process the lock may be held by a thread that does not exist there."""
    global deciding
    deciding = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
