"""Every proof that docs/reliability.md names exists: each test, each file, each target of make."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
PROOFS = sorted(set(re.findall(r"tests/[\w/]+\.py(?:::\w+)?", PAGE)))


@pytest.mark.parametrize("proof", PROOFS)
def test_a_test_that_is_named_exists(proof: str) -> None:
    path, _, name = proof.partition("::")

    assert (ROOT / path).is_file()
    if name:
        functions = [
            node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)
        ]
        assert name in functions


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([a-z-]+)", PAGE)) | {"test"}))
def test_a_target_of_make_that_is_named_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_every_promise_has_a_proof_that_is_one_command() -> None:
    assert len(ROWS) > 20
    for row in ROWS:
        promise, survives, proof = [cell.strip() for cell in row.strip("|").split("|")]
        assert re.search(r"`(P tests/\S+\.py(::\w+)?|make [a-z-]+[^`]*)`", proof), row
        assert survives or not promise, row


def test_folders_that_are_named_exist() -> None:
    for folder in re.findall(r"`(tests/\w+)/?`", PAGE):
        assert (ROOT / folder).is_dir(), folder
