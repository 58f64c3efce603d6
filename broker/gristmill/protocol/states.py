"""The state machine of a task: the one table that scripts, documentation and tests are checked against.

A pair that is not in `TRANSITIONS` is refused: nothing changes but a counter.
"""

from __future__ import annotations

from enum import Enum


class State(str, Enum):
    """Where a task is."""

    INACTIVE = "inactive"
    RUNNING = "running"
    BALANCE_CANCELING = "balance_canceling"
    CANCELING = "canceling"
    WORKER_DISCONNECTING = "worker_disconnecting"
    SUCCESS = "success"
    FAILED = "failed"
    FAILED_WORKER_DIED = "failed_worker_died"
    CANCELED = "canceled"
    CANCELED_NOT_FOUND = "canceled_not_found"

    @property
    def sentence(self) -> str:
        """What the state means, in one sentence."""
        return STATE_SENTENCES[self]


class Event(str, Enum):
    """What happens to a task."""

    HAS_CAPACITY = "HasCapacity"
    TASK_CANCEL = "TaskCancel"
    BALANCE_TASK_CANCEL = "BalanceTaskCancel"
    RESULT_SUCCESS = "ResultSuccess"
    RESULT_FAILED = "ResultFailed"
    RESULT_WORKER_DIED = "ResultWorkerDied"
    RESULT_FAILED_RETRY = "ResultFailedRetry"
    CANCEL_CONFIRM_CANCELED = "CancelConfirmCanceled"
    CANCEL_CONFIRM_FAILED = "CancelConfirmFailed"
    CANCEL_CONFIRM_NOT_FOUND = "CancelConfirmNotFound"
    WORKER_DISCONNECT = "WorkerDisconnect"
    SCHEDULER_HAS_TASK = "SchedulerHasTask"
    SCHEDULER_HAS_NO_TASK = "SchedulerHasNoTask"
    TASK_RETURNED = "TaskReturned"
    DEPENDENCY_FAILED = "DependencyFailed"
    DEPENDENCY_CANCELED = "DependencyCanceled"

    @property
    def sentence(self) -> str:
        """What happened, in one sentence."""
        return EVENT_SENTENCES[self]


STATE_SENTENCES: dict[State, str] = {
    State.INACTIVE: "Known, and in exactly one place: behind its dependencies, in `delayed`, or in `ready:<lane>`.",
    State.RUNNING: "Assigned: it lies in the worker's task stream, read by a processor (held) or not yet (queued).",
    State.BALANCE_CANCELING: "A worker was asked to give back a task that it holds but has not started.",
    State.CANCELING: "A worker was asked to stop a task that it holds.",
    State.WORKER_DISCONNECTING: "The worker is gone; the state exists only inside a script.",
    State.SUCCESS: "Ended with a value.",
    State.FAILED: "Ended with an exception, its own or a dependency's.",
    State.FAILED_WORKER_DIED: "Ended because too many workers died while executing it.",
    State.CANCELED: "Ended by a cancel, its own or a dependency's, before it had an outcome.",
    State.CANCELED_NOT_FOUND: "Ended by a cancel; the worker that should have held it never received it.",
}

EVENT_SENTENCES: dict[Event, str] = {
    Event.HAS_CAPACITY: "A worker with room takes it.",
    Event.TASK_CANCEL: "The client, or a person, cancels it.",
    Event.BALANCE_TASK_CANCEL: "Balance wants it on another worker.",
    Event.RESULT_SUCCESS: "A processor sent its value.",
    Event.RESULT_FAILED: "A processor sent its exception, or an agent says that the processor died.",
    Event.RESULT_WORKER_DIED: "An agent says that executing it has killed too many processors.",
    Event.RESULT_FAILED_RETRY: "It failed and has attempts left.",
    Event.CANCEL_CONFIRM_CANCELED: "The worker stopped it, or gave it back, as asked.",
    Event.CANCEL_CONFIRM_FAILED: "The worker could not: it has started, or its outcome is on the way.",
    Event.CANCEL_CONFIRM_NOT_FOUND: "No processor of the worker received that attempt.",
    Event.WORKER_DISCONNECT: "Its worker left, or its lease ended.",
    Event.SCHEDULER_HAS_TASK: "The record is there and it has deaths left.",
    Event.SCHEDULER_HAS_NO_TASK: "It has no deaths left.",
    Event.TASK_RETURNED: "The worker gives back what it has not started.",
    Event.DEPENDENCY_FAILED: "A dependency failed.",
    Event.DEPENDENCY_CANCELED: "A dependency was cancelled.",
}

