"""Every piece of Python on the pages for users runs, and prints what the comments beside it say."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill import Client, LocalCluster
from support.leaks import Leaks
from support.server import RedisServer

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMISE = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)
PAGES = sorted(path.name for path in DOCS.glob("*.md") if _BLOCK.search(path.read_text()))


@pytest.fixture(scope="module")
def cluster(shared_server: RedisServer) -> Iterator[LocalCluster]:
    leaks = Leaks()
    with LocalCluster(workers=2) as cluster:
        yield cluster
    leaks.check()


@pytest.mark.parametrize("page", PAGES)
def test_the_pieces_of_a_page_run_one_after_the_other(
    cluster: LocalCluster, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS / page).read_text()
    modules = dict(sys.modules)
    with Client(cluster) as client:
        # As in a notebook: what the pieces define is in __main__, and travels by value.
        names = {"__name__": "__main__", "client": client, "cluster": cluster}
        for number, piece in enumerate(_BLOCK.findall(text), 1):
            promised = _PROMISE.findall(piece)
            exec(compile(piece, f"{page}, piece {number}", "exec"), names)
            names["client"] = client  # a piece may have had one of its own
            said = capsys.readouterr().out.splitlines()

            assert said == promised, f"{page}, piece {number}"
    for name in set(sys.modules) - set(modules):
        if name.partition(".")[0] == "scaler":  # what a page has installed
            del sys.modules[name]


def test_pages_link_to_what_is_there() -> None:
    for page in DOCS.glob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_page_for_users_is_listed() -> None:
    listed = (DOCS / "README.md").read_text()

    assert [page for page in PAGES if f"({page})" not in listed] == []
