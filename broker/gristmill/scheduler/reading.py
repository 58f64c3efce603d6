"""Reading the request streams: own pending entries first, then new ones, then those that dead replicas left."""

from __future__ import annotations

from typing import Any, NamedTuple

from gristmill.protocol.keys import GROUP_SCHEDULERS, REQUEST_STREAMS, Keys
from gristmill.store.connection import Connection, ReplyError, pack

ENTRIES = 16
"""Entries per stream and turn: each is up to 100 tasks, and one script."""
TAKEOVER_ENTRIES = 100
FIRST = ("cancels", "results", "heartbeats")
"""Outcomes and cancels are read before new tasks: they free room."""
BEGINNING = b"0-0"


class Entry(NamedTuple):
    """One request as it lies in its stream."""

    stream: bytes
    id: bytes
    kind: bytes
    body: bytes


class Reader:
    """Builds the reading commands of one replica and understands their replies."""

    def __init__(self, keys: Keys, replica_id: str) -> None:
        names = [*FIRST, *(name for name in REQUEST_STREAMS if name not in FIRST)]
        self.streams = [getattr(keys, name)().encode() for name in names]
        self.replica_id = replica_id
        self._claimed = dict.fromkeys(self.streams, BEGINNING)
        self._pending = dict.fromkeys(self.streams, BEGINNING)

    def _command(self, starts: list[Any], *block: Any) -> bytes:
        group = ("XREADGROUP", "GROUP", GROUP_SCHEDULERS, self.replica_id)
        return pack((*group, "COUNT", ENTRIES, *block, "STREAMS", *self.streams, *starts))

    def new(self, block_ms: int) -> bytes:
        """The command that waits up to `block_ms` for new entries."""
        return self._command([">"] * len(self.streams), "BLOCK", max(block_ms, 1))

    def pending_from_the_start(self) -> None:
        """Read anew what this replica was given and has not applied, as after a lost reply."""
        self._pending = dict.fromkeys(self.streams, BEGINNING)

    def pending(self) -> bytes:
        """The command that reads on in that: behind the last entry of each stream, so that it comes to an end."""
        return self._command(list(self._pending.values()))

    def note_pending(self, reply: Any) -> bool:
        """Remember how far a pending read has come; False when there was nothing more."""
        last = {stream: items[-1][0] for stream, items in reply or () if items}
        self._pending.update(last)
        return bool(last)

    def entries(self, reply: Any) -> list[Entry]:
        """The entries of a reply. One that was deleted by hand comes without content and is passed over."""
        return [
            Entry(stream, item[0], item[1][0], item[1][1])
            for stream, items in reply or ()
            for item in items or ()
            if item is not None and item[1]
        ]

    def create_groups(self, connection: Connection, *, insist: bool = False) -> None:
        """Create the groups that are missing, from the beginning: what was added before is a request too.

        A full Redis refuses before it looks whether the group exists: reading will tell. If it has told, `insist`.
        """
        for stream in self.streams:
            try:
                connection.request("XGROUP", "CREATE", stream, GROUP_SCHEDULERS, "0", "MKSTREAM")
            except ReplyError as error:
                if error.code != "BUSYGROUP" and (insist or error.code != "OOM"):
                    raise

    def take_over(self, connection: Connection, idle_ms: int) -> list[Entry]:
        """Claim what a replica, maybe this one, was given at least `idle_ms` ago and has not applied.

        Each call goes on where the last one ended, so that entries which must stay do not hide others.
        """
        claim = ("COUNT", TAKEOVER_ENTRIES)
        for stream, start in self._claimed.items():
            connection.send(pack(("XAUTOCLAIM", stream, GROUP_SCHEDULERS, self.replica_id, idle_ms, start, *claim)))
        replies = {stream: connection.read() for stream in self.streams}
        found = []
        for stream, reply in replies.items():
            if isinstance(reply, ReplyError):
                raise reply
            self._claimed[stream] = reply[0]
            found += self.entries([(stream, reply[1])])
        return found
