"""The shapes of what travels through the streams.

A request stream entry has one field: its name is the kind of the request, its value the JSON body.
The inbox of a client and the control stream of a worker are built the same way.
The models here validate at the edges and document the shapes; the hot paths (`tasks`, `outcomes`) build and
read the same JSON without a model object per task: their rows are arrays whose columns are named in `kinds`.

Every body carries `version`. A script that meets a newer version leaves the entry pending for a newer scheduler.
"""

from __future__ import annotations

from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gristmill.errors import MessageError
from gristmill.protocol.kinds import PRIORITY_LIMIT, VERSION, Request


class Message(BaseModel):
    """What all bodies share."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    version: int = VERSION


# --- payloads ---------------------------------------------------------------------------------------------


class ObjectPayload(BaseModel):
    """Bytes that lie in Redis as an object."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    object: str
    size: int


class ErrorPayload(BaseModel):
    """An error without an exception object: a class of `errors.TASK_ERRORS` and its text."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    error: str
    message: str


Payload = str | ObjectPayload | ErrorPayload
"""A value or an exception: base64 of its bytes, or an object, or an error by name.

The bytes of a value are a pickle. The bytes of a failure are JSON (`Failure`), so that its text can be read
without unpickling anything.
"""


class Failure(BaseModel):
    """The bytes of a failed outcome."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    type: str
    """Qualified name of the exception's class, such as `builtins.ValueError`."""
    message: str
    traceback: str
    """The remote traceback as text, chained exceptions and notes included."""
    pickle: str | None = None
    """Base64 of the pickled exception, when it survives a round trip through pickle."""


# --- from clients -----------------------------------------------------------------------------------------


class ClientMessage(Message):
    """`client`: a client registers. Answered in its inbox by `registered`."""

    client: str
    registration: int = 1
    """1 for the first, higher when it registers anew; a repeated number is answered again and changes nothing."""
    host: str
    pid: int
    python: str
    """Minor version, such as `3.11`."""
    release: str
    """Version of Gristmill."""
    lease_ms: int = 120_000
    name: str = ""
    parent: str | None = None
    """The task inside which this client was made: it ends with that task's attempt."""
    parent_attempt: int = 0


class TaskOptions(BaseModel):
    """What may differ from task to task. Absent means the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    lane: str = ""
    """Capability names in order, joined by commas, the Python tag included; by default that of the batch."""
    priority: int = Field(default=0, ge=-PRIORITY_LIMIT, le=PRIORITY_LIMIT)
    object: str = ""
    """Object with the pickled call; it belongs to the task and is freed with it."""
    size: int = 0
    """Size of that object in bytes."""
    objects: list[str] = []
    """Objects that the call names: its large arguments. The client holds them from the first mention on."""
    dependencies: list[str] = []
    """Ids of tasks whose values the call needs, each once. They may belong to other clients."""
    incomplete: bool = False
    """More dependencies follow (`depend`); the task waits until the last is in."""
    retries: int = 0
    retry_delay_ms: int = 0
    max_deaths: int = 3
    keep_ms: int = 0
    """So long the outcome is kept for whoever asks for it by the task's id; such a task outlives its client."""
    run: dict[str, Any] = {}
    """Handed to the processor as it is: `timeout_ms`, `retry_on`, `chunk` (the number of its items), ..."""
    about: dict[str, Any] = {}
    """For people only, at most 2 KB: `graph` (an id), `key` (the node's name in it), `name`, `tags` (a list of words).
    It goes into `events` and nowhere else."""


class TasksMessage(Message):
    """`tasks`: a batch of calls."""

    client: str
    batch: int
    """1, 2, ... without gaps within one registration; a number that was applied already is dropped."""
    lane: str
    """The lane of tasks that name none, such as `python3.11`."""
    functions: list[tuple[str, str] | tuple[str, str, list[str]]]
    """(object id, name to show) of each function that the rows refer to, and the objects that it names, if any."""
    tasks: list[list[Any]]
    """Rows of `TASK_COLUMNS`."""
    after: int = 0
    """All batches up to this one must be applied first, since a task here depends on one there; 0 for none."""
    registration: int = 1
    """The registration to which the batch number belongs: one of an earlier registration is void."""
    others: dict[str, int] = {}
    """Of other clients the batches that must be applied first, since a task here depends on one there."""
    priority: int = Field(default=0, ge=-PRIORITY_LIMIT, le=PRIORITY_LIMIT)
    """Of tasks that name none: inside a task, one more than that task's."""


