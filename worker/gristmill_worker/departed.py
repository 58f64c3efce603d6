"""Dead processors, as long as entries are pending under their names.

What a processor had in its board is known. But it may have died between Redis handing it tasks and its putting them
there: such entries are found by XPENDING and given back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from gristmill.store.connection import ReplyError
from gristmill_worker.link import unpack_entry
from gristmill_worker.past import Past
from gristmill_worker.reports import Reports
from gristmill_worker.sender import Answer

logger = logging.getLogger(__name__)


class _One:
    def __init__(self, name: str, connection: int, history: bytes) -> None:
        self.name = name
        self.connection = connection
        self.history = history
        self.inspected = False
        self.asking = False
        self.returned: set[str] = set()


class Departed:
    """Those of one worker id."""

    def __init__(self, reports: Reports, past: Past) -> None:
        self._reports = reports
        self._past = past
        self._all: list[_One] = []

    def add(self, name: str, connection: int, history: bytes) -> None:
        """A processor is dead; `history` has all rows it is known to have had."""
        self._all.append(_One(name, connection, history))
        self.check()

    @property
    def all_inspected(self) -> bool:
        """Whether for each it is known what it had been handed."""
        return all(one.inspected for one in self._all)

    def check(self) -> None:
        """Ask Redis what is still pending; now and then, until there is nothing."""
        for one in self._all:
            if not one.asking:
                one.asking = True
                self._reports.ask_pending(one.name, one.connection, self._answer_for(one))

    def _answer_for(self, one: _One) -> Callable[[Answer], None]:
        return lambda answer: self._on_pending(one, answer)

    def _on_pending(self, one: _One, answer: Answer) -> None:
        one.asking = False
        pending = answer.replies[-1]
        if isinstance(pending, ReplyError):
            # No such group: the worker is about to register anew, and all of this is over.
            one.inspected = True
            return
        unknown = [
            entry.decode()
            for entry, *_ in pending
            if b'"%b"' % entry not in one.history and entry.decode() not in one.returned
        ]
        if unknown:
            self._reports.ask_entries(unknown, lambda entries: self._on_entries(one, unknown, entries))
        else:
            one.inspected = True
            if not pending:
                self._all.remove(one)
                self._reports.forget_consumer(one.name)

    def _on_entries(self, one: _One, unknown: list[str], answer: Answer) -> None:
        tasks = []
        for reply in answer.replies:
            if isinstance(reply, ReplyError) or not reply or reply[0][1] is None:
                continue  # deleted since: cancelled, or moved away
            try:
                fields = unpack_entry(reply[0][1])
                tasks.append((fields[b"task"].decode(), int(fields[b"attempt"])))
            except (ValueError, IndexError):
                logger.exception("an entry of the task stream cannot be read")
        one.returned.update(unknown)
        one.inspected = True
        for task, attempt in tasks:
            self._past.note(task, attempt, "canceled")
        if tasks:
            logger.info(
                "giving back tasks that a dead processor never saw",
                extra={"processor": one.name, "tasks": len(tasks)},
            )
            self._reports.returned(tasks)
