"""Every state meets every event, by real scripts: what the table allows happens, the rest changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gristmill.protocol.states import TERMINAL, Event, State, next_state
from support.driver import CALL, LANE, Driver, PlayedClient, PlayedWorker

INSIDE = State.WORKER_DISCONNECTING
"""This state exists only inside a script: it is met as Running, and passed through."""


@dataclass
class Stage:
    """One task (number 2) in one state, its worker, and nobody else who would take it."""

    driver: Driver
    client: PlayedClient
    worker: PlayedWorker
    deaths: int = 3
    attempt: int = 1

    @property
    def task(self) -> str:
        return self.client.task(2)

    def state(self) -> str:
        """Where the task is: by its record, or by the outcome that its client was told."""
        record = self.driver.record(self.task)
        if record:
            return record["state"]
        return self.client.outcome(2).state

    def picture(self) -> object:
        """Everything about the task that an event might change."""
        return (
            self.driver.record(self.task),
            [outcome for outcome in self.client.outcomes() if outcome.number == 2],
            [entry for entry in self.worker.entries() if entry.fields["task"] == self.task],
            self.driver.ready(),
            self.driver.database.zset(self.driver.keys.delayed()),
        )

    def refusals(self) -> int:
        return sum(number for name, number in self.driver.counts().items() if name.startswith(("refused:", "stale:")))


# --- the states ---------------------------------------------------------------------------------------------


def submit(stage: Stage) -> None:
    """Task 1 executes, task 2 waits behind it in the same processor: so balance may ask for it."""
    options = {"retries": 1, "retry_delay_ms": 60_000, "max_deaths": stage.deaths}
    stage.client.submit([1, 0, CALL, {"max_deaths": 9}], [2, 0, CALL, options])


def running(stage: Stage) -> None:
    submit(stage)
    stage.worker.read(2)


def inactive(stage: Stage) -> None:
    """Behind a dependency, so that a dependency can end it; nobody has room anyhow."""
    stage.worker.drain()
    submit(stage)


def canceling(stage: Stage) -> None:
    running(stage)
    stage.client.cancel(2)


def balance_canceling(stage: Stage) -> None:
    running(stage)
    ask_back(stage)


def success(stage: Stage) -> None:
    running(stage)
    stage.worker.succeed(stage.task)


def failed(stage: Stage) -> None:
    running(stage)
    stage.worker.fail(stage.task)


def failed_worker_died(stage: Stage) -> None:
    running(stage)
    stage.worker.died(stage.task)


def canceled(stage: Stage) -> None:
    canceling(stage)
    stage.worker.confirm(stage.task, "canceled")


def canceled_not_found(stage: Stage) -> None:
    canceling(stage)
    stage.worker.confirm(stage.task, "not_found")


STATES: dict[State, Callable[[Stage], None]] = {
    State.INACTIVE: inactive,
    State.RUNNING: running,
    State.BALANCE_CANCELING: balance_canceling,
    State.CANCELING: canceling,
    State.SUCCESS: success,
    State.FAILED: failed,
    State.FAILED_WORKER_DIED: failed_worker_died,
    State.CANCELED: canceled,
    State.CANCELED_NOT_FOUND: canceled_not_found,
}

# --- the events ---------------------------------------------------------------------------------------------


def has_capacity(stage: Stage) -> None:
    stage.driver.worker(2)


def cancel(stage: Stage) -> None:
    stage.client.cancel(2)


def cancel_and_confirm(stage: Stage) -> None:
    cancel(stage)
    stage.worker.confirm(stage.task, "canceled")


def ask_back(stage: Stage) -> None:
    """An idle worker, for a moment: then it drains, so that it takes nothing."""
    idle = stage.driver.worker(0)
    key = stage.driver.keys.worker(idle.id)
    stage.driver.database.run("HSET", key, "processors", 1, "room", 1)
    stage.driver.database.run("ZADD", stage.driver.keys.load(LANE), 0, idle.id)
    stage.driver.duty("balance", LANE)
    idle.drain()


def outcome(status: str) -> Callable[[Stage], None]:
    def fire(stage: Stage) -> None:
        row = stage.worker.row(stage.task, status, attempt=stage.attempt)
        stage.worker.send_outcomes(row)

    return fire


def confirm(answer: str) -> Callable[[Stage], None]:
    def fire(stage: Stage) -> None:
        stage.worker.confirm(stage.task, answer, attempt=stage.attempt)

    return fire


def give_back(stage: Stage) -> None:
    stage.worker.give_back(stage.task, attempt=stage.attempt)


def lose_worker(stage: Stage) -> None:
    """The processor that executed task 1 has ended it, so that task 2 is the one that executes."""
    stage.worker.succeed(stage.client.task(1))
    stage.worker.lose()


def dependency_ends(canceled: bool) -> Callable[[Stage], None]:
    """Task 3 ends without a value, and task 2 is said to depend on it, whatever its state."""

    def fire(stage: Stage) -> None:
        driver, dependency = stage.driver, stage.client.task(3)
        stage.client.submit([3, 0, CALL, {"lane": "nowhere"}])
        keys = driver.keys
        driver.database.run("HSET", keys.task(dependency), "users", 1, "more", 1)
        driver.database.run("SADD", keys.dependents(dependency), stage.task)
        if driver.state(stage.task) == State.INACTIVE:
            driver.database.run("ZREM", keys.ready(LANE), stage.task)
            driver.database.run("HSET", keys.task(stage.task), "dependencies", 1, "needs", dependency, "more", 1)
        if canceled:
            stage.client.cancel(3)
        else:
            failing = driver.worker(1, capabilities={"nowhere": -1})
            failing.read()
            failing.fail(dependency)
        driver.database.run("DEL", keys.task(dependency), keys.value(dependency), keys.dependents(dependency))

    return fire


EVENTS: dict[Event, Callable[[Stage], None]] = {
    Event.HAS_CAPACITY: has_capacity,
    Event.TASK_CANCEL: cancel,
    Event.BALANCE_TASK_CANCEL: ask_back,
    Event.RESULT_SUCCESS: outcome("success"),
    Event.RESULT_FAILED: outcome("failed"),
    Event.RESULT_WORKER_DIED: outcome("died"),
    Event.RESULT_FAILED_RETRY: outcome("retry"),
    Event.CANCEL_CONFIRM_CANCELED: confirm("canceled"),
    Event.CANCEL_CONFIRM_FAILED: confirm("failed"),
    Event.CANCEL_CONFIRM_NOT_FOUND: confirm("not_found"),
    Event.WORKER_DISCONNECT: lose_worker,
    Event.TASK_RETURNED: give_back,
    Event.DEPENDENCY_FAILED: dependency_ends(canceled=False),
    Event.DEPENDENCY_CANCELED: dependency_ends(canceled=True),
}

INSIDE_EVENTS = {Event.SCHEDULER_HAS_TASK: 3, Event.SCHEDULER_HAS_NO_TASK: 1}
"""These follow upon WorkerDisconnect in the same script; which, the number of deaths allowed decides."""

SENT_BY_WORKERS = {
    Event.RESULT_SUCCESS,
    Event.RESULT_FAILED,
    Event.RESULT_WORKER_DIED,
    Event.RESULT_FAILED_RETRY,
    Event.CANCEL_CONFIRM_CANCELED,
    Event.CANCEL_CONFIRM_FAILED,
    Event.CANCEL_CONFIRM_NOT_FOUND,
    Event.TASK_RETURNED,
}
"""Whoever sends one of these in the wrong state is counted."""


def stage_of(driver: Driver, state: State, deaths: int = 3, *, drained: bool = True) -> Stage:
    """The worker drains, so that a task which goes back to its lane is seen there and not assigned at once."""
    client, worker = driver.client(), driver.worker(1)
    stage = Stage(driver, client, worker, deaths)
    STATES[state](stage)
    if drained:
        worker.drain()
    if state is State.INACTIVE:
        stage.attempt = 0
    assert stage.state() == state
    return stage


def test_every_state_and_every_event_can_be_staged() -> None:
    assert set(STATES) | {INSIDE} == set(State)
    assert set(EVENTS) | set(INSIDE_EVENTS) == set(Event)


def settled(state: State | None) -> State | None:
    """What is left of a state after the script: a lost worker's task goes on at once."""
    return next_state(INSIDE, Event.SCHEDULER_HAS_TASK) if state is INSIDE else state


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_a_pair(driver: Driver, state: State, event: Event) -> None:
    stage = stage_of(driver, state, drained=event is not Event.BALANCE_TASK_CANCEL)
    expected = settled(next_state(state, event))
    before, refusals = stage.picture(), stage.refusals()
    EVENTS[event](stage)

    if expected is not None:
        assert stage.state() == expected
        if expected in TERMINAL:
            assert stage.client.outcome(2).state == expected
            assert stage.task not in stage.worker.queue()
    elif event in (Event.HAS_CAPACITY, Event.WORKER_DISCONNECT):
        assert stage.state() == state  # others than this task may move
    else:
        assert stage.picture() == before
    if expected is None and event in SENT_BY_WORKERS:
        assert stage.refusals() > refusals


