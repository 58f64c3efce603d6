"""The state table is what the architecture says, and hangs together."""

from __future__ import annotations

import pytest

from gristmill.protocol.states import (
    ACTIVE,
    ASSIGNED,
    EVENT_SENTENCES,
    STATE_SENTENCES,
    TERMINAL,
    TRANSITIONS,
    Event,
    State,
    next_state,
)

INACTIVE, RUNNING, BALANCING, CANCELING, DISCONNECTING = (
    State.INACTIVE,
    State.RUNNING,
    State.BALANCE_CANCELING,
    State.CANCELING,
    State.WORKER_DISCONNECTING,
)

# The table of architecture §3, one row a state; "-" is refused.
ARCHITECTURE: dict[State, dict[Event, State]] = {
    INACTIVE: {
        Event.HAS_CAPACITY: RUNNING,
        Event.TASK_CANCEL: State.CANCELED,
        Event.DEPENDENCY_FAILED: State.FAILED,
        Event.DEPENDENCY_CANCELED: State.CANCELED,
    },
    RUNNING: {
        Event.TASK_CANCEL: CANCELING,
        Event.BALANCE_TASK_CANCEL: BALANCING,
        Event.RESULT_SUCCESS: State.SUCCESS,
        Event.RESULT_FAILED: State.FAILED,
        Event.RESULT_WORKER_DIED: State.FAILED_WORKER_DIED,
        Event.RESULT_FAILED_RETRY: INACTIVE,
        Event.WORKER_DISCONNECT: DISCONNECTING,
        Event.TASK_RETURNED: INACTIVE,
    },
    BALANCING: {
        Event.TASK_CANCEL: CANCELING,
        Event.RESULT_SUCCESS: State.SUCCESS,
        Event.RESULT_FAILED: State.FAILED,
        Event.RESULT_WORKER_DIED: State.FAILED_WORKER_DIED,
        Event.RESULT_FAILED_RETRY: INACTIVE,
        Event.CANCEL_CONFIRM_CANCELED: INACTIVE,
        Event.CANCEL_CONFIRM_FAILED: RUNNING,
        Event.CANCEL_CONFIRM_NOT_FOUND: INACTIVE,
        Event.WORKER_DISCONNECT: DISCONNECTING,
        Event.TASK_RETURNED: INACTIVE,
    },
    CANCELING: {
        Event.RESULT_SUCCESS: State.SUCCESS,
        Event.RESULT_FAILED: State.FAILED,
        Event.RESULT_WORKER_DIED: State.FAILED_WORKER_DIED,
        Event.RESULT_FAILED_RETRY: State.FAILED,
        Event.CANCEL_CONFIRM_CANCELED: State.CANCELED,
        Event.CANCEL_CONFIRM_FAILED: RUNNING,
        Event.CANCEL_CONFIRM_NOT_FOUND: State.CANCELED_NOT_FOUND,
        Event.WORKER_DISCONNECT: State.CANCELED,
        Event.TASK_RETURNED: State.CANCELED,
    },
    DISCONNECTING: {Event.SCHEDULER_HAS_TASK: INACTIVE, Event.SCHEDULER_HAS_NO_TASK: State.FAILED_WORKER_DIED},
}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_each_pair_leads_where_the_architecture_says(state: State, event: Event) -> None:
    assert next_state(state, event) == ARCHITECTURE.get(state, {}).get(event)


def test_a_terminal_state_never_changes() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] in TERMINAL]


def test_every_state_is_terminal_active_or_lives_inside_a_script() -> None:
    assert set(State) == TERMINAL | ACTIVE | {DISCONNECTING}
    assert not TERMINAL & ACTIVE


def test_an_assigned_task_is_active() -> None:
    assert ACTIVE - {INACTIVE} == ASSIGNED


def test_every_state_leads_to_a_terminal_one() -> None:
    ends = set(TERMINAL)
    while more := {start for (start, _), target in TRANSITIONS.items() if target in ends} - ends:
        ends |= more

    assert set(State) == ends


def test_every_state_can_be_reached_from_inactive() -> None:
    reached = {INACTIVE}
    while more := {target for (start, _), target in TRANSITIONS.items() if start in reached} - reached:
        reached |= more

    assert set(State) == reached


def test_every_event_is_used() -> None:
    assert set(Event) == {event for _, event in TRANSITIONS}


def test_every_state_and_event_has_a_sentence() -> None:
    for sentence in [*(state.sentence for state in State), *(event.sentence for event in Event)]:
        assert sentence.endswith(".")
    assert set(STATE_SENTENCES) == set(State)
    assert set(EVENT_SENTENCES) == set(Event)
