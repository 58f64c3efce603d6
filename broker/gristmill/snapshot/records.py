"""What the read API answers: small frozen records, ready to be shown or written as JSON (orjson takes them so).

Times are milliseconds of Redis's clock unless the name says otherwise.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from gristmill.protocol.states import ACTIVE, TERMINAL, State

SHOWN_STATES: tuple[str, ...] = tuple(state.value for state in State if state in ACTIVE or state in TERMINAL)
"""The states that a person can meet, in the order of the life of a task."""


@dataclass(frozen=True)
class Counts:
    """Tasks per state: of the active states how many there are now, of the terminal ones how many there have been."""

    states: dict[str, int]
    requests: dict[str, int]
    """Requests applied so far, per kind."""
    refused: dict[str, int]
    """`<state>:<event>` to how often the table refused it; only those above zero."""
    changes: int
    """The running number of changes."""
    repaired: dict[str, int] = field(default_factory=dict)
    """What housekeeping has found and put right, to how often; only those above zero, and there should be none."""

    @property
    def active(self) -> int:
        """Tasks that are not finished."""
        return sum(self.states[state.value] for state in ACTIVE)

    @property
    def finished(self) -> int:
        """Tasks that have reached a terminal state, ever."""
        return sum(self.states[state.value] for state in TERMINAL)


@dataclass(frozen=True)
class Intake:
    """Whether new tasks are taken, and if not, why not."""

    open: bool
    reason: str


@dataclass(frozen=True)
class Processor:
    """One processor of a worker as its agent last saw it."""

    processor: str
    pid: int
    ready: bool
    task: str
    function: str
    running_ms: int
    cpu_percent: float
    rss_bytes: int
    tasks_done: int
    suspended: bool = False
    """Its task waits for a future, and has given its place to another."""
    parked: bool = False
    """Whether it stands by for when a task waits."""


@dataclass(frozen=True)
class Worker:
    """One worker: its facts, its last heartbeat, and what lies with it."""

    worker: str
    name: str
    host: str
    pid: int
    python: str
    release: str
    state: str
    """live, paused, alone (with a suspect task), draining, stale (not heard for `STALE_MS`), left or expired."""
    concurrency: int
    capabilities: dict[str, int]
    lanes: tuple[str, ...]
    processors_ready: int
    room: int
    queue_size: int
    service_us: int
    registered: int
    seen: int
    outstanding: int
    """Tasks assigned to it: held and queued."""
    held: int
    """Read by one of its processors: executing, or next."""
    queued: int
    """Not yet read by a processor."""
    free: int
    """How many tasks more it would be given now."""
    cpu_percent: float
    """Of the agent and its processors together; 100 is one core."""
    rss_bytes: int
    """Of the agent and its processors together."""
    agent_cpu_percent: float
    agent_rss_bytes: int
    host_cpu_percent: float
    host_memory_percent: float
    host_memory_free_bytes: int
    host_sent_bytes_per_s: int
    host_received_bytes_per_s: int
    latency_ms: float
    suspended: int
    """Tasks that wait for a future; they take no place."""
    processors_cpu_percent: float
    processors_rss_bytes: int
    itl: str
    """Three digits: a processor is ready; one has a task; it would be given more."""
    processors: tuple[Processor, ...]

    @property
    def executing(self) -> tuple[Processor, ...]:
        """Processors with a task, the longest running first."""
        busy = [processor for processor in self.processors if processor.task]
        return tuple(sorted(busy, key=lambda processor: -processor.running_ms))


@dataclass(frozen=True)
class WorkerPage:
    """One page of the workers."""

    rows: tuple[Worker, ...]
    total: int
    """Workers that are registered."""
    stale: int
    """Of them, how many were not heard lately."""
    page: int
    pages: int
    sort: str
    descending: bool
    gone: tuple[Worker, ...] = ()
    """Workers that were asked for by id and are registered no longer."""


@dataclass(frozen=True)
class Scheduler:
    """One scheduler replica as it last reported."""

    scheduler: str
    name: str
    host: str
    pid: int
    release: str
    live: bool
    cpu_percent: float
    rss_bytes: int
    loop_lag_ms: float
    requests_per_s: float
    scripts_per_s: float
    started: int
    seen: int
    requests: dict[str, int]
    """Applied since its start, per kind."""
    host_cpu_percent: float = 0.0
    host_memory_free_bytes: int = 0


@dataclass(frozen=True)
class Client:
    """One client."""

    client: str
    name: str
    host: str
    pid: int
    python: str
    batch: int
    registered: int
    seen: int
    unfinished: int
    submitted: int
    """How many tasks, and groups of items of its maps, it has had so far."""
    parent: str
    """The task inside which it was made; empty for a program's own."""
    cpu_percent: float | None
    """Of one core; this and the next two are None until its first beat."""
    rss_bytes: int | None
    latency_ms: float | None
    """How long Redis took to answer its last write."""


@dataclass(frozen=True)
class TaskRow:
    """One task as the newest events tell it; what they do not tell is empty, zero or None."""

    task: str
    function: str
    state: str
    worker: str
    attempt: int
    changed: int
    started: int
    """When its last attempt was assigned; 0 when that is longer ago than what was read."""
    duration_us: int | None
    cpu_us: int | None
    memory_peak_bytes: int | None
    error: str


@dataclass(frozen=True)
class TaskList:
    """The newest tasks that the filter lets through, newest change first."""

    rows: tuple[TaskRow, ...]
    state: str
    function: str
    changes_read: int
    """How many changes were looked at."""
    complete: bool
    """Whether the whole of the kept history was looked at, or the list is full."""


