"""Fragments are rendered once for all who look at the same at about the same time."""

from __future__ import annotations

import itertools

from gristmill_web.fragments import KEPT, Fragment, Fragments


def counted() -> itertools.count[int]:
    return itertools.count(1)


def test_a_fragment_that_was_just_rendered_is_shared() -> None:
    fragments, numbers = Fragments(max_age_seconds=3600), counted()

    def render() -> Fragment:
        return Fragment.of(f"<p>{next(numbers)}</p>", now=7)

    assert [fragments.look("a", render).html for _ in range(3)] == ["<p>1</p>"] * 3
    assert fragments.look("b", render).html == "<p>2</p>"


def test_an_old_one_is_rendered_anew() -> None:
    fragments, numbers = Fragments(max_age_seconds=-1), counted()

    def render() -> Fragment:
        return Fragment.of(str(next(numbers)), now=7)

    assert [fragments.look("a", render).html for _ in range(3)] == ["1", "2", "3"]


def test_only_the_latest_are_kept() -> None:
    fragments, numbers = Fragments(max_age_seconds=3600), counted()

    def render() -> Fragment:
        return Fragment.of(str(next(numbers)), now=7)

    for key in range(KEPT + 1):
        fragments.look(key, render)

    assert fragments.look(KEPT, render).html == str(KEPT + 1)
    assert fragments.look(0, render).html == str(KEPT + 2)


def test_the_tag_tells_one_from_another() -> None:
    assert Fragment.of("a", 1).tag == Fragment.of("a", 2).tag != Fragment.of("b", 1).tag
