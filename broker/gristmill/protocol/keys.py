"""Every Redis key, made here and nowhere else.

Each method of `Keys` makes one key; its docstring gives the Redis type and one sentence.
`docs/redis-keys.md` and the key functions that the Lua scripts use are generated from this class
(`gristmill.docs`, `gristmill.transitions.loader`), so nothing else in the project spells a key.

The braces round the namespace keep one namespace in one cluster slot.
"""

from __future__ import annotations

import inspect
import re
from functools import lru_cache
from typing import NamedTuple

NAMESPACE_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
ID_PATTERN = re.compile(r"[A-Za-z0-9_.|-]{1,200}\Z")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.-]")

GROUP_SCHEDULERS = "schedulers"
GROUP_PROCESSORS = "processors"

CHUNK_BYTES = 1 << 20
"""Objects are cut into strings of this size: a longer one would hold up every other client of Redis."""


def host_part(hostname: str) -> str:
    """A hostname as the ids of its workers begin with it: host|pid|name|random."""
    return _NOT_IN_IDS.sub("-", hostname)[:64] or "host"


def check_namespace(namespace: str) -> str:
    """Return `namespace`, or raise ValueError when it could leave its place in the key."""
    if not NAMESPACE_PATTERN.match(namespace):
        raise ValueError(
            "expected a namespace of 1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit; "
            f"got {namespace!r}; choose another --namespace"
        )
    return namespace


class Keys:
    """The keys of one namespace."""

    def __init__(self, namespace: str = "default") -> None:
        self.namespace = check_namespace(namespace)
        self.prefix = f"gm:{{{namespace}}}:"

    def namespace_facts(self) -> str:
        """hash: incarnation, version, allocation policy, may clients end it and when did one, order of lanes gone."""
        return f"{self.prefix}namespace"

    def submit(self) -> str:
        """stream, group `schedulers`: requests: registrations of clients, batches of tasks."""
        return f"{self.prefix}submit"

    def results(self) -> str:
        """stream, group `schedulers`: requests: outcomes, confirms, returned and held tasks."""
        return f"{self.prefix}results"

    def cancels(self) -> str:
        """stream, group `schedulers`: requests: what clients take back or ask for, and what people order."""
        return f"{self.prefix}cancels"

    def heartbeats(self) -> str:
        """stream, group `schedulers`: requests: renewals; registration, drain and leave of workers; trimmed."""
        return f"{self.prefix}heartbeats"

    def continued(self) -> str:
        """stream, group `schedulers`: requests that a script left for the next slice."""
        return f"{self.prefix}continue"

    def intake(self) -> str:
        """string: `open`, or the reason why new tasks are refused."""
        return f"{self.prefix}intake"

    def task(self, task: str) -> str:
        """hash: one task that is not finished, or whose value a dependent still needs."""
        return f"{self.prefix}task:{task}"

    def payload(self, task: str) -> str:
        """string: a call too long for the task's record (base64)."""
        return f"{self.prefix}payload:{task}"

    def value(self, task: str) -> str:
        """string: the outcome of a finished task while dependents need it (JSON)."""
        return f"{self.prefix}value:{task}"

    def dependents(self, task: str) -> str:
        """set: tasks that wait for this one."""
        return f"{self.prefix}dependents:{task}"

    def delayed(self) -> str:
        """sorted set by due time (Redis clock, ms): retries that are not yet due."""
        return f"{self.prefix}delayed"

    def lanes(self) -> str:
        """hash: one lane per distinct capability requirement: the order it has reached."""
        return f"{self.prefix}lanes"

    def ready(self, lane: str) -> str:
        """sorted set by priority, then order: tasks of the lane that wait for a worker; suspects in `<lane>!`."""
        return f"{self.prefix}ready:{lane}"

    def load(self, lane: str) -> str:
        """sorted set by outstanding tasks per processor: workers able to serve it; a full one 1,000,000 higher."""
        return f"{self.prefix}load:{lane}"

    def alone(self) -> str:
        """hash: workers kept free for a suspect task, or running one: its lane, and its id or `-`."""
        return f"{self.prefix}alone"

    def workers(self) -> str:
        """sorted set by lease end (observed clock, ms): workers that are alive."""
        return f"{self.prefix}workers"

    def worker(self, worker: str) -> str:
        """hash: one worker: facts, lanes, room, its last heartbeat; kept 10 minutes when gone."""
        return f"{self.prefix}worker:{worker}"

    def worker_tasks(self, worker: str) -> str:
        """stream, group `processors`: one entry per task assigned to the worker, payload included."""
        return f"{self.prefix}worker:{worker}:tasks"

    def worker_claimed(self, worker: str) -> str:
        """set: tasks that tasks of the worker, which wait, have claimed to run them themselves: assigned, no entry."""
        return f"{self.prefix}worker:{worker}:claimed"

    def worker_control(self, worker: str) -> str:
        """stream: what the worker is told: registered, unknown, cancel, give_back, drain, stop."""
        return f"{self.prefix}worker:{worker}:control"

    def clients(self) -> str:
        """sorted set by lease end (observed clock, ms): clients that are alive."""
        return f"{self.prefix}clients"

    def client(self, client: str) -> str:
        """hash: one client: facts and the number of the batch up to which all are applied."""
        return f"{self.prefix}client:{client}"

    def client_tasks(self, client: str) -> str:
        """set: the client's unfinished tasks."""
        return f"{self.prefix}client:{client}:tasks"

    def client_objects(self, client: str) -> str:
        """set: objects that the client holds."""
        return f"{self.prefix}client:{client}:objects"

    def client_batches(self, client: str) -> str:
        """set: numbers of batches applied beyond the number in the client's record."""
        return f"{self.prefix}client:{client}:batches"

    def client_inbox(self, client: str) -> str:
        """stream: what the client is told: registered, outcomes, refused, missing, unknown."""
        return f"{self.prefix}client:{client}:inbox"

    def object(self, object_id: str) -> str:
        """string: a function, a large call or a large result; its id ends in the number of chunks."""
        return f"{self.prefix}object:{object_id}"

    def object_chunk(self, object_id: str, chunk: str) -> str:
        """string: chunk 1, 2, ... of a large object (chunk 0 lies under the object's own key)."""
        return f"{self.prefix}object:{object_id}:{chunk}"

    def holders(self, object_id: str) -> str:
        """set: the clients and tasks that still need the object."""
        return f"{self.prefix}holders:{object_id}"

    def objects(self) -> str:
        """sorted set by size (bytes): objects that are held, for people."""
        return f"{self.prefix}objects"

    def schedulers(self) -> str:
        """sorted set by last report (Redis clock, ms): scheduler replicas."""
        return f"{self.prefix}schedulers"

    def scheduler(self, scheduler: str) -> str:
        """hash, expires: one replica: host, pid, cpu, memory, rates, lag."""
        return f"{self.prefix}scheduler:{scheduler}"

    def lease(self, duty: str) -> str:
        """string with a lifetime: the replica that runs the shared duties (`duties`); it only saves work."""
        return f"{self.prefix}lease:{duty}"

    def clock(self) -> str:
        """hash: the observed clock: `observed` (ms) advances only while schedulers sweep; `swept`: the last time."""
        return f"{self.prefix}clock"

    def quarantine(self) -> str:
        """stream, trimmed: requests nobody could understand, with the reason."""
        return f"{self.prefix}quarantine"

    def audit(self) -> str:
        """stream, trimmed: what people have ordered: who, what, why, and what became of it."""
        return f"{self.prefix}audit"

    def counts(self) -> str:
        """hash: tasks per state and per function, requests per kind, and other totals."""
        return f"{self.prefix}counts"

    def events(self) -> str:
        """stream, trimmed: one entry per script call: what changed, and the running number of changes."""
        return f"{self.prefix}events"

    def failures(self) -> str:
        """stream, trimmed: the tracebacks of the newest thousand attempts that failed, for people."""
        return f"{self.prefix}failures"


