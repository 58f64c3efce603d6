"""Files of large objects: fetched once and before user code begins, never more bytes than allowed, and not all looked
at for each new one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gristmill.protocol.buffers import BYTES, TEXT, WRITABLE, Named
from gristmill_worker import files
from gristmill_worker.files import ObjectFiles

MOST = 64 << 10
SIZE = 100


class Source:
    """Stands for Redis: every object is its name, filled up with spaces. Notes which were fetched."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def read_into(self, object_id: str, target: memoryview) -> None:
        self.fetched.append(object_id)
        target[:] = object_id.encode().ljust(len(target))


def total(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if not path.name.startswith("."))


def test_an_object_is_fetched_once_while_its_file_is_there(tmp_path: Path) -> None:
    source = Source()
    here = ObjectFiles(tmp_path / "objects", MOST, source)
    other = ObjectFiles(tmp_path / "objects", MOST, source)

    assert bytes(here.view(Named("a-1", 5))) == bytes(other.view(Named("a-1", 5))) == b"a-1  "
    assert source.fetched == ["a-1"]


@pytest.mark.parametrize("kind", [BYTES, TEXT])
def test_what_is_forgotten_while_a_call_loads_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files, "KEPT_BYTES", 20)
    source = Source()
    found = ObjectFiles(tmp_path / "objects", 1 << 20, source)
    first, *others = [Named(object_id, 10) for object_id in ("a", "b", "c")]
    kept = found.open([first]).leaves().load(kind, 0)
    files.remove_unused(tmp_path / "objects", -1)

    leaves = found.open([*others, first]).leaves()
    fetched = source.fetched.copy()
    for index in range(len(others)):
        leaves.load(BYTES, index)
    assert leaves.load(kind, len(others)) == kept
    assert bytes(leaves.load(WRITABLE, len(others))) == b"a         "
    assert source.fetched == fetched


def test_files_never_take_more_than_allowed_and_are_seldom_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    look = files._files

    def counted(folder: Path) -> list[tuple[Path, float, int]]:
        looks.append(folder)
        return look(folder)

    monkeypatch.setattr(files, "_files", counted)
    folder = tmp_path / "objects"
    here, other = (ObjectFiles(folder, MOST, Source()) for _ in range(2))
    for number in range(1000):
        (here if number % 3 else other).view(Named(f"o{number}-1", SIZE))
        assert total(folder) <= MOST

    assert total(folder) > MOST / 2
    assert len(looks) < 250, "of a thousand objects"


def test_an_object_larger_than_all_room_is_read_without_a_file(tmp_path: Path) -> None:
    here = ObjectFiles(tmp_path / "objects", MOST, Source())

    assert len(here.view(Named("a-1", MOST + 1))) == MOST + 1
    assert total(tmp_path / "objects") == 0
