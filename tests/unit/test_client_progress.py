"""How far a map has come, shown to whoever waits."""

from __future__ import annotations

import io
import sys
import threading
import types

import pytest
from rich.console import Console

from gristmill.client import progress
from gristmill.client.progress import Progress


def console(*, terminal: bool = False, jupyter: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, force_jupyter=jupyter, width=100)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(("total", "of"), [(1500, " of 1,500"), (None, "")])
def test_where_there_is_no_terminal_the_end_is_one_plain_line(total: int | None, of: str) -> None:
    where = console()
    shown = Progress("sum", total, where)
    shown.advance(1500)
    shown.close()
    shown.close()

    assert written(where).count("\n") == 1
    assert written(where).startswith(f"sum: 1,500{of} items, ")
    assert "\x1b" not in written(where)


def test_a_line_comes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    where = console()
    shown = Progress("sum", 2, where)
    shown.advance(1)
    shown.advance(1)
    shown.close()

    assert [line.partition(",")[0] for line in written(where).splitlines()] == [
        "sum: 1 of 2 items",
        "sum: 2 of 2 items",
        "sum: 2 of 2 items",
    ]


def test_in_a_terminal_it_is_a_bar() -> None:
    where = console(terminal=True)
    shown = Progress("sum", 4, where)
    shown.advance(4)
    shown.close()

    assert "sum" in written(where)
    assert "4/4" in written(where)
    assert "items," not in written(where)


def test_what_comes_after_the_end_is_not_shown() -> None:
    where = console()
    shown = Progress("sum", 2, where)
    shown.close()
    shown.advance(1)

    assert written(where).count("\n") == 1


def test_a_notebook_without_widgets_gets_lines() -> None:
    where = console(jupyter=True)
    shown = Progress("sum", 4, where)
    shown.advance(4)
    shown.close()

    assert written(where).startswith("sum: 4 of 4 items, ")


def test_a_notebook_with_widgets_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown_there: list[str] = []

    class Output:
        def __enter__(self) -> None:
            shown_there.append("output")

        def __exit__(self, *_: object) -> None:
            pass

        def clear_output(self, wait: bool) -> None:
            pass

    def display(what: object) -> None:
        shown_there.append(type(what).__name__)

    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "ipywidgets", types.SimpleNamespace(Output=Output))
    where = console(jupyter=True)
    shown = Progress("sum", 4, where)
    shown.advance(4)
    shown.close()

    assert "Output" in shown_there
    assert "items," not in written(where)


def test_it_may_be_closed_in_the_middle_of_advancing() -> None:
    """By the garbage collector, or a signal handler."""
    where = console()
    shown = Progress("sum", 2, where)
    has_returned = threading.Event()

    def close() -> None:
        with shown._lock:
            shown.close()
        has_returned.set()

    threading.Thread(target=close, daemon=True).start()

    assert has_returned.wait(60)
