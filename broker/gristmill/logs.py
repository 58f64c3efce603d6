"""Logging of the programs: fixed text and fields, one line a record, for people (`plain`) or collectors (`json`).

    logger = logging.getLogger(__name__)
    logger.info("worker registered", extra={"worker": worker, "lanes": 2})

Text from outside may stand in any field, so control characters are escaped: nobody can forge a line or move the cursor.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill.settings import Settings

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN_WORD = re.compile(r"[^\s\"=]+\Z")
_TRACEBACK_PREFIX = "    | "


def escape(text: str) -> str:
    """The text with control characters, line separators and direction marks written as escapes."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def timestamp(seconds: float) -> str:
    """UTC with milliseconds."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds * 1000) % 1000:03d}Z"


class PlainFormatter(logging.Formatter):
    """`time level [pid] module: text field=value ...`, tracebacks indented below."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback's lines when there is one."""
        pairs = "".join(f" {name}={self._value(value)}" for name, value in fields(record).items())
        line = (
            f"{timestamp(record.created)} {record.levelname.lower():<7} [{record.process}] "
            f"{record.name}: {escape(record.getMessage())}{pairs}"
        )
        for text in self._traceback(record):
            line += "".join(f"\n{_TRACEBACK_PREFIX}{escape(part)}" for part in text.splitlines())
        return line

    def _traceback(self, record: logging.LogRecord) -> list[str]:
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        return [text for text in (record.exc_text, record.stack_info) if text]

    @staticmethod
    def _value(value: object) -> str:
        text = str(value)
        return escape(text if _PLAIN_WORD.match(text) else json.dumps(text, ensure_ascii=False))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, pure ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's own fields win over `extra` of the same name, which then begins with `extra_`."""
        body: dict[str, Any] = {
            "time": timestamp(record.created),
            "level": record.levelname.lower(),
            "pid": record.process,
            "logger": record.name,
            "text": record.getMessage(),
        }
        if record.exc_info:
            body["traceback"] = self.formatException(record.exc_info)
        for name, value in fields(record).items():
            body[f"extra_{name}" if name in body else name] = value
        return json.dumps(body, default=str)


def setup(settings: Settings) -> None:
    """Log to standard error as the settings say; called again, it replaces what it set before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else PlainFormatter())
    root = logging.getLogger()
    for former in root.handlers[:]:
        if isinstance(former.formatter, (PlainFormatter, JsonFormatter)):
            root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(settings.log_level.upper())
    logging.captureWarnings(True)