class DependMessage(Message):
    """`depend`: more dependencies of a task that came marked as incomplete."""

    client: str
    task: str
    part: int
    """1, 2, ... in order: a part that was applied already, or whose task has ended, is dropped."""
    last: bool
    dependencies: list[str]
    after: int = 0
    """The batch that carries the task."""


class CancelMessage(Message):
    """`cancel`: from a client, or from a person (then without `client` and `after`)."""

    tasks: list[str]
    client: str = ""
    after: int = 0
    """All batches up to this one must be applied first: the tasks came with them."""
    reason: str = ""
    by: str = ""
    """The person who orders it; then it is written to the audit."""


class OrderMessage(Message):
    """What all orders of people share; they are written to the audit."""

    by: str
    """Who orders it."""
    reason: str = ""


class CancelClientMessage(OrderMessage):
    """`cancel_client`: cancel all tasks that the client has now; it lives on."""

    client: str
    cursor: str = ""
    """Where the next slice goes on; written by the script only."""


class RetryMessage(OrderMessage):
    """`retry`: a task that failed and waits for its next attempt runs now."""

    task: str


class OrderWorkerMessage(OrderMessage):
    """`order_worker`: tell a worker to leave: when what executes has ended, or at once."""

    worker: str
    order: Literal["drain", "stop"]


class PauseMessage(OrderMessage):
    """`pause`: no task is assigned any more, to any worker; what is assigned goes on. Or the end of that."""

    paused: bool
    cursor: str = ""
    """Where the next slice goes on; written by the script only."""


class ShutdownMessage(Message):
    """`shutdown`: a client wants everything to end: workers, then schedulers. Answered in its inbox."""

    client: str
    cursor: str = ""
    """Where the next slice goes on; written by the script only."""


class KnownMessage(Message):
    """`known`: a client that had to register anew asks which of its tasks Redis knows. Those that it does not are
    named in the inbox (`lost`), behind any outcome, and sent again.
    """

    client: str
    registration: int
    tasks: list[int]
    """Numbers, 500 at most."""


class ClaimMessage(Message):
    """`claim`: a task that waits wants to run one of these itself, the first that has not started."""

    client: str
    worker: str
    """Where the task waits."""
    claim: int
    """Comes back in the answer."""
    tasks: list[str]
    after: int = 0


class ReleaseMessage(Message):
    """`release`: the client needs these objects no longer."""

    client: str
    objects: list[str]
    after: int = 0


class DisconnectMessage(Message):
    """`disconnect`: the client goes: its tasks are cancelled and its objects freed."""

    client: str
    after: int = 0


class WatchMessage(Message):
    """`watch`: the client wants to be told how a task ends, be it its own or not: by its id."""

    client: str
    task: str


class ClientBeatMessage(Message):
    """`client_beat`: the client is alive, and how its program is doing."""

    client: str
    cpu_percent: float = 0.0
    """Of one core, since the beat before."""
    rss_bytes: int = 0
    latency_ms: float = 0.0
    """How long Redis took to answer its last write."""


# --- from workers -----------------------------------------------------------------------------------------


class WorkerMessage(Message):
    """`worker`: a worker registers. Answered in its control stream by `registered`; it sends nothing else before."""

    worker: str
    name: str
    host: str
    pid: int
    python: str
    release: str
    concurrency: int = Field(ge=1)
    queue_size: int = Field(default=1000, ge=1)
    capabilities: dict[str, int] = {}
    """Names and values; the Python tag (`python3.11`) is among them."""
    lease_ms: int = 15_000


class ProcessorFigures(BaseModel):
    """One processor as its agent sees it."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    processor: str
    pid: int
    ready: bool
    task: str = ""
    function: str = ""
    running_ms: int = 0
    waiting: bool = False
    """Whether that task waits for another."""
    parked: bool = False
    """Whether it stands by for when a task waits."""
    cpu_percent: float = 0.0
    rss_bytes: int = 0
    tasks_done: int = 0


class BeatMessage(Message):
    """`beat`: the worker's lease is renewed, and what it measured is shown."""

    worker: str
    processors_ready: int
    """How many processors take tasks now, those counted too whose task waits; the worker's room follows it."""
    suspended: int = 0
    """How many processors have a task that waits for other tasks."""
    suspensions: int = 0
    """The running number of the last change of what waits: what is older than the record knows changes nothing."""
    oldest_running_ms: int = 0
    """How long the longest of the executing tasks has run."""
    cpu_percent: float = 0.0
    """Of the agent."""
    rss_bytes: int = 0
    host_cpu_percent: float = 0.0
    host_memory_percent: float = 0.0
    host_memory_free_bytes: int = 0
    host_sent_bytes_per_s: int = 0
    """By all network interfaces of the machine."""
    host_received_bytes_per_s: int = 0
    latency_ms: float = 0.0
    """Round trip to Redis."""
    processors: list[ProcessorFigures] = []