@pytest.mark.parametrize(("event", "deaths"), INSIDE_EVENTS.items())
def test_what_follows_inside_the_script_when_a_worker_is_lost(driver: Driver, event: Event, deaths: int) -> None:
    stage = stage_of(driver, State.RUNNING, deaths)
    lose_worker(stage)

    assert stage.state() == next_state(INSIDE, event)


@pytest.mark.parametrize("event", [*EVENTS])
@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_terminal_state_never_changes_even_while_its_value_is_needed(
    driver: Driver, state: State, event: Event
) -> None:
    stage = stage_of(driver, State.CANCELING if state is State.CANCELED_NOT_FOUND else State.RUNNING)
    keys = driver.keys
    driver.database.run("HSET", keys.task(stage.task), "users", 1, "more", 1)
    {
        State.SUCCESS: EVENTS[Event.RESULT_SUCCESS],
        State.FAILED: EVENTS[Event.RESULT_FAILED],
        State.FAILED_WORKER_DIED: EVENTS[Event.RESULT_WORKER_DIED],
        State.CANCELED: cancel_and_confirm,
        State.CANCELED_NOT_FOUND: EVENTS[Event.CANCEL_CONFIRM_NOT_FOUND],
    }[state](stage)
    assert driver.state(stage.task) == state
    before, outcomes = driver.record(stage.task), stage.client.outcomes()
    EVENTS[event](stage)

    assert driver.record(stage.task) == before
    assert [found for found in stage.client.outcomes() if found.number == 2] == [
        found for found in outcomes if found.number == 2
    ]
    driver.database.run("DEL", keys.task(stage.task), keys.value(stage.task), keys.dependents(stage.task))


def test_the_state_inside_the_script_is_never_written(driver: Driver) -> None:
    stage = stage_of(driver, State.RUNNING)
    lose_worker(stage)

    assert INSIDE.value not in {row[1] for row in driver.events()}
    assert f"state:{INSIDE.value}" not in driver.counts()
