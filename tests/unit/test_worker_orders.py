"""The answer to a cancel or give_back says what is true of that attempt, whatever the processor is just doing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from gristmill_worker.board import INTERRUPT, TURN, clock_ns, row_text
from gristmill_worker.execution import Place
from gristmill_worker.orders import Order, Orders
from gristmill_worker.past import Past
from gristmill_worker.processors import SECOND, Processor
from gristmill_worker.stack import ProcessorStack
from gristmill_worker.watch import LONG_NS, Watch
from support.playedprocessor import PlayedProcessor


class Noted:
    """Stands in for `Reports`: what was said, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.said.append((name, *arguments))

    def confirms(self) -> list[tuple[Any, ...]]:
        return [words[1:] for words in self.said if words[0] == "confirm"]


class NobodyDeparted:
    all_inspected = True

    def add(self, *arguments: object) -> None: ...


class Stage:
    """One processor, played by hand, and those who watch it."""

    def __init__(self) -> None:
        self.played = PlayedProcessor()
        self.board, self.processor = self.played.board, self.played.processor
        self.reports = cast("Any", Noted())
        self.past = Past()
        self.departed = cast("Any", NobodyDeparted())
        self.orders = Orders(self.reports, self.past, self.departed, SECOND)
        self.watch = Watch(self.reports, self.past, self.departed, Place("w", "h"), SECOND)

    def hold(self, *names: str) -> None:
        self.board.hold([row_text(name.encode(), b"1", b"5-1", b'"f"') for name in names])
        self.board.words[TURN] += 1

    def start(self, row: int) -> int:
        return self.board.start(row, clock_ns())

    def finish(self, name: str) -> None:
        self.board.finish(b'["%b",1,"success","",1,1,1,null]' % name.encode())

    def ask(self, task: str, request: int = 1, *, attempt: int = 1, cancel: bool = True) -> None:
        self.orders.give(Order(task, attempt, request, cancel), [self.processor])

    def look(self, later_ns: int = 0) -> None:
        self.orders.look([self.processor])
        self.watch.look(self.processor, clock_ns() + later_ns)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.played.end()


class TestWhatHasNotStarted:
    @pytest.mark.parametrize("cancel", [True, False])
    def test_it_never_starts(self, stage: Stage, cancel: bool) -> None:
        stage.hold("a", "b")
        stage.ask("b", cancel=cancel)

        assert stage.reports.confirms() == [("b", 1, 1, "canceled")]
        assert stage.start(0)
        assert stage.start(1) == 0

    def test_asked_again_the_answer_is_the_same(self, stage: Stage) -> None:
        stage.hold("a")
        stage.ask("a", 1)
        stage.ask("a", 2, cancel=False)

        assert stage.reports.confirms() == [("a", 1, 1, "canceled"), ("a", 1, 2, "canceled")]

    def test_behind_a_long_task_it_is_given_back(self, stage: Stage) -> None:
        stage.hold("a", "b", "c")
        stage.start(0)
        stage.finish("a")
        stage.start(1)
        stage.look(LONG_NS)
        stage.ask("c")

        assert stage.reports.said == [
            ("outcomes", b'["a",1,"success","",1,1,1,null]'),
            ("returned", [("c", 1)]),
            ("confirm", "c", 1, 1, "canceled"),
        ]
        assert stage.start(2) == 0


