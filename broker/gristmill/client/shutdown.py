"""`Client.shutdown`: a client asks for everything to end, and is told whether it does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from gristmill.client import batches
from gristmill.errors import ClientClosedError, ConnectionLostError, ProtectedError
from gristmill.store.connection import pack

if TYPE_CHECKING:
    from gristmill.client.session import Session


class ShutdownAnswer:
    """What the schedulers have said."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self._accepted = False

    def set(self, accepted: bool) -> None:
        """The answer is here (I/O thread)."""
        self._accepted = accepted
        self._came.set()

    def wait(self, timeout: float | None) -> bool | None:
        """Whether everything ends; None when no answer came in time."""
        return self._accepted if self._came.wait(timeout) else None


def shut_down(session: Session, timeout: float | None) -> None:
    """Ask, and leave when everything ends. Raises ProtectedError, ConnectionLostError and ClientClosedError."""
    if session.refusal is not None:
        raise ClientClosedError(session.refusal)
    answer = session.shutdown_answer = ShutdownAnswer()
    body = batches.body(client=session.client_id)
    session.outbox.requests.append(pack(("XADD", session.keys.cancels(), "*", "shutdown", body)))
    session.hand_over()
    accepted = answer.wait(timeout)
    if accepted is None:
        raise ConnectionLostError(f"no scheduler has answered within {timeout} s: is one running?")
    if not accepted:
        raise ProtectedError
    session.disconnect("everything was shut down")
