"""How the record of a task and the entry in a worker's stream are packed.

What goes together lies in one field, because each field costs Redis as much as a lookup:

    record  `assignment`  <attempt> <entry> <worker>      `function`  <object id> <name>      `place`  <lane> <order>
    entry   `task`        <id> <attempt> <call> <object id of the function> <name>

A call that does not lie in the record (an object, or longer than 64 bytes) stands as `-`; a long one comes as the
entry's own field `call`, a large one as `object` and `size`.
"""

from __future__ import annotations

from collections.abc import Mapping

NO_CALL = "-"

_PACKED = {
    "assignment": ("attempt", "entry", "worker"),
    "function": ("function", "name"),
    "place": ("lane", "order"),
}
_ENTRY = ("task", "attempt", "call", "function", "name")


def unpack_record(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields of a task's record, one fact each; absent ones stay absent."""
    facts = {name: value for name, value in fields.items() if name not in _PACKED}
    for name, parts in _PACKED.items():
        if name in fields:
            facts.update(zip(parts, fields[name].split(" ", len(parts) - 1), strict=False))
    return facts


def unpack_entry(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields of an entry in a worker's stream, one fact each."""
    facts = dict(zip(_ENTRY, fields.get("task", "").split(" ", len(_ENTRY) - 1), strict=False))
    if facts.get("call") == NO_CALL:
        del facts["call"]
    facts.update({name: value for name, value in fields.items() if name != "task"})
    return facts