REQUEST_STREAMS = ("submit", "results", "cancels", "heartbeats", "continued")
"""Names of the `Keys` methods whose streams the schedulers read."""


class KeyKind(NamedTuple):
    """One kind of key, as documentation and the Lua loader see it."""

    name: str
    pattern: str
    placeholders: tuple[str, ...]
    redis_type: str
    sentence: str


def key_kinds() -> list[KeyKind]:
    """Every kind of key in the order of definition; `pattern` has `<placeholder>` for each id."""
    keys = Keys("namespace")
    kinds = []
    for name, method in vars(Keys).items():
        if name.startswith("_"):
            continue
        placeholders = tuple(inspect.signature(method).parameters)[1:]
        pattern = method(keys, *(f"<{placeholder}>" for placeholder in placeholders))
        redis_type, sentence = (method.__doc__ or "").split(": ", 1)
        kinds.append(KeyKind(name, pattern[len(keys.prefix) :], placeholders, redis_type, sentence))
    return kinds


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    return [
        (kind.name, re.compile("([^:]+)".join(map(re.escape, re.split(r"<\w+>", kind.pattern)))))
        for kind in key_kinds()
    ]


def kind_of(key: str) -> tuple[str, tuple[str, ...]]:
    """The name of the method of `Keys` that made the key (given without its prefix), and the ids in it; else "", ()."""
    for name, pattern in _patterns():
        if found := pattern.fullmatch(key):
            return name, found.groups()
    return "", ()


def object_chunks(object_id: str) -> int:
    """The number of chunks an object has, read off the end of its id (`abc.f3-2` has two)."""
    return int(object_id.rpartition("-")[2])
