"""Log lines: one a record, with fields, and nothing in them that can pass for another line."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from gristmill.logs import JsonFormatter, PlainFormatter, escape, setup, timestamp
from gristmill.settings import Settings, load


def record(text: str = "task finished", *arguments: object, error: bool = False, **fields: object) -> logging.LogRecord:
    """A record as a logger would make it."""
    caught = sys.exc_info() if error else None
    made = logging.getLogger("gristmill.test").makeRecord(
        "gristmill.test", logging.WARNING, "file.py", 1, text, arguments, caught, extra=fields
    )
    made.created = 1_700_000_000.25
    made.process = 42
    return made


def failed_record() -> logging.LogRecord:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        return record(error=True)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, which is as it was afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)


# --- plain --------------------------------------------------------------------------------------------------


def test_a_plain_line_has_time_level_process_module_text_and_fields() -> None:
    line = PlainFormatter().format(record("task %s", "done", task="c.0000001", attempt=2))

    assert line == "2023-11-14T22:13:20.250Z warning [42] gristmill.test: task done task=c.0000001 attempt=2"


def test_a_field_with_spaces_is_quoted() -> None:
    assert PlainFormatter().format(record(reason='it said "no"')).endswith(r'reason="it said \"no\""')


def test_nobody_can_forge_a_plain_line() -> None:
    line = PlainFormatter().format(record("name %s", "a\nb", reason="c\r\nd\x1b[2J\u2028\u202e"))

    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    assert "\u202e" not in line


def test_a_plain_traceback_stands_indented_below() -> None:
    first, *rest = PlainFormatter().format(failed_record()).splitlines()

    assert first.endswith("task finished")
    assert rest[-2:] == ["    | ValueError: first", "    | second"]
    assert all(line.startswith("    | ") for line in rest)


# --- json ---------------------------------------------------------------------------------------------------


def test_a_json_line_has_the_fields_beside_the_text() -> None:
    line = JsonFormatter().format(record("task done", task="c.0000001", attempt=2))

    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "pid": 42,
        "logger": "gristmill.test",
        "text": "task done",
        "task": "c.0000001",
        "attempt": 2,
    }


def test_a_json_line_is_one_line_of_ascii() -> None:
    line = JsonFormatter().format(record("a\nb\u2028ü", reason="\x1b\x85"))

    assert len(line.splitlines()) == 1
    assert line.isascii()


def test_a_json_line_has_the_traceback_as_text() -> None:
    assert "ValueError: first\nsecond" in json.loads(JsonFormatter().format(failed_record()))["traceback"]


def test_a_field_cannot_take_the_place_of_the_records_own() -> None:
    found = json.loads(JsonFormatter().format(record(level="none", pid=1)))

    assert (found["level"], found["extra_level"]) == ("warning", "none")
    assert (found["pid"], found["extra_pid"]) == (42, 1)


def test_what_json_does_not_know_is_written_as_text() -> None:
    assert json.loads(JsonFormatter().format(record(path={1})))["path"] == "{1}"


# --- the rest -----------------------------------------------------------------------------------------------


def test_milliseconds_are_cut_not_rounded_up_to_the_next_second() -> None:
    assert timestamp(0.9999) == "1970-01-01T00:00:00.999Z"


def test_ordinary_text_is_not_escaped() -> None:
    assert escape("plain ü text → 字") == "plain ü text → 字"


def test_setup_logs_to_standard_error_at_the_level(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)

    setup(load(Settings, {"log_level": "warning", "log_format": "json"}))
    logging.getLogger("gristmill.test").info("not shown")
    logging.getLogger("gristmill.test").warning("shown")

    assert [json.loads(line)["text"] for line in errors.getvalue().splitlines()] == ["shown"]


def test_setup_called_again_replaces_what_it_did(root: logging.Logger) -> None:
    before = len(root.handlers)

    setup(load(Settings))
    setup(load(Settings, {"log_format": "json"}))

    assert len(root.handlers) == before + 1
    assert isinstance(root.handlers[-1].formatter, JsonFormatter)
