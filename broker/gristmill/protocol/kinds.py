"""The kinds of message, the columns of the hot ones, and the limits that all keep: what programs need on every path.

The models of the bodies are in `messages`; they take a tenth of a second to import, and the hot paths do without.
"""

from __future__ import annotations

from enum import Enum

VERSION = 1

INLINE_BYTES = 4096
"""A pickled call or value up to this size travels inside the message (base64); a larger one is an object."""

BATCH_TASKS = 100
BATCH_BYTES = 128 * 1024
"""One entry carries at most this many tasks or outcomes, and about this many bytes."""

OBJECT_LIFETIME_SECONDS = 86_400
"""Lifetime of an object until the script that accepts its first mention makes it permanent."""

MOST_DEPENDENCIES = 500
"""A batch carries at most about so many dependencies; a task that has more gets the rest by `depend`."""

PRIORITY_LIMIT = 1000
"""Priorities go from minus this to plus this; higher runs first."""


class Request(str, Enum):
    """The kinds of request, each with the stream that carries it."""

    # stream `submit`
    CLIENT = "client"
    TASKS = "tasks"
    DEPEND = "depend"
    # stream `results`
    OUTCOMES = "outcomes"
    CONFIRMS = "confirms"
    RETURNED = "returned"
    OUTPUT = "output"
    HELD = "held"
    # stream `cancels`
    CANCEL = "cancel"
    KNOWN = "known"
    SUSPENDED = "suspended"
    CLAIM = "claim"
    RELEASE = "release"
    DISCONNECT = "disconnect"
    WATCH = "watch"
    # stream `cancels`: what people order
    CANCEL_CLIENT = "cancel_client"
    RETRY = "retry"
    ORDER_WORKER = "order_worker"
    PAUSE = "pause"
    SHUTDOWN = "shutdown"
    # stream `heartbeats`
    WORKER = "worker"
    BEAT = "beat"
    CLIENT_BEAT = "client_beat"
    DRAIN = "drain"
    LEAVE = "leave"
    # stream `continue`: written by scripts only
    END_CLIENT = "end_client"
    END_WORKER = "end_worker"
    RESOLVE = "resolve"
    DROP_USES = "drop_uses"


STREAM_OF: dict[Request, str] = {
    Request.CLIENT: "submit",
    Request.TASKS: "submit",
    Request.DEPEND: "submit",
    Request.OUTCOMES: "results",
    Request.CONFIRMS: "results",
    Request.RETURNED: "results",
    Request.OUTPUT: "results",
    Request.HELD: "results",
    Request.CANCEL: "cancels",
    Request.KNOWN: "cancels",
    Request.SUSPENDED: "results",
    Request.CLAIM: "cancels",
    Request.RELEASE: "cancels",
    Request.DISCONNECT: "cancels",
    Request.WATCH: "cancels",
    Request.CANCEL_CLIENT: "cancels",
    Request.RETRY: "cancels",
    Request.ORDER_WORKER: "cancels",
    Request.PAUSE: "cancels",
    Request.SHUTDOWN: "cancels",
    Request.WORKER: "heartbeats",
    Request.BEAT: "heartbeats",
    Request.CLIENT_BEAT: "heartbeats",
    Request.DRAIN: "heartbeats",
    Request.LEAVE: "heartbeats",
    Request.END_CLIENT: "continued",
    Request.END_WORKER: "continued",
    Request.RESOLVE: "continued",
    Request.DROP_USES: "continued",
}
"""The stream of each kind of request, as the name of its method of `Keys`."""


# --- rows ---------------------------------------------------------------------------------------------------

TASK_COLUMNS = ("number", "function", "call", "options")
"""A row of `tasks`: the task's number in its client; an index into `functions`; the pickled (args, kwargs) in
base64, or null when it is an object; and, only when something differs from the default, an object with
some of the fields of `TaskOptions`."""