_S, _E = State, Event

TRANSITIONS: dict[tuple[State, Event], State] = {
    (_S.INACTIVE, _E.HAS_CAPACITY): _S.RUNNING,
    (_S.INACTIVE, _E.TASK_CANCEL): _S.CANCELED,
    (_S.INACTIVE, _E.DEPENDENCY_FAILED): _S.FAILED,
    (_S.INACTIVE, _E.DEPENDENCY_CANCELED): _S.CANCELED,
    (_S.RUNNING, _E.TASK_CANCEL): _S.CANCELING,
    (_S.RUNNING, _E.BALANCE_TASK_CANCEL): _S.BALANCE_CANCELING,
    (_S.RUNNING, _E.RESULT_SUCCESS): _S.SUCCESS,
    (_S.RUNNING, _E.RESULT_FAILED): _S.FAILED,
    (_S.RUNNING, _E.RESULT_WORKER_DIED): _S.FAILED_WORKER_DIED,
    (_S.RUNNING, _E.RESULT_FAILED_RETRY): _S.INACTIVE,
    (_S.RUNNING, _E.WORKER_DISCONNECT): _S.WORKER_DISCONNECTING,
    (_S.RUNNING, _E.TASK_RETURNED): _S.INACTIVE,
    (_S.BALANCE_CANCELING, _E.TASK_CANCEL): _S.CANCELING,
    (_S.BALANCE_CANCELING, _E.RESULT_SUCCESS): _S.SUCCESS,
    (_S.BALANCE_CANCELING, _E.RESULT_FAILED): _S.FAILED,
    (_S.BALANCE_CANCELING, _E.RESULT_WORKER_DIED): _S.FAILED_WORKER_DIED,
    (_S.BALANCE_CANCELING, _E.RESULT_FAILED_RETRY): _S.INACTIVE,
    (_S.BALANCE_CANCELING, _E.CANCEL_CONFIRM_CANCELED): _S.INACTIVE,
    (_S.BALANCE_CANCELING, _E.CANCEL_CONFIRM_FAILED): _S.RUNNING,
    (_S.BALANCE_CANCELING, _E.CANCEL_CONFIRM_NOT_FOUND): _S.INACTIVE,
    (_S.BALANCE_CANCELING, _E.WORKER_DISCONNECT): _S.WORKER_DISCONNECTING,
    (_S.BALANCE_CANCELING, _E.TASK_RETURNED): _S.INACTIVE,
    (_S.CANCELING, _E.RESULT_SUCCESS): _S.SUCCESS,
    (_S.CANCELING, _E.RESULT_FAILED): _S.FAILED,
    (_S.CANCELING, _E.RESULT_WORKER_DIED): _S.FAILED_WORKER_DIED,
    (_S.CANCELING, _E.RESULT_FAILED_RETRY): _S.FAILED,
    (_S.CANCELING, _E.CANCEL_CONFIRM_CANCELED): _S.CANCELED,
    (_S.CANCELING, _E.CANCEL_CONFIRM_FAILED): _S.RUNNING,
    (_S.CANCELING, _E.CANCEL_CONFIRM_NOT_FOUND): _S.CANCELED_NOT_FOUND,
    (_S.CANCELING, _E.WORKER_DISCONNECT): _S.CANCELED,
    (_S.CANCELING, _E.TASK_RETURNED): _S.CANCELED,
    (_S.WORKER_DISCONNECTING, _E.SCHEDULER_HAS_TASK): _S.INACTIVE,
    (_S.WORKER_DISCONNECTING, _E.SCHEDULER_HAS_NO_TASK): _S.FAILED_WORKER_DIED,
}

ACTIVE = frozenset({_S.INACTIVE, _S.RUNNING, _S.BALANCE_CANCELING, _S.CANCELING})
"""States that a record in Redis may be in while the task is unfinished."""

ASSIGNED = frozenset({_S.RUNNING, _S.BALANCE_CANCELING, _S.CANCELING})
"""States in which a worker is responsible for the task."""

TERMINAL = frozenset({_S.SUCCESS, _S.FAILED, _S.FAILED_WORKER_DIED, _S.CANCELED, _S.CANCELED_NOT_FOUND})
"""States that never change."""


def next_state(state: State, event: Event) -> State | None:
    """The state that follows, or None when the table refuses the event."""
    return TRANSITIONS.get((state, event))
