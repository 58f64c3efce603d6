"""`gather`: the values of several futures."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any


def gather(futures: Iterable[Future[Any]], *, timeout: float | None = None) -> list[Any]:
    """The values of the futures in their order; the first exception (in order) is raised.

    Raises CancelledError for one that was cancelled, and TimeoutError when not all have ended within `timeout` seconds.

        gather([client.submit(abs, -1), client.submit(abs, -2)])  # [1, 2]
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    return [
        future.result(None if deadline is None else max(0.0, deadline - time.monotonic())) for future in list(futures)
    ]
