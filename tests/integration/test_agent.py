"""The agent's loop, turn by turn: nothing that comes keeps it from looking after its lease and its processors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gristmill.protocol.keys import Keys
from gristmill.settings import WorkerSettings
from gristmill_worker.agent import CALLS_AT_ONCE, ENDING_NS, Agent, Phase
from gristmill_worker.board import LEFT, STATUS, WATCHING, clock_ns, row_text
from gristmill_worker.processors import SECOND, Processor
from support.database import Database
from support.leaks import Leaks
from support.playedprocessor import PlayedProcessor
from support.waiting import wait_until


@pytest.fixture
def agent(no_leaks: Leaks, database: Database, keys: Keys) -> Iterator[Agent]:
    """It is not registered; the test makes its turns."""
    agent = Agent(WorkerSettings(redis=database.address, namespace=keys.namespace))
    yield agent
    agent._control.stop()
    agent._sender.forget()
    assert agent._sender.finish(60)
    agent._alarm.close()


def test_orders_without_end_do_not_keep_it_from_its_other_work(agent: Agent) -> None:
    handled = 0

    def order() -> None:
        nonlocal handled
        handled += 1
        if handled < 10 * CALLS_AT_ONCE:
            agent._call(order)

    agent._call(order)
    agent._turn(clock_ns(), False)

    assert handled <= CALLS_AT_ONCE
    assert agent._pause() == 0


@pytest.fixture
def processor(agent: Agent) -> Iterator[PlayedProcessor]:
    """The agent's only one."""
    played = PlayedProcessor()
    agent._worker.processors.alive.append(played.processor)
    yield played
    agent._worker.processors.alive.clear()
    played.end()


def test_a_batch_that_comes_while_it_stops_watching_is_looked_at(
    agent: Agent, processor: PlayedProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, watch = processor.board, agent._worker.watch
    original = watch.look
    agent._phase, agent._beating = Phase.WORKING, True
    now = clock_ns()
    agent._watch_until = now + SECOND
    agent._look(now)
    assert board.words[WATCHING]

    def look_too_early(looked_at: Processor, now: int) -> int | None:
        again = original(looked_at, now)
        monkeypatch.setattr(watch, "look", original)
        board.hold([row_text(b"a", b"1", b"5-1", b'"f"')])
        board.start(0, clock_ns())
        return again

    monkeypatch.setattr(watch, "look", look_too_early)
    agent._look(agent._watch_until)
    assert agent._pause() < 0, "it looks again at once"
    agent._look(clock_ns())
    assert board.words[WATCHING]


def test_a_processor_that_hangs_in_its_end_is_killed(agent: Agent, processor: PlayedProcessor) -> None:
    now, processors = clock_ns(), agent._worker.processors
    processors.not_before = now + 600 * SECOND
    processor.board.words[STATUS] = LEFT
    for later in range(0, 2 * ENDING_NS, ENDING_NS):
        agent._fill_slots(now + later)
    assert not processor.processor.has_ended()

    agent._fill_slots(now + 2 * ENDING_NS)
    wait_until(processor.processor.has_ended, "it is dead")
