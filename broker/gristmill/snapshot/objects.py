"""Objects: the largest, whose they are and how many need them. Their bytes are not read."""

from __future__ import annotations

from gristmill.protocol.keys import Keys
from gristmill.snapshot.reading import Reading, number, short, sure
from gristmill.snapshot.records import ObjectList, StoredObject

LARGEST = 500
SLICE = 250


def read_objects(keys: Keys, *, limit: int = LARGEST) -> Reading[ObjectList]:
    """The largest objects that are held, the largest first."""
    total, scored = yield [("ZCARD", keys.objects()), ("ZREVRANGE", keys.objects(), 0, limit - 1, "WITHSCORES")]
    flat = sure(scored)
    sizes = {short(flat[at]): number(flat[at + 1]) for at in range(0, len(flat), 2)}
    ids = list(sizes)
    rows = []
    for start in range(0, len(ids), SLICE):
        part = ids[start : start + SLICE]
        holders = yield [("SCARD", keys.holders(identity)) for identity in part]
        rows += [
            StoredObject(identity, kind_of(identity), sizes[identity], identity.partition(".")[0], number(sure(held)))
            for identity, held in zip(part, holders, strict=True)
        ]
    return ObjectList(rows=tuple(rows), total=number(sure(total)), bytes_shown=sum(sizes.values()))


def kind_of(identity: str) -> str:
    """What an object is, by its id: `<client>.f<n>-<chunks>` is a function, `.c<n>` a call, `.o<n>` an argument."""
    letter = identity.partition(".")[2][:1]
    return {"f": "function", "c": "call", "o": "argument"}.get(letter, "result" if letter.isdigit() else "value")