OUTCOME_COLUMNS = (
    "task", "attempt", "status", "payload", "duration_us", "cpu_us", "memory_peak_bytes", "error", "traceback",
)  # fmt: skip
"""A row of `outcomes`. `status` is success, failed, retry (failed, and the user asked for another attempt) or died
(executing it killed a processor for the last time allowed). `payload` is a `Payload`. `error` is null, or one line of
text for people, at most 300 characters. `traceback` is text for people too, at most 8 KB; only failures have it."""

CHANGE_COLUMNS = (
    "task", "state", "attempt", "worker", "function", "duration_us", "cpu_us", "memory_peak_bytes", "error", "about",
)  # fmt: skip
"""A row of `events`. `worker` and `function` are indices into the entry's lists, -1 for none. What a change has not got
is null, or left out at the end. `error` is one line for people: what went wrong, or why it was cancelled. `about` is an
object. On a task's first row: `graph`, `key` and `tags` as the client gave them (`TaskOptions.about`), `lane` when it
is not that of the batch, `needs` (the numbers of the first 100 tasks that it depends on). On the row of a task that
goes back to its lane: the `event` that brought it there."""


# --- to workers: control stream ---------------------------------------------------------------------------


class Control(str, Enum):
    """What a worker is told, one kind a field name."""

    REGISTERED = "registered"
    """{}: the record exists."""
    UNKNOWN = "unknown"
    """{}: it is not registered (expired, or Redis lost it): stop what runs, register anew under a new id."""
    CANCEL = "cancel"
    """{task, attempt, request}: stop it, whether started or not."""
    GIVE_BACK = "give_back"
    """{task, attempt, request}: give it back if it has not started."""
    SETTLED = "settled"
    """{number}: that `held` has been applied."""
    DRAIN = "drain"
    """{}: leave when what executes has ended."""
    STOP = "stop"
    """{}: leave at once."""


# --- to clients: inbox ------------------------------------------------------------------------------------


class Notice(str, Enum):
    """What a client is told, one kind a field name."""

    REGISTERED = "registered"
    """{"registration": n}: the record exists."""
    OUTCOMES = "outcomes"
    """{"worker": id or "", "rows": [rows of INBOX_COLUMNS]}."""
    REFUSED = "refused"
    """{"reason": text, "tasks": [numbers]}: not accepted; `intake: ...` when the intake is closed."""
    MISSING = "missing"
    """{"tasks": [[number, [ids]], ...]}: those dependencies are finished and gone: send again with values."""
    LOST = "lost"
    """{"tasks": [numbers], "of": [numbers]}: of those that were asked for there is no record of these: their outcome is
    earlier in the inbox, or they were lost."""
    CLAIMED = "claimed"
    """{"claim": n, "fields": [names and values by turns] or null}: the call to run, as an entry has it, or none."""
    SHUTDOWN = "shutdown"
    """{"accepted": whether}: everything ends; or it does not, because the schedulers are protected."""
    OUTPUT = "output"
    """The body of an `output` request: lines that one of its tasks has printed."""
    WATCHED = "watched"
    """{"task": id, "worker": id or "", "row": a row of INBOX_COLUMNS}: a task that was asked for by its id has ended;
    or {"task": id, "gone": "expired" | "unknown" | "crowded"}: its outcome is kept no more, there never was such a
    task, or too many clients wait for it."""
    UNKNOWN = "unknown"
    """{"tasks": [numbers]}: a cancel named tasks nobody knows; their outcome is earlier in the inbox or expired."""


INBOX_COLUMNS = (
    "number", "attempt", "state", "payload", "duration_us", "cpu_us", "memory_peak_bytes", "wait_ms", "because",
)  # fmt: skip
"""A row of `outcomes` in the inbox. `state` is a terminal state; `payload` a `Payload`, or null when canceled;
`wait_ms` from submit to assignment; `because` the id of the dependency that ended it, or absent."""
