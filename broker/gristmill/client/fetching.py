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
        self._closed = False
        self._connection = Connection(session.address, name=f"gristmill-fetch-{session.client_id}")

    def fetch(self, value: LargeValue) -> bytearray:
        """The bytes of a large value or failure; raises MissingObjectError or ConnectionLostError."""
        session = self.session
        session.check_fork()
        deadline = time.monotonic() + FETCH_SECONDS
        failures = 0
        while True:
            try:
                return self._read(value)
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
            time.sleep(backoff(failures))

    def _read(self, value: LargeValue) -> bytearray:
        connection = self._connection
        try:
            with self._lock:
                try:
                    if not connection.connected:
                        connection.connect()
                    return read_object(connection, self.session.keys, value.object_id, value.size)
                except (MissingObjectError, ReplyError):
                    raise  # all replies were read
                except BaseException:
                    connection.close()  # interrupted: replies may still come, and nobody may take them for his own
                    raise
        finally:
            if self._closed:
                self.close()

    def close(self) -> None:
        """Close the connection; while somebody is reading a large value, who may finish, it is closed then."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            self._connection.close()
            self._lock.release()
