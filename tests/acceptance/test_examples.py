"""Every script in `examples/` runs as it stands, and prints what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.enclosure import Enclosure, enclosure

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMISES = {
    "cancel.py": r"found in the attic\ncancelled: 2 of 2",
    "dependencies.py": r"pi is about 3\.1\d\d",
    "grid_search.py": r"best: C=\d+, gamma=0\.0\d+: 9\d% right",
    "map_words.py": r"of a line: stands\n.*of a line: grinds\npowers: \[1024, 243, 49\]",
    "nested.py": r"eight queens can stand in 92 ways",
    "option_pricing.py": r"an Asian call is worth 3\.\d\d, give or take 0\.0\d",
    "portfolio.py": r"(?s)Millstone plc.*Harvest Grain.*The portfolio is worth 1,6\d\d",
    "submit_and_gather.py": r"10 primes among 200 numbers; the first is 1000000007",
    "thumbnails.py": r"a sheet of 192 x 144 pixels, \d+ colours",
    "word_count.py": r"the: 360\n\w+: 80\n\w+: 80",
}


@pytest.fixture
def place() -> Iterator[Enclosure]:
    """Where the command runs; afterwards no process and no file is left there."""
    with enclosure() as place:
        yield place


def test_every_example_is_tried() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PROMISES)


@pytest.mark.parametrize("name", PROMISES)
def test_the_example_does_what_it_promises(place: Enclosure, name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=place.environment,
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.search(PROMISES[name], done.stdout), done.stdout
