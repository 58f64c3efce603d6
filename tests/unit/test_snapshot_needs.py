"""Why no worker takes a task: one sentence that says what is missing and what to start."""

from __future__ import annotations

import pytest

from gristmill.snapshot.needs import why_unserved


@pytest.mark.parametrize(
    ("lane", "offered", "sentence"),
    [
        ("python3.11", [], "there is no worker; start one: gristmill worker"),
        ("gpu,python3.11", [], "there is no worker; start one: gristmill worker --capabilities gpu"),
        (
            "gpu,python3.11",
            [{"python3.11"}, {"linux", "python3.11"}],
            "no worker offers gpu; start one: gristmill worker --capabilities gpu",
        ),
        (
            "gpu,linux,python3.11",
            [{"gpu", "python3.11"}, {"linux", "python3.11"}],
            "no worker offers all of gpu, linux, python3.11; start one: gristmill worker --capabilities gpu,linux",
        ),
        (
            "python3.13",
            [{"python3.11"}, {"python3.12"}],
            (
                "no worker has Python 3.13, by which it was sent; the workers here have 3.11 and 3.12; "
                "start one with it: gristmill worker"
            ),
        ),
        (
            "python3.11!",
            [{"python3.11"}],
            "the workers that could run it take nothing now: they leave, or none of their processors is ready",
        ),
    ],
)
def test_the_sentence_says_what_is_missing(lane: str, offered: list[set[str]], sentence: str) -> None:
    assert why_unserved(lane, offered) == sentence
