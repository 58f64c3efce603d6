"""Reading the request streams: own pending entries first, then new ones, then those that dead replicas left."""

from __future__ import annotations

from typing import Any, NamedTuple

from gristmill.protocol.keys import GROUP_SCHEDULERS, REQUEST_STREAMS, Keys
from gristmill.store.connection import Connection, ReplyError, pack

ENTRIES = 16
"""Entries per stream and turn: each is up to 100 tasks, and one script."""
TAKEOVER_ENTRIES = 100


class Entry(NamedTuple):
    """One request as it lies in its stream."""

    stream: bytes
    id: bytes
    kind: bytes
    body: bytes


class Reader:
    """Builds the reading commands of one replica and understands their replies."""

    def __init__(self, keys: Keys, replica_id: str) -> None:
        self.streams = [getattr(keys, name)().encode() for name in REQUEST_STREAMS]
        self.replica_id = replica_id
        # Outcomes and cancels before new tasks: they free room.
        self._streams = [self.streams[REQUEST_STREAMS.index(name)] for name in ("cancels", "results", "heartbeats")]
        self._streams += [stream for stream in self.streams if stream not in self._streams]
        self._pending = self._command("0", None)

    def _command(self, start: str, block_ms: int | None) -> bytes:
        block = () if block_ms is None else ("BLOCK", block_ms)
        return pack(
            (
                "XREADGROUP", "GROUP", GROUP_SCHEDULERS, self.replica_id, "COUNT", ENTRIES, *block,
                "STREAMS", *self._streams, *([start] * len(self._streams)),
            )
        )  # fmt: skip

    def new(self, block_ms: int) -> bytes:
        """The command that waits up to `block_ms` for new entries."""
        return self._command(">", max(block_ms, 1))

    def pending(self) -> bytes:
        """The command that reads what this replica was given and has not applied, as after a lost reply."""
        return self._pending

    def entries(self, reply: Any) -> list[Entry]:
        """The entries of a reply. One that was deleted by hand comes without content and is passed over."""
        return [
            Entry(stream, item[0], item[1][0], item[1][1])
            for stream, items in reply or ()
            for item in items or ()
            if item is not None and item[1]
        ]

    def create_groups(self, connection: Connection) -> None:
        """Create the groups that are missing, from the beginning: what was added before is a request too."""
        for stream in self.streams:
            try:
                connection.request("XGROUP", "CREATE", stream, GROUP_SCHEDULERS, "0", "MKSTREAM")
            except ReplyError as error:
                if error.code != "BUSYGROUP":
                    raise

    def take_over(self, connection: Connection, idle_ms: int) -> list[Entry]:
        """Claim what another replica was given at least `idle_ms` ago and has not applied."""
        for stream in self.streams:
            connection.send(
                pack(("XAUTOCLAIM", stream, GROUP_SCHEDULERS, self.replica_id, idle_ms, "0", "COUNT", TAKEOVER_ENTRIES))
            )
        replies = [connection.read() for _ in self.streams]
        found = []
        for stream, reply in zip(self.streams, replies, strict=True):
            if isinstance(reply, ReplyError):
                raise reply
            found += self.entries([(stream, reply[1])])
        return found