class OutcomesMessage(Message):
    """`outcomes`: what a processor (or its agent in its place) has finished."""

    worker: str
    outcomes: list[list[Any]]
    """Rows of `OUTCOME_COLUMNS`."""


class Confirm(BaseModel):
    """The answer to one request of the control stream."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    task: str
    attempt: int
    request: int
    answer: Literal["canceled", "failed", "not_found"]


class ConfirmsMessage(Message):
    """`confirms`: the agent's answers to `cancel` and `give_back`."""

    worker: str
    confirms: list[Confirm]


class ReturnedMessage(Message):
    """`returned`: tasks that the worker held and gives back unstarted, as (task, attempt)."""

    worker: str
    tasks: list[tuple[str, int]]


class HeldMessage(Message):
    """`held`: after another Redis server has taken over, what the worker's processors hold. What it was given and does
    not hold goes back. Answered in the control stream by `settled`, before which no processor reads.
    """

    worker: str
    number: int
    tasks: list[tuple[str, int, str]]
    """(task, attempt, processor)."""


class SuspendedMessage(Message):
    """`suspended`: which tasks wait for other tasks, whenever that changes; the fields are those of a beat."""

    worker: str
    processors_ready: int
    suspended: int
    suspensions: int
    waiting: list[str]
    """Ids of the tasks that wait, those counted too whose processor runs a child of theirs meanwhile."""


class OutputMessage(Message):
    """`output`: lines that a task has printed, for the client that wants to see them."""

    task: str
    lines: list[tuple[Literal["out", "err"], str]]
    """(stream, text) each."""
    dropped: int = 0
    """How many lines behind these were left out."""
    attempt: int = 0
    number: int = -1
    """0, 1, 2... in the order in which the attempt has printed; -1 when its worker is too old to say."""


class DrainMessage(Message):
    """`drain`: the worker wants no more tasks; what is unread goes back at once."""

    worker: str


class LeaveMessage(Message):
    """`leave`: the worker goes; what it has not reported moves on, executing tasks uncharged."""

    worker: str


BODIES: dict[Request, type[Message]] = {
    Request.CLIENT: ClientMessage,
    Request.TASKS: TasksMessage,
    Request.DEPEND: DependMessage,
    Request.OUTCOMES: OutcomesMessage,
    Request.CONFIRMS: ConfirmsMessage,
    Request.RETURNED: ReturnedMessage,
    Request.OUTPUT: OutputMessage,
    Request.HELD: HeldMessage,
    Request.CANCEL: CancelMessage,
    Request.KNOWN: KnownMessage,
    Request.CANCEL_CLIENT: CancelClientMessage,
    Request.RETRY: RetryMessage,
    Request.ORDER_WORKER: OrderWorkerMessage,
    Request.PAUSE: PauseMessage,
    Request.SHUTDOWN: ShutdownMessage,
    Request.SUSPENDED: SuspendedMessage,
    Request.CLAIM: ClaimMessage,
    Request.RELEASE: ReleaseMessage,
    Request.DISCONNECT: DisconnectMessage,
    Request.WATCH: WatchMessage,
    Request.WORKER: WorkerMessage,
    Request.BEAT: BeatMessage,
    Request.CLIENT_BEAT: ClientBeatMessage,
    Request.DRAIN: DrainMessage,
    Request.LEAVE: LeaveMessage,
}


def encode(message: Message) -> bytes:
    """The JSON body of a message."""
    return orjson.dumps(message.model_dump(mode="json", exclude_defaults=False))


def decode(kind: Request, body: bytes) -> Message:
    """Check a body against its model; raises MessageError saying which field is wrong."""
    try:
        return BODIES[kind].model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MessageError(f"expected a {kind.value} message; got a wrong {where or 'body'}: {first['msg']}") from None
