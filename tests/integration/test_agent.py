"""The agent's loop, turn by turn: nothing that comes keeps it from looking after its lease and its processors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gristmill.protocol.keys import Keys
from gristmill.settings import WorkerSettings
from gristmill_worker.agent import CALLS_AT_ONCE, Agent
from gristmill_worker.board import clock_ns
from support.database import Database
from support.leaks import Leaks


@pytest.fixture
def agent(no_leaks: Leaks, database: Database, keys: Keys) -> Iterator[Agent]:
    """It is not registered; the test makes its turns."""
    agent = Agent(WorkerSettings(redis=database.address, namespace=keys.namespace))
    yield agent
    agent._control.stop()
    agent._sender.forget()
    assert agent._sender.finish(10)
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
