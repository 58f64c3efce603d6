"""What the demo shows for people and for programs, and how far it says that it has come."""

from __future__ import annotations

import io
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
from rich.console import Console

from gristmill import interrupts
from gristmill.demo.files import SourceFile, Sources
from gristmill.demo.job import Work, by_package, differences, run_serially
from gristmill.demo.measure import FileReport, aggregate_package, measure_source
from gristmill.demo.progress import Lines
from gristmill.demo.report import Report, Verification, as_json, render
from gristmill.interrupts import SIGNALS, one_interrupt

FILES = [
    SourceFile("/src/mill/wheel.py", "src/mill/wheel.py", "src/mill"),
    SourceFile("/src/mill/old[red].py", "src/mill/old[red].py", "src/mill"),
    SourceFile("/src/grain.py", "src/grain.py", "src/grain"),
]
SOURCES = {
    "/src/mill/wheel.py": b"def turn(water):\n    if water and True:\n        return 1\n",
    "/src/mill/old[red].py": b"print 'x'\n",
    "/src/grain.py": b"def grind(): pass\n",
}


def work() -> Work:
    files = {path: measure_source(path, source) for path, source in SOURCES.items()}
    packages = {
        package: aggregate_package(package, [files[file.path] for file in members])
        for package, members in by_package(FILES).items()
    }
    return Work(files, packages, workers=Counter({"host|71|one|x": 3, "host|72||y": 2}), tasks=5, seconds=0.5)


def page(report: Report) -> list[str]:
    out = io.StringIO()
    render(report, Console(file=out, width=120))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_the_page_names_functions_totals_speed_workers_and_what_does_not_parse() -> None:
    lines = page(Report(Sources(FILES, ["/src/pipe.py is not a regular file"]), work()))

    assert "3 1 1 3 turn" in lines
    assert "src/mill/wheel.py:1" in lines
    assert "src/mill 2 4 1 3.0 1" in lines
    assert "1 file does not parse (counted, but without functions):" in lines
    assert any(line.startswith("src/mill/old[red].py SyntaxError: Missing parentheses") for line in lines)
    assert "Passed over: /src/pipe.py is not a regular file" in lines
    assert "3 files · 2 packages · 5 lines · 2 functions · 1 branch" in lines
    assert "5 tasks in 0.5 s: 10 tasks a second" in lines
    assert "worker one: 3 tasks" in lines
    assert "worker host:72: 2 tasks" in lines


def test_the_json_has_the_same_and_can_be_read_back() -> None:
    found = json.loads(json.dumps(as_json(Report(Sources(FILES, []), work(), Verification(1.0, [])))))

    assert found["right"] is True
    assert found["totals"] == {"files": 3, "packages": 2, "lines": 5, "functions": 2, "branches": 1}
    assert found["most_complex"][0]["file"] == "src/mill/wheel.py"
    assert found["most_complex"][0]["complexity"] == 3
    assert found["unparsed"][0]["file"] == "src/mill/old[red].py"
    assert found["verification"] == {"agrees": True, "seconds": 1.0, "different": []}


def test_a_failed_task_is_named_and_makes_it_wrong() -> None:
    failed = work()
    failed.failures["src/grain.py"] = "ProcessorDiedError: killed"

    report = Report(Sources(FILES, []), failed)

    assert not report.right
    assert "src/grain.py: ProcessorDiedError: killed" in page(report)


def test_a_figure_that_differs_is_named_and_makes_it_wrong() -> None:
    other = work()
    other.files["/src/grain.py"] = FileReport("/src/grain.py", 2, ())
    different = differences(work(), other)

    report = Report(Sources(FILES, []), work(), Verification(1.0, different))

    assert different == ["/src/grain.py"]
    assert not report.right
    assert any("FAILED" in line for line in page(report))


def test_a_file_that_only_one_run_has_is_a_difference() -> None:
    other = work()
    del other.files["/src/grain.py"]
    del other.packages["src/grain"]

    assert differences(work(), other) == ["/src/grain.py", "src/grain"]
    assert differences(other, work()) == ["/src/grain.py", "src/grain"]
    assert differences(work(), work()) == []


def test_nothing_to_show_is_no_error() -> None:
    assert "0 tasks in 0.0 s: 0 tasks a second" in page(Report(Sources([], []), Work()))


def test_the_serial_run_reads_every_file_and_sums_up_every_package() -> None:
    out = io.StringIO()
    files = [SourceFile(__file__, "tests/this.py", "tests")]

    done = run_serially(files, Lines(Console(file=out)))

    assert list(done.files) == [__file__]
    assert done.packages["tests"].functions == len(done.files[__file__].functions)
    assert out.getvalue().strip() == "Repeating it serially: 2 of 2"


@pytest.fixture
def handlers() -> Iterator[None]:
    """The handlers of the test run come back after the test."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_without_an_interrupt_everything_is_as_before(handlers: None) -> None:
    before = signal.getsignal(signal.SIGTERM)

    with one_interrupt():
        assert signal.getsignal(signal.SIGTERM) is not before

    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_is_ignored_stays_ignored(handlers: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with one_interrupt():
        os.kill(os.getpid(), signal.SIGHUP)

        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_the_first_interrupt_unwinds_and_the_next_do_not_disturb_the_tidying_up(handlers: None) -> None:
    tidied = False

    def interrupted() -> None:
        nonlocal tidied
        with one_interrupt():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGTERM)
                tidied = True

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert tidied
    os.kill(os.getpid(), signal.SIGINT)  # nor the end of the program


def test_an_interrupt_that_was_swallowed_is_not_the_last_one(handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python swallows what is raised in a destructor."""
    monkeypatch.setattr(interrupts, "TIDYING_SECONDS", 0.0)

    def interrupted() -> None:
        with one_interrupt():
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
