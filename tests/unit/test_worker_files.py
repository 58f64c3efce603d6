"""Large objects are all there before user code begins: nothing is fetched while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gristmill.protocol.buffers import BYTES, TEXT, WRITABLE, Named
from gristmill_worker import files
from gristmill_worker.files import ObjectFiles

OBJECTS = {"a": b"a" * 10, "b": b"b" * 10, "c": b"c" * 10}


class Counting:
    """Has the objects, and notes which were fetched."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def read_into(self, object_id: str, target: memoryview) -> None:
        self.fetched.append(object_id)
        target[:] = OBJECTS[object_id]


@pytest.mark.parametrize("kind", [BYTES, TEXT])
def test_what_is_forgotten_while_a_call_loads_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files, "KEPT_BYTES", 20)
    source = Counting()
    found = ObjectFiles(tmp_path / "objects", 1 << 20, source)
    first, *others = [Named(object_id, len(data)) for object_id, data in OBJECTS.items()]
    kept = found.open([first]).leaves().load(kind, 0)
    files.remove_unused(tmp_path / "objects", -1)

    leaves = found.open([*others, first]).leaves()
    fetched = source.fetched.copy()
    for index in range(len(others)):
        leaves.load(BYTES, index)
    assert leaves.load(kind, len(others)) == kept
    assert bytes(leaves.load(WRITABLE, len(others))) == OBJECTS["a"]
    assert source.fetched == fetched
