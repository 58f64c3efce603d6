"""Large values are fetched when somebody looks at them, on a connection of their own: a slow one delays no outcome."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from gristmill.client.courier import CLOSED
from gristmill.client.inbox import LargeValue
from gristmill.errors import ConnectionLostError, MissingObjectError
from gristmill.store.connection import Connection, ReplyError, backoff
from gristmill.store.objects import read_object

if TYPE_CHECKING:
    from gristmill.client.session import Session

FETCH_SECONDS = 60.0
"""How long fetching a large value may go on trying while Redis cannot be reached."""


class Fetcher:
    """Fetches the large values of one session, one at a time."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = threading.Lock()
        self._connection = Connection(session.address, name=f"gristmill-fetch-{session.client_id}")

    def fetch(self, value: LargeValue) -> bytearray:
        """The bytes of a large value or failure; raises MissingObjectError or ConnectionLostError."""
        session, connection = self.session, self._connection
        session.check_fork()
        deadline = time.monotonic() + FETCH_SECONDS
        failures = 0
        while True:
            try:
                with self._lock:
                    if not connection.connected:
                        connection.connect()
                    return read_object(connection, session.keys, value.object_id, value.size)
            except MissingObjectError as error:
                if session.state is not CLOSED:
                    raise
                raise MissingObjectError(
                    f"{error}; the client was closed before this large value was looked at: call result() before"
                ) from None
            except (ConnectionLostError, ReplyError):
                failures += 1
                if session.state is CLOSED or time.monotonic() + backoff(failures) > deadline:
                    raise
            except BaseException:
                connection.close()  # interrupted: replies may still come
                raise
            time.sleep(backoff(failures))

    def close(self) -> None:
        """Close the connection, unless somebody is reading a large value, who may finish."""
        if self._lock.acquire(blocking=False):
            self._connection.close()
            self._lock.release()
