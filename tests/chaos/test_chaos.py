"""A short storm: a few faults over a few hundred tasks. The long one is `make chaos`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.__main__ import run
from support.leaks import Leaks

SEED = int(os.environ.get("GRISTMILL_TEST_SEED", "5"))
SECONDS = 10.0


@pytest.mark.timeout(600)
def test_no_law_is_broken_in_a_short_storm(no_leaks: Leaks, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = run(tmp_path, SEED, SECONDS)
    said = capsys.readouterr().out

    assert broken == [], said
    assert "faults: " in said
    assert int(said.partition("figures: tasks ")[2].partition(",")[0]) > 100, said
