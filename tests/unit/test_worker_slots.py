"""As many processors take tasks as a worker has slots, whatever waits: who is started, woken, parked."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gristmill_worker.board import (
    ALONE,
    FINISHED,
    HELPLESS,
    LEAVE,
    LEAVING,
    PARK,
    PARKED,
    READY,
    START,
    STATUS,
    WAITING,
    WORDS,
    AgentBoard,
    Executing,
    clock_ns,
)
from gristmill_worker.processors import Processor
from gristmill_worker.slots import PARKED_NS, Slots


class Words:
    """The words of a board, without its memory."""

    def __init__(self) -> None:
        self.words = [0] * WORDS
        self.words[STATUS] = READY

    def executing(self) -> Executing | None:
        words = self.words
        return None if words[START] == words[FINISHED] else Executing(words[START], 0, 0)


class Child:
    """Stands for a process that does nothing."""

    pid = 0


def processor(*, busy: bool = False, waits: bool = False, parked: bool = False, helpless: bool = False) -> Processor:
    board = Words()
    one = Processor("p", cast("AgentBoard", board), cast("Any", Child()), -1)
    if busy or waits:
        board.words[START] = 7
    if waits:
        board.words[WAITING] = 7
    if helpless:
        board.words[HELPLESS] = 7
    if parked:
        board.words[STATUS], board.words[LEAVING] = PARKED, PARK
        one.parked_since = clock_ns()
    return one


def wish(one: Processor) -> int:
    return int(one.board.words[LEAVING])


def test_at_first_there_is_one_for_each_slot() -> None:
    assert Slots(3, 8).look([]).missing == 3
    assert Slots(3, 8).look([processor(), processor(busy=True)]).missing == 1


def test_for_one_that_waits_another_is_started() -> None:
    assert Slots(1, 3).look([processor(waits=True)]).missing == 1
    assert Slots(2, 9).look([processor(waits=True), processor(waits=True), processor(busy=True)]).missing == 1


def test_one_that_stands_by_is_woken_first() -> None:
    parked = processor(parked=True)

    assert Slots(1, 3).look([processor(waits=True), parked]).missing == 0
    assert wish(parked) == 0


def test_one_that_has_just_parked_is_woken_when_it_has_given_back_what_it_held() -> None:
    waits, parked = processor(waits=True), processor(parked=True)
    parked.parked_since = 0
    Slots(1, 2).look([waits, parked])
    assert (wish(parked), waits.board.words[ALONE]) == (PARK, 0)

    parked.parked_since = clock_ns()
    Slots(1, 2).look([waits, parked])
    assert wish(parked) == 0


def test_one_that_is_to_stand_by_once_more_gives_back_once_more() -> None:
    parked = processor(parked=True)
    parked.direct(0)
    parked.direct(PARK)

    assert parked.parked_since == 0


def test_of_one_too_many_an_idle_one_parks_at_once() -> None:
    busy, idle = processor(busy=True), processor()
    turn = Slots(1, 3).look([busy, idle])

    assert turn.idle == [idle]
    assert (wish(busy), wish(idle)) == (0, PARK)
    assert Slots(1, 3).look([busy, idle]).idle == [], "it has been told"


def test_without_an_idle_one_whoever_falls_free_first_parks() -> None:
    busy = [processor(busy=True) for _ in range(3)]
    Slots(2, 5).look(busy)
    assert [wish(one) for one in busy] == [PARK] * 3

    busy[0].board.words[STATUS] = PARKED
    Slots(2, 5).look(busy)
    assert [wish(one) for one in busy] == [PARK, 0, 0]


def test_one_that_waits_is_never_parked() -> None:
    waits = processor(waits=True)
    waits.board.words[LEAVING] = PARK
    Slots(1, 3).look([waits, processor(busy=True)])

    assert wish(waits) == 0


def test_at_the_bound_those_that_wait_are_alone() -> None:
    waiting = [processor(waits=True), processor(waits=True)]
    turn = Slots(1, 2).look(waiting)

    assert turn.missing == 0
    assert all(one.board.words[ALONE] for one in waiting)
    Slots(1, 2).look([processor(waits=True), processor(busy=True)])


def test_they_are_alone_no_longer_when_a_slot_is_filled() -> None:
    waits, other = processor(waits=True), processor(waits=True)
    Slots(1, 2).look([waits, other])
    other.board.words[WAITING] = 0
    Slots(1, 2).look([waits, other])

    assert waits.board.words[ALONE] == 0


def test_one_that_cannot_run_its_children_raises_the_bound() -> None:
    assert Slots(1, 1).look([processor(waits=True)]).missing == 0
    assert Slots(1, 1).look([processor(waits=True, helpless=True)]).missing == 1


def test_what_leaves_holds_no_slot() -> None:
    leaves = processor(busy=True)
    leaves.board.words[LEAVING] = LEAVE

    assert Slots(1, 3).look([leaves]).missing == 1


@pytest.mark.parametrize(("since", "wished"), [(0, PARK), (PARKED_NS + 1, LEAVE)])
def test_what_has_stood_by_for_long_ends(since: int, wished: int) -> None:
    parked = processor(parked=True)
    parked.parked_since = clock_ns() - since
    Slots(1, 3).look([processor(busy=True), parked])

    assert wish(parked) == wished
