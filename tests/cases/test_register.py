"""The table in README.md: every hard case is there, with the tests that prove it or why it does not apply."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent
CASES = [f"H{number:02}" for number in range(1, 90)]
PATH = r"[a-z_]+(?:/[a-z_0-9]+)*\.py"
TEST = rf"`(?P<path>{PATH})` `(?P<name>test_[a-z0-9_]+)`"


class Row(NamedTuple):
    """One line of the table."""

    case: str
    promise: str
    proof: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Path below `tests` and name of each test that the line names."""
        return [(found["path"], found["name"]) for found in re.finditer(TEST, self.proof)]


def rows() -> list[Row]:
    lines = (HERE / "README.md").read_text().splitlines()
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| H"))
    return [Row(*three) for three in cells]


def names_in(path: Path) -> set[str]:
    return set(re.findall(r"def (test_[a-z0-9_]+)\(", path.read_text()))


def own_tests() -> dict[str, Path]:
    return {name: path for path in HERE.glob("test_*.py") for name in names_in(path)}


def test_every_case_has_its_line_once_and_in_order() -> None:
    assert [row.case for row in rows()] == CASES
    assert all(row.promise for row in rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.case)
def test_the_line_names_tests_that_exist_or_says_why_there_is_none(row: Row) -> None:
    if not row.tests:
        assert row.proof.startswith("does not apply: "), row.proof
        return
    for path, name in row.tests:
        assert name in names_in(TESTS / path), f"{path} has no {name}"


def test_every_test_here_is_named_by_the_lines_of_its_cases() -> None:
    named = {row.case: {name for path, name in row.tests if path.startswith("cases/")} for row in rows()}
    for name in own_tests():
        for number in re.findall(r"(?<=_h)[0-9]{2}(?=_)", name):
            assert name in named[f"H{number}"], f"H{number} does not name {name}"


def test_every_case_that_applies_has_a_test_of_its_own_or_names_one_elsewhere() -> None:
    for row in rows():
        own = [name for path, name in row.tests if path.startswith("cases/")]
        assert all(f"_{row.case.lower()}_" in name for name in own), row.case
