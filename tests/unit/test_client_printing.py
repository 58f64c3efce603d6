"""What tasks have printed is shown in order, once, whatever order it comes in."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from gristmill.client import printing
from gristmill.client.printing import PATIENCE_SECONDS, Printing

TASK = "abc.0000001"


class Shown(list[str]):
    """The texts that were shown; `call` is that of callbacks whose thread is always faster."""

    def call(self, due: Callable[[], object]) -> None:
        due()


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def printing_(shown: Shown) -> Printing:
    return Printing(lambda line: shown.append(line.text), shown)  # type: ignore[arg-type]


def notice(number: int, task: str = TASK, attempt: int = 1, text: str = "") -> dict[str, Any]:
    lines = [["out", text or str(number)]]
    return {"version": 1, "task": task, "attempt": attempt, "number": number, "lines": lines, "dropped": 0}


def take(printing_: Printing, *numbers: int) -> None:
    for number in numbers:
        printing_.take(notice(number))


def long_after() -> float:
    return time.monotonic() + PATIENCE_SECONDS + 1


def test_what_comes_in_order_is_shown_at_once(printing_: Printing, shown: Shown) -> None:
    for number in range(3):
        take(printing_, number)
        assert shown == [str(before) for before in range(number + 1)]
    assert printing_.due == float("inf")


def test_what_comes_early_is_held_until_the_missing_has_come(printing_: Printing, shown: Shown) -> None:
    began = time.monotonic()
    take(printing_, 2, 4, 1)
    printing_.show_overdue(began)
    assert shown == []
    take(printing_, 0)
    assert shown == ["0", "1", "2"]
    take(printing_, 3)
    assert shown == ["0", "1", "2", "3", "4"]
    assert printing_.due == float("inf")


def test_each_attempt_has_its_own_order(printing_: Printing, shown: Shown) -> None:
    printing_.take(notice(1))
    printing_.take(notice(0, attempt=2, text="again"))
    printing_.take(notice(0, task="abc.0000002", text="other"))
    assert shown == ["again", "other"]


def test_what_never_comes_holds_nothing_up_for_long(printing_: Printing, shown: Shown) -> None:
    began = time.monotonic()
    take(printing_, 0, 5, 2, 3)
    printing_.show_overdue(began)
    assert shown == ["0"]
    printing_.show_overdue(long_after())
    assert shown == ["0", "2", "3", "5"]
    assert printing_.due == float("inf")
    take(printing_, 6)
    assert shown[-1] == "6"


def test_what_comes_when_nobody_waits_for_it_any_more_is_shown_once(printing_: Printing, shown: Shown) -> None:
    take(printing_, 2)
    printing_.show_overdue(long_after())
    take(printing_, 1, 1, 0, 0, 2)
    assert shown == ["2", "1", "0"]


def test_what_is_sent_twice_is_shown_once(printing_: Printing, shown: Shown) -> None:
    take(printing_, 0, 0, 2, 2, 1, 1, 2)
    assert shown == ["0", "1", "2"]


def test_at_the_end_of_the_session_all_that_is_held_is_shown(printing_: Printing, shown: Shown) -> None:
    take(printing_, 4, 2)
    printing_.take(notice(7, task="abc.0000002"))
    printing_.show_overdue()
    assert shown == ["2", "4", "7"]


def test_what_has_no_number_is_shown_at_once(printing_: Printing, shown: Shown) -> None:
    take(printing_, 1)
    for _ in range(2):
        printing_.take({"version": 1, "task": TASK, "lines": [["out", "of an older worker"]], "dropped": 0})
    take(printing_, -1)
    assert shown == ["of an older worker"] * 2 + ["-1"]


def test_what_there_is_no_room_for_holds_nothing_up(
    printing_: Printing, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "MOST_WAITING", 1)
    take(printing_, 1, 2, 3, 0)
    printing_.show_overdue()
    take(printing_, 4)
    assert shown == ["1", "(3 lines left out)", "4"]


def test_many_tasks_that_have_printed_take_little_memory(
    printing_: Printing, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printing, "MOST_KNOWN", 10)
    for number in range(100):
        printing_.take(notice(0, task=f"abc.{number}"))
        printing_.take(notice(10**9, task=f"abc.{number}"))
    printing_.show_overdue()
    assert len(shown) == 200
    assert (len(printing_._next), len(printing_._given_up), len(printing_._held)) == (10, 10, 0)
