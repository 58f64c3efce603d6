"""What people order: requests to the schedulers, as everybody sends them, with who and why.

    orders = Orders("redis://localhost:6379/0", Keys("default"))
    orders.cancel(["k3JxQm9aTz.0000042"], by="ada", reason="wrong input")

An order is applied when a scheduler has read it; what became of it stands in the stream `audit`. Each may be sent
twice: the second changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from gristmill.protocol.keys import Keys
from gristmill.protocol.kinds import BATCH_TASKS, STREAM_OF, Request
from gristmill.protocol.messages import (
    CancelClientMessage,
    CancelMessage,
    Message,
    OrderWorkerMessage,
    PauseMessage,
    RetryMessage,
    encode,
)
from gristmill.store.connection import Connection

REASON_LENGTH = 300


class Orders:
    """Sends orders to the schedulers of one namespace.

    Every method raises ConnectionLostError when Redis is away and RedisRefusedError when it refuses; the order may
    have been sent all the same, and can be sent again.
    """

    def __init__(self, address: str, keys: Keys) -> None:
        self.address = address
        self.keys = keys

    def cancel(self, tasks: Sequence[str], *, by: str = "", reason: str = "") -> None:
        """Cancel tasks, whoever submitted them. With `by` it stands in the audit."""
        self._send(
            *(
                (Request.CANCEL, CancelMessage(tasks=list(tasks[at : at + BATCH_TASKS]), by=by, reason=_cut(reason)))
                for at in range(0, len(tasks), BATCH_TASKS)
            )
        )

    def cancel_client(self, client: str, *, by: str, reason: str = "") -> None:
        """Cancel all tasks that a client has now."""
        self._send((Request.CANCEL_CLIENT, CancelClientMessage(client=client, by=by, reason=_cut(reason))))

    def retry(self, task: str, *, by: str, reason: str = "") -> None:
        """Run a task now that failed and waits for its next attempt."""
        self._send((Request.RETRY, RetryMessage(task=task, by=by, reason=_cut(reason))))

    def worker(self, worker: str, order: Literal["drain", "stop"], *, by: str, reason: str = "") -> None:
        """Tell a worker to leave: when what executes has ended, or at once."""
        message = OrderWorkerMessage(worker=worker, order=order, by=by, reason=_cut(reason))
        self._send((Request.ORDER_WORKER, message))

    def pause(self, paused: bool, *, by: str, reason: str = "") -> None:
        """Assign no task any more, or again."""
        self._send((Request.PAUSE, PauseMessage(paused=paused, by=by, reason=_cut(reason))))

    def _send(self, *requests: tuple[Request, Message]) -> None:
        connection = Connection(self.address, name=f"gristmill-orders-{os.getpid()}")
        connection.connect()
        try:
            for kind, message in requests:
                stream = getattr(self.keys, STREAM_OF[kind])()
                connection.request("XADD", stream, "*", kind.value, encode(message))
        finally:
            connection.close()


def _cut(reason: str) -> str:
    return reason[:REASON_LENGTH]
