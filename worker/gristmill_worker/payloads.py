"""What goes between tasks and clients: the values that a task depends on come, its own outcome leaves."""

from __future__ import annotations

from typing import Any

import orjson

from gristmill.errors import MissingObjectError
from gristmill.protocol import kinds, payloads
from gristmill.protocol.buffers import LEAF_BYTES, Buffer, Named
from gristmill.protocol.signing import Signer
from gristmill_worker.execution import Outcome
from gristmill_worker.files import ObjectFiles
from gristmill_worker.link import Link

READ_AT_ONCE = 100
"""So many values are asked for in one turn."""


class Payloads:
    """Of one processor."""

    def __init__(self, link: Link, files: ObjectFiles, signer: Signer | None) -> None:
        self._link = link
        self._files = files
        self._signer = signer

    def values(self, fields: dict[bytes, bytes]) -> dict[str, Buffer]:
        """The pickled values of the tasks that the one in this entry depends on, by task id.

        Raises MissingObjectError when Redis has one no more, SignatureError when it is not what was signed.
        """
        found: dict[str, Any] = orjson.loads(fields.get(b"values", b"{}"))
        needs = fields.get(b"needs", b"").decode().split()
        for first in range(0, len(needs), READ_AT_ONCE):
            some = needs[first : first + READ_AT_ONCE]
            for task, text in zip(some, self._link.read_values(some), strict=True):
                found[task] = None if text is None else orjson.loads(text)
        return {task: self._value(task, payload) for task, payload in found.items()}

    def _value(self, task: str, payload: Any) -> Buffer:
        if isinstance(payload, str):
            data = payloads.bytes_of(payload)
            return data if self._signer is None else self._signer.open(data, task)
        if not isinstance(payload, dict) or "object" not in payload:
            raise MissingObjectError(f"the value of task {task}, on which this one depends, is gone from Redis")
        if payload.get("size", 0) >= LEAF_BYTES:
            return self._files.view(Named(payload["object"], payload["size"]))
        return self._link.read_object(payload["object"])

    def row(self, fields: dict[bytes, bytes], outcome: Outcome, duration: int, cpu: int, peak: int) -> bytes:
        """The outcome as it travels (`messages.OUTCOME_COLUMNS`); times in ns, the memory peak in bytes."""
        task, attempt = fields[b"task"], fields[b"attempt"]
        status, data, error = outcome
        if type(data) is bytes and len(data) <= kinds.INLINE_BYTES:
            if self._signer is not None:
                data = self._signer.seal(data, task.decode())
            payload = b'"%b"' % payloads.text_of(data).encode()
        else:
            payload = self._write(f"{task.decode()}.{attempt.decode()}", data)
        figures = (duration // 1000, cpu // 1000, peak)
        return b'["%b",%b,"%b",%b,%d,%d,%d,%b]' % (task, attempt, status, payload, *figures, error)

    def _write(self, stem: str, data: bytes | list[Buffer]) -> bytes:
        """Write a large outcome as an object; what stands for it in the row."""
        pieces: list[Buffer] = [data] if isinstance(data, bytes) else data
        size = sum(map(len, pieces))
        name = payloads.object_id(stem if self._signer is None else self._signer.stem(stem, pieces), size)
        self._link.write_object(name, pieces)
        return b'{"object":"%b","size":%d}' % (name.encode(), size)