@dataclass(frozen=True)
class Change:
    """One step of a task's story."""

    at: int
    state: str
    attempt: int
    worker: str
    function: str
    duration_us: int | None = None
    cpu_us: int | None = None
    memory_peak_bytes: int | None = None
    error: str = ""
    why: str = ""
    """Why it waits again; empty when it does not, or nobody said."""


@dataclass(frozen=True)
class Bytes:
    """A pickle that lies in Redis; nobody here unpickles it."""

    size: int
    sha256: str
    """Empty when the bytes were not read."""
    object: str
    """The id of the object that holds it; empty when it lies in or beside the record."""


@dataclass(frozen=True)
class TaskDetail:
    """What is known about one task."""

    task: str
    known: bool
    """Whether Redis has its record, or the history that was read names it."""
    state: str
    function: str
    record: dict[str, str]
    """The fields of its record, without the call's bytes; empty when the task is finished and gone."""
    call: Bytes | None
    """The pickled call as it lies in Redis."""
    value: Bytes | None
    """The pickled value, while other tasks need it."""
    waits: str
    """Why it is not executing, in a sentence; empty when it is, or when nobody knows."""
    dependents: int
    story: tuple[Change, ...]
    """Oldest first."""
    story_complete: bool
    """Whether the story begins with the task's beginning."""
    recipes: tuple[str, ...]
    """Shell lines that show the same with redis-cli."""


@dataclass(frozen=True)
class Lane:
    """One capability requirement, and the tasks that wait for it."""

    lane: str
    capabilities: tuple[str, ...]
    alone: bool
    """Its tasks run with nothing beside them: they were executing when workers died."""
    waiting: int
    workers: int
    """How many workers take its tasks now."""
    missing: tuple[str, ...] = ()
    """Capabilities that no worker has; all of them when no worker has them together. Only when none takes its tasks."""
    head_since: int = 0
    """When the task that is next was submitted; 0 when none waits."""


@dataclass(frozen=True)
class RedisFacts:
    """The server; what it does not tell is empty or None."""

    version: str = ""
    server: str = "redis"
    """redis or valkey."""
    uptime_seconds: int | None = None
    used_memory_bytes: int | None = None
    max_memory_bytes: int | None = None
    """0 means no limit."""
    eviction_policy: str = ""
    aof: bool | None = None
    persistence_error: str = ""
    loading: bool = False


@dataclass(frozen=True)
class StreamFacts:
    """One of the namespace's streams that no single worker or client owns."""

    name: str
    length: int
    pending: int | None
    """Entries that a reader was given and has not applied; None for a stream without a group."""
    sentence: str


@dataclass(frozen=True)
class RedisPicture:
    """Redis itself, as INFO tells it, and our streams in it."""

    now: int
    facts: RedisFacts
    info: dict[str, dict[str, str]]
    """Section to field to value, only what people look for."""
    streams: tuple[StreamFacts, ...]


@dataclass(frozen=True)
class Alert:
    """Something that a person should know, and what to do about it."""

    level: str
    """error: work stands still or is at risk; warning: look at it."""
    code: str
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class StoredObject:
    """One object in Redis."""

    object: str
    kind: str
    """function, call, argument, result or value."""
    size_bytes: int
    client: str
    holders: int
    """Clients and tasks that need it; 0 for a call, which belongs to its task."""


@dataclass(frozen=True)
class ObjectList:
    """The largest objects."""

    rows: tuple[StoredObject, ...]
    total: int
    bytes_shown: int
    """Of the rows together."""


@dataclass(frozen=True)
class Order:
    """One line of the audit: what a person has ordered."""

    at: int
    action: str
    target: str
    by: str
    reason: str
    answer: str
    """applied, or why it changed nothing; of a cancel the state that the task was in."""


@dataclass(frozen=True)
class Pulse:
    """What changes from moment to moment, read in one round trip of twelve commands."""

    now: int
    counts: Counts
    intake: Intake
    clients: int
    delayed: int
    backlog: dict[str, int]
    """Requests that wait to be applied, per stream."""
    quarantined: int
    redis: RedisFacts


@dataclass(frozen=True)
class Fleet:
    """Everybody who works, and what waits for them. Read in slices, so that a large one holds nobody up."""

    now: int
    workers: tuple[Worker, ...]
    """Those that are registered."""
    total: int
    """How many are registered; more than `workers` in a fleet larger than is read."""
    gone: tuple[Worker, ...]
    """Those that were asked for by id and are registered no longer."""
    schedulers: tuple[Scheduler, ...]
    lanes: tuple[Lane, ...]
    """Lanes with tasks that wait."""
    paused: bool = False
    """Whether dispatch is paused: no task is assigned to anybody."""

    @property
    def stale(self) -> int:
        """Workers that were not heard lately."""
        return sum(worker.state == "stale" for worker in self.workers)

    @property
    def oldest_waiting(self) -> int:
        """When the task was submitted that waits longest at the head of a lane; 0 when none waits."""
        return min((lane.head_since for lane in self.lanes if lane.head_since), default=0)


@dataclass(frozen=True)
class Overview:
    """Everything that one view shows."""

    namespace: str
    now: int
    counts: Counts
    intake: Intake
    workers: WorkerPage
    schedulers: tuple[Scheduler, ...]
    clients: int
    lanes: tuple[Lane, ...]
    """Lanes with tasks that wait."""
    oldest_waiting: int
    """When the task was submitted that waits longest at the head of a lane; 0 when none waits."""
    delayed: int
    backlog: dict[str, int]
    """Requests that wait to be applied, per stream."""
    quarantined: int
    paused: bool
    redis: RedisFacts
    alerts: tuple[Alert, ...]

    def plain(self) -> dict[str, Any]:
        """The same as plain dicts and lists, for programs."""
        return asdict(self)
