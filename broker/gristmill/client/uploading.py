"""Large arguments are uploaded by whoever submits, on a connection of their own, before the call that names them.

So `submit` waits for a large upload, nothing of it is copied or lies about, and no outcome waits behind it.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gristmill.client.courier import CLOSED
from gristmill.client.leaves import Leaf
from gristmill.client.references import BORROWED
from gristmill.errors import ConnectionLostError, QueueFullError
from gristmill.protocol.buffers import Buffer
from gristmill.protocol.keys import CHUNK_BYTES, object_chunks
from gristmill.protocol.payloads import object_id
from gristmill.store.connection import Connection, ReplyError, backoff
from gristmill.store.objects import chunk_key, write_object

if TYPE_CHECKING:
    from gristmill.client.session import Session

UPLOAD_SECONDS = 60.0
"""How long an upload may go on trying while Redis cannot be reached, or refuses."""


class Uploader:
    """Uploads the large arguments of one session, one at a time."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = threading.Lock()
        self._connection = Connection(session.address, name=f"gristmill-upload-{session.client_id}")
        self._numbers = itertools.count(1)

    def upload(self, leaf: Leaf) -> None:
        """See to it that Redis has the object.

        Raises ConnectionLostError or ReplyError when it cannot be, QueueFullError when Redis has no room for it.
        """
        session = self.session
        session.check_fork()
        deadline = time.monotonic() + UPLOAD_SECONDS
        failures = 0
        while True:
            try:
                self.upload_now(leaf)
                return
            except (ConnectionLostError, ReplyError) as error:
                if isinstance(error, ReplyError) and error.code == "OOM" and not session.wait_when_full:
                    raise QueueFullError(
                        f"Redis has no room for an argument of {leaf.size:,} bytes ({error}): submit it later"
                    ) from error
                failures += 1
                if session.state is CLOSED or time.monotonic() + backoff(failures) > deadline:
                    raise
            time.sleep(backoff(failures))

    def upload_now(self, leaf: Leaf) -> bool:
        """The same, with one try. Answers False when the content is not what it was when it was uploaded before."""
        registration = self.session.outbox.registration
        if leaf.uploaded == registration or leaf.uploaded == BORROWED:
            return True
        connection = self._connection
        with self._lock:
            if leaf.uploaded == registration:
                return True
            try:
                if not connection.connected:
                    connection.connect()
                # A new id with each registration: the old object may just be being freed.
                stem, signer = f"{self.session.client_id}.o{next(self._numbers)}", self.session.outbox.signer
                name = object_id(stem if signer is None else signer.stem(stem, leaf.contents()), leaf.size)
                pieces, found = leaf.contents(), hashlib.sha256()
                if leaf.may_change:
                    write_object(connection, self.session.keys, name, _hashed(pieces, found))
                else:
                    write_object(connection, self.session.keys, name, pieces)
            except BaseException as error:
                if isinstance(error, ReplyError):  # all replies were read
                    # No task will name it: what Redis has taken of it would lie there for a day.
                    chunks = range(object_chunks(name))
                    connection.request("UNLINK", *(chunk_key(self.session.keys, name, chunk) for chunk in chunks))
                else:
                    connection.close()
                raise
            if leaf.may_change:
                if leaf.digest and leaf.digest != found.digest():
                    return False
                leaf.digest = found.digest()
            leaf.object_id, leaf.uploaded = name, registration
            return True

    def close(self) -> None:
        """Close the connection, unless somebody is uploading, whose task will not be sent any more."""
        if self._lock.acquire(blocking=False):
            self._connection.close()
            self._lock.release()


def _hashed(pieces: list[Buffer], found: hashlib._Hash) -> Iterator[memoryview]:
    """The pieces; what Redis does with a chunk goes on while the next is hashed."""
    for piece in pieces:
        view = memoryview(piece)
        for begin in range(0, len(view), CHUNK_BYTES):
            part = view[begin : begin + CHUNK_BYTES]
            found.update(part)
            yield part
