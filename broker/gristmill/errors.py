"""Every error that Gristmill raises: a name and a sentence.

    GristmillError
    ├── AddressError               (ValueError)
    ├── SettingError               (ValueError)
    ├── ConnectionLostError        (ConnectionError)
    ├── RedisRefusedError
    ├── EmbeddedServerError
    ├── MessageError               (ValueError)
    ├── ClientClosedError
    ├── QueueFullError
    ├── ProtectedError             (ValueError)
    ├── SerializationError         (TypeError)
    └── TaskError
        ├── ProcessorDiedError
        ├── WorkerDiedError
        ├── TaskTimeoutError
        ├── TaskLostError
        ├── TaskExpiredError
        ├── UnknownTaskError
        ├── MissingObjectError
        ├── DeserializationError
        ├── ResultSerializationError
        ├── SignatureError
        └── RemoteError

The sentence is the message when none is given. Messages say what was expected, what was got, and what to do.
"""

from __future__ import annotations


class GristmillError(Exception):
    """Something in Gristmill went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class AddressError(GristmillError, ValueError):
    """The address is not one of redis://, rediss://, unix:// or redis+sentinel://."""


class SettingError(GristmillError, ValueError):
    """A setting has a value that it cannot have."""


class ConnectionLostError(GristmillError, ConnectionError):
    """Redis cannot be reached."""


class RedisRefusedError(GristmillError):
    """Redis answered with an error."""


class EmbeddedServerError(GristmillError):
    """No embedded Redis could be started: install redis-server, or `pip install 'gristmill[embedded]'`."""


class MessageError(GristmillError, ValueError):
    """A message does not have the shape that it should have."""


class ClientClosedError(GristmillError):
    """The client is closed: make a new one."""


class QueueFullError(GristmillError):
    """New tasks are refused at the moment: wait until tasks have finished."""


class ProtectedError(GristmillError, ValueError):
    """Scheduler is in protected mode. Can't shutdown"""


class SerializationError(GristmillError, TypeError):
    """The function or an argument cannot be serialised."""


class TaskError(GristmillError):
    """The task has no value."""


class ProcessorDiedError(TaskError):
    """The process that was executing the task died."""


class WorkerDiedError(TaskError):
    """Too many workers died while executing the task."""


class TaskTimeoutError(TaskError):
    """The task ran longer than its time limit."""


class TaskLostError(TaskError):
    """The task's record is gone from Redis and it could not be sent again."""


class TaskExpiredError(TaskError):
    """The outcome of the task is kept no more."""


class UnknownTaskError(TaskError):
    """Nobody knows a task of this id."""


class MissingObjectError(TaskError):
    """An object that the task needs is gone from Redis."""


class DeserializationError(TaskError):
    """The worker could not load the function or an argument."""


class ResultSerializationError(TaskError):
    """The task's result cannot be serialised."""


class SignatureError(TaskError):
    """What arrived was not signed with the signing key: it was not unpickled."""


class RemoteError(TaskError):
    """The task raised an exception that cannot be rebuilt here; its text and traceback follow."""


TASK_ERRORS: dict[str, type[TaskError]] = {
    error.__name__: error
    for error in (
        ProcessorDiedError,
        WorkerDiedError,
        TaskTimeoutError,
        TaskLostError,
        UnknownTaskError,
        MissingObjectError,
        DeserializationError,
        ResultSerializationError,
        SignatureError,
    )
}
"""Errors that travel by name inside an outcome."""
