"""When another Redis server answers than before, its history may have gone back by seconds: a replica that missed the
last writes has taken over, or a restart has lost its tail. Then this worker says again what it had said lately.

    agent       sends again the outcomes of the last ten seconds, then what its processors hold (`held`)
    scheduler   applies them: what the worker was given and does not hold goes back to its lane; says `settled`
    agent       writes the server into the boards
    processors  read from it; until then they wait, or they would get again what they have or have finished

It costs little and hurts nobody, so it is done after every change of server: one that has lost nothing finds nothing.
"""

from __future__ import annotations

import logging

import orjson

from gristmill.protocol.kinds import BATCH_TASKS
from gristmill_worker.board import SERVER, SUCCESSOR, clock_ns, server_word
from gristmill_worker.processors import SECOND, Processor
from gristmill_worker.reports import Reports

logger = logging.getLogger(__name__)

RECENT_NS = 10 * SECOND
"""So much of its history a server may have lost."""
LOCK_SECONDS = 1.0
"""A processor that keeps its lock for longer was frozen while holding it."""


class Succession:
    """What one worker id owes to a new server."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._number = 0
        self._server = 0

    def note(self, processors: list[Processor]) -> None:
        """Remember how far the outcomes have come; with each beat."""
        now = clock_ns()
        for processor in processors:
            with processor.board.locked() as locked:
                if locked:
                    processor.positions.append((now, processor.board.position()))
            while len(processor.positions) > 1 and processor.positions[1][0] < now - RECENT_NS:
                processor.positions.popleft()

    def begin(self, run_id: str, processors: list[Processor]) -> None:
        """Another server answers: send it what was finished lately, and what is held."""
        self._server = server_word(run_id)
        self._number += 1
        finished = self._reports.recent(RECENT_NS)
        held = []
        for processor in processors:
            board = processor.board
            with board.locked(LOCK_SECONDS):
                # What it had been handed by the former server and shows only after this does not count.
                board.words[SUCCESSOR] = self._server
                finished += board.outcomes_since(processor.positions[0][1] if processor.positions else 0)
                held += [(row.task, row.attempt, processor.name) for row in board.held()]
        for first in range(0, len(finished), BATCH_TASKS):
            self._reports.outcomes(orjson.dumps(finished[first : first + BATCH_TASKS])[1:-1], again=True)
        self._reports.held(self._number, held)
        logger.info(
            "another Redis server answers; saying again what was finished lately and what is held",
            extra={"finished": len(finished), "held": len(held)},
        )

    def settled(self, number: int, processors: list[Processor]) -> int:
        """The schedulers have put it right. Answers the server from which processors may read; 0 for not yet."""
        if number != self._number:
            return 0
        for processor in processors:
            processor.board.words[SERVER] = self._server
        return self._server