class TestWhatExecutes:
    def test_it_is_not_given_back(self, stage: Stage) -> None:
        stage.hold("a")
        stage.start(0)
        stage.ask("a", cancel=False)

        assert stage.reports.confirms() == [("a", 1, 1, "failed")]
        assert stage.board.words[INTERRUPT] == 0

    def test_it_is_interrupted_and_answered_when_it_has_stopped(self, stage: Stage) -> None:
        stage.hold("a")
        start = stage.start(0)
        stage.ask("a")
        stage.look()
        assert stage.board.words[INTERRUPT] == start
        assert stage.reports.confirms() == []

        stage.board.stop()
        stage.look()

        assert stage.reports.confirms() == [("a", 1, 1, "canceled")]

    def test_an_outcome_that_came_first_is_kept(self, stage: Stage) -> None:
        stage.hold("a")
        stage.start(0)
        stage.ask("a")
        stage.finish("a")
        stage.look()

        assert stage.reports.confirms() == [("a", 1, 1, "failed")]

    def test_both_are_answered_when_the_next_is_cancelled_before_anybody_looked(self, stage: Stage) -> None:
        stage.hold("a", "b")
        stage.start(0)
        stage.ask("a", 1)
        stage.board.stop()
        stage.start(1)
        stage.ask("b", 2)
        stage.finish("b")
        stage.look()

        assert stage.reports.confirms() == [("a", 1, 1, "canceled"), ("b", 1, 2, "failed")]

    def test_both_are_canceled_when_the_next_is_stopped_too_before_anybody_looked(self, stage: Stage) -> None:
        stage.hold("a", "b")
        stage.start(0)
        stage.ask("a", 1)
        stage.board.stop()
        stage.start(1)
        stage.ask("b", 2)
        stage.board.stop()
        stage.look()

        assert stage.reports.confirms() == [("a", 1, 1, "canceled"), ("b", 1, 2, "canceled")]

    @pytest.mark.parametrize("cancel", [True, False])
    def test_asked_again_when_it_has_just_stopped_both_answers_are_true(self, stage: Stage, cancel: bool) -> None:
        stage.hold("a")
        stage.start(0)
        stage.ask("a", 1)
        stage.board.stop()
        stage.ask("a", 2, cancel=cancel)
        stage.look()

        assert stage.reports.confirms() == [("a", 1, 1, "canceled"), ("a", 1, 2, "canceled")]

    @pytest.mark.parametrize("first", ["below", "above"])
    def test_two_of_one_stack_are_canceled_together(self, stage: Stage, first: str) -> None:
        """The interrupt of the one below ends both; that of the other must not take its place."""
        stage.hold("below")
        start = stage.start(0)
        stack = ProcessorStack(stage.board)
        stack.push(row_text(b"above", b"1", b"", b'"f"'), clock_ns())
        for name in (first, "above" if first == "below" else "below"):
            stage.ask(name)
        assert stage.board.words[INTERRUPT] == start

        stack.pop(stopped=True)
        stage.board.stop()
        stage.look()

        assert sorted(stage.reports.confirms()) == [("above", 1, 1, "canceled"), ("below", 1, 1, "canceled")]

    def test_what_does_not_stop_dies_with_its_processor(self, stage: Stage) -> None:
        stage.hold("a", "b")
        stage.start(0)
        stage.ask("a")
        stage.look(2 * SECOND)
        stage.processor.wait()
        stage.watch.bury(Resealed(stage.processor))  # type: ignore[arg-type]

        assert stage.reports.confirms() == [("a", 1, 1, "canceled")]
        assert ("returned", [("b", 1)]) in stage.reports.said
        assert not any(words[0] == "failed" for words in stage.reports.said)


class TestWhatNobodyHas:
    def test_a_finished_one_is_failed(self, stage: Stage) -> None:
        stage.hold("a", "b")
        stage.start(0)
        stage.finish("a")
        stage.ask("a", 1)
        stage.start(1)
        stage.finish("b")
        stage.board.sent()
        stage.hold("c")
        stage.ask("b", 2)

        assert stage.reports.confirms() == [("a", 1, 1, "failed"), ("b", 1, 2, "failed")]

    def test_not_found_waits_until_the_processor_has_come_back_from_redis(self, stage: Stage) -> None:
        stage.ask("a")
        stage.look()
        assert stage.reports.confirms() == []
        assert stage.orders.waiting

        stage.hold("b")
        stage.look()

        assert stage.reports.confirms() == [("a", 1, 1, "not_found")]
        assert not stage.orders.waiting

    def test_what_comes_meanwhile_is_cancelled(self, stage: Stage) -> None:
        stage.ask("a")
        stage.hold("a")
        stage.look()

        assert stage.reports.confirms() == [("a", 1, 1, "canceled")]
        assert stage.start(0) == 0

    def test_while_it_may_still_come_what_was_here_lately_is_searched_once(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is a megabyte for each processor, and there may be many orders."""
        stage.ask("a")
        searches: list[str] = []

        def has_held(task: str, attempt: int) -> bool:
            searches.append(task)
            return False

        monkeypatch.setattr(stage.processor.board, "has_held", has_held)
        for _ in range(5):
            stage.look()
        assert searches == []

        stage.hold("b")
        stage.look()
        assert searches == ["a"]
        assert stage.reports.confirms() == [("a", 1, 1, "not_found")]

    def test_another_attempt_is_another_matter(self, stage: Stage) -> None:
        stage.hold("a")
        stage.ask("a", attempt=2)
        stage.board.words[TURN] += 1
        stage.look()

        assert stage.reports.confirms() == [("a", 2, 1, "not_found")]
        assert stage.start(0)

    def test_it_waits_for_what_a_dead_processor_was_handed(self, stage: Stage) -> None:
        stage.departed.all_inspected = False
        stage.ask("a")
        stage.board.words[TURN] += 1
        stage.look()
        assert stage.reports.confirms() == []

        stage.departed.all_inspected = True
        stage.look()

        assert stage.reports.confirms() == [("a", 1, 1, "not_found")]


class Resealed:
    """The processor, but left open for the fixture to close."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    def close(self) -> None: ...


class TestPast:
    def test_the_last_answers_are_kept(self) -> None:
        past = Past()
        past.note("a", 1, "canceled")
        past.bury(row_text(b"b", b"2", b"1-1", b'"f"') + bytes(100))

        assert past.answer("a", 1) == "canceled"
        assert past.answer("a", 2) == ""
        assert past.answer("b", 2) == "failed"
        assert past.answer("b", 1) == ""
