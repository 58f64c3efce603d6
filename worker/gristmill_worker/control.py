"""What a worker is told: a thread that reads its control stream (`messages.Control`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import orjson

from gristmill.errors import ConnectionLostError
from gristmill.protocol.keys import Keys
from gristmill.store.connection import BLOCK_MILLISECONDS, Connection, ReplyError, backoff, hide_password, pack

logger = logging.getLogger(__name__)

Handle = Callable[[str, dict[str, Any]], None]


class ControlReader:
    """Reads the stream of one worker id until it is stopped; every message goes to `handle`, in this thread.

    What was handled is removed with the next read. After a lost connection it reads from the beginning of the stream
    again: handling a message twice changes nothing.
    """

    def __init__(self, address: str, keys: Keys, worker: str, handle: Handle) -> None:
        self._connection = Connection(address, name=f"{worker}/control")
        self._key = keys.worker_control(worker)
        self._handle = handle
        self._failures = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Handle nothing more. The thread ends when its read returns; it is not waited for."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._connection.connect()
                self._read()
            except Exception as error:
                # Whatever it is: without this thread nobody could tell the worker anything.
                self._connection.close()
                self._failures += 1
                if self._failures == 1:
                    expected = isinstance(error, (ConnectionLostError, ReplyError))
                    extra = {"cause": str(error)}
                    logger.warning("cannot reach Redis; trying again", extra=extra, exc_info=not expected)
                self._stopped.wait(backoff(self._failures))
        self._connection.close()

    def _read(self) -> None:
        last, block = "0", 1  # the first read returns at once: it shows that Redis answers
        trim: list[bytes] = []
        while not self._stopped.is_set():
            read = pack(("XREAD", "COUNT", 100, "BLOCK", block, "STREAMS", self._key, last))
            self._connection.send(*trim, read)
            replies = [self._connection.read() for _ in (*trim, read)]
            for reply in replies:
                if isinstance(reply, ReplyError):
                    raise reply
            if self._failures:
                self._failures = 0
                logger.info("reached Redis again", extra={"redis": hide_password(self._connection.address)})
            trim, block = [], BLOCK_MILLISECONDS
            for entry, flat in replies[-1][0][1] if replies[-1] else ():
                if self._stopped.is_set():
                    return
                self._one(flat)
                last = entry.decode()
                milliseconds, _, number = last.partition("-")
                trim = [pack(("XTRIM", self._key, "MINID", f"{milliseconds}-{int(number) + 1}"))]

    def _one(self, flat: list[bytes]) -> None:
        try:
            kind, body = flat[0].decode(), orjson.loads(flat[1])
            if not isinstance(body, dict):
                raise TypeError(f"expected an object; got {body!r}")
        except (ValueError, TypeError, IndexError) as error:
            logger.warning("a control message cannot be read", extra={"cause": str(error)})
            return
        self._handle(kind, body)
