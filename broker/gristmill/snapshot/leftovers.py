"""What the dead left behind: requests that lie with scheduler replicas which are gone."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.protocol.keys import GROUP_SCHEDULERS, REQUEST_STREAMS, Keys
from gristmill.snapshot.reading import Reading, number, or_else, pairs, sure, text


@dataclass(frozen=True)
class DeadConsumer:
    """A replica that is gone, as the consumer group of one request stream remembers it."""

    scheduler: str
    stream: str
    pending: int
    """Requests that it read and did not apply; a replica that runs takes them over."""


def read_dead_consumers(keys: Keys) -> Reading[tuple[DeadConsumer, ...]]:
    """Consumers of the request streams that are no running schedulers."""
    streams = [getattr(keys, name)() for name in REQUEST_STREAMS]
    members, *replies = yield [
        ("ZRANGE", keys.schedulers(), 0, -1),
        *(("XINFO", "CONSUMERS", stream, GROUP_SCHEDULERS) for stream in streams),
    ]
    running = {text(member) for member in sure(members)}
    found = []
    for name, reply in zip(REQUEST_STREAMS, replies, strict=True):
        # ERR no such key, NOGROUP: nobody has used the namespace yet.
        for consumer in map(pairs, or_else(reply, [], "ERR", "NOGROUP")):
            scheduler = text(consumer.get("name"))
            if scheduler not in running:
                found.append(DeadConsumer(scheduler, name, number(consumer.get("pending"))))
    return tuple(found)
