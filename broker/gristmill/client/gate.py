"""What stands for the Condition and the waiters of a future that was done before anybody waited: see `future`."""

from __future__ import annotations

from typing import Any


class NothingToLock:
    """Stands for the Condition of a future that was done before anybody waited: its state changes no more."""

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
    """Stands for the waiters of such a future: `wait` and `as_completed` enter themselves everywhere."""

    def append(self, item: Any) -> None:
        pass

    def remove(self, item: Any) -> None:
        pass


NOTHING_TO_LOCK = NothingToLock()
NOBODY_WAITS = NobodyWaits()
