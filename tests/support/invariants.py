"""What must hold in Redis between any two scripts: each task in exactly the places its state allows, counts equal to
recounts, nothing without an owner or an expiry. Reads by hand, and trusts nothing that the product computes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from gristmill.protocol.keys import (
    GROUP_PROCESSORS,
    GROUP_SCHEDULERS,
    REQUEST_STREAMS,
    KeyKind,
    Keys,
    key_kinds,
    object_chunks,
)
from gristmill.protocol.records import unpack_record
from gristmill.protocol.states import ACTIVE, ASSIGNED, TERMINAL, State
from support.database import Database, Entry
from support.waiting import wait_until

FULL = 1_000_000
"""A worker without room stands this much higher in its load sets."""

PRIORITY_STEP = 2**42
CLAIMED = "-18446744073709551615"
"""The end of the id of an entry that there is not: of a task that a waiting task has claimed."""
GONE_WORKER_MS = 600_000
REDIS_TYPES = {"sorted set": "zset"}

_ACTIVE = {state.value for state in ACTIVE}
_ASSIGNED = {state.value for state in ASSIGNED}
_TERMINAL = {state.value for state in TERMINAL}


def _pattern_of(kind: KeyKind) -> re.Pattern[str]:
    parts = re.split("(<.*?>)", kind.pattern)
    return re.compile("".join("([^:]+)" if part.startswith("<") else part for part in parts))


KINDS = [(kind, _pattern_of(kind)) for kind in key_kinds()]


class Picture:
    """Everything in a namespace, read key by key; nobody writes meanwhile."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self.database = database
        self.keys = keys
        self.names = database.keys(keys.prefix)
        self.strange: list[str] = []
        self.ids: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for key in self.names:
            self._sort_in(key)
        self.records = {task: unpack_record(database.hash(keys.task(task))) for (task,) in self.ids["task"]}
        self.workers = {worker: database.hash(keys.worker(worker)) for (worker,) in self.ids["worker"]}
        self.clients = {client: database.hash(keys.client(client)) for (client,) in self.ids["client"]}
        self.ready = {lane: database.zset(keys.ready(lane)) for (lane,) in self.ids["ready"]}
        self.load = {lane: database.zset(keys.load(lane)) for (lane,) in self.ids["load"]}
        self.delayed = database.zset(keys.delayed())
        self.entries: dict[str, list[Entry]] = {
            worker: database.stream(keys.worker_tasks(worker)) for (worker,) in self.ids["worker_tasks"]
        }
        self.read = {
            worker: {pending.id for pending in database.pending(keys.worker_tasks(worker), GROUP_PROCESSORS)}
            for worker in self.entries
        }
        self.claimed = {worker: database.set(keys.worker_claimed(worker)) for (worker,) in self.ids["worker_claimed"]}
        self.dependents = {task: database.set(keys.dependents(task)) for (task,) in self.ids["dependents"]}
        self.client_tasks = {client: database.set(keys.client_tasks(client)) for (client,) in self.ids["client_tasks"]}
        self.client_objects = {
            client: database.set(keys.client_objects(client)) for (client,) in self.ids["client_objects"]
        }
        self.holders = {held: database.set(keys.holders(held)) for (held,) in self.ids["holders"]}
        self.counts = database.hash(keys.counts())

    def _sort_in(self, key: str) -> None:
        rest = key[len(self.keys.prefix) :]
        for kind, pattern in KINDS:
            if match := pattern.fullmatch(rest):
                self.ids[kind.name].append(match.groups())
                expected = re.split(r"[,: ](?! ?set)", kind.redis_type)[0].strip()
                actual = self.database.type(key)
                if actual != REDIS_TYPES.get(expected, expected):
                    self.strange.append(f"{rest} is a {actual}, its kind says {expected}")
                return
        self.strange.append(f"{rest} is of no kind that keys.py knows")

    def state(self, task: str) -> str:
        return self.records.get(task, {}).get("state", "")

    def alive(self, worker: str) -> bool:
        return worker in self.workers and "gone" not in self.workers[worker]


def violations(database: Database, keys: Keys, *, quiescent: bool = True) -> list[str]:
    """Every invariant that does not hold, one sentence each. `quiescent`: all requests have been applied."""
    picture = Picture(database, keys)
    checks = [_tasks, _dependencies, _indexes, _streams, _loads, _counts, _clients, _workers, _objects, _lifetimes]
    found = list(picture.strange)
    for check in checks:
        found += check(picture)
    if quiescent:
        found += _nothing_waits(picture)
    return found


def check_invariants(database: Database, keys: Keys, *, quiescent: bool = True) -> None:
    """Fail with every invariant that does not hold."""
    found = violations(database, keys, quiescent=quiescent)
    assert not found, "invariants that do not hold:\n  " + "\n  ".join(found)


def _tasks(picture: Picture) -> Iterator[str]:
    """Each task is in exactly the places that its state allows."""
    lanes_of: dict[str, list[str]] = defaultdict(list)
    for lane, members in picture.ready.items():
        for task in members:
            lanes_of[task].append(lane)
    streams_of: dict[str, list[tuple[str, Entry]]] = defaultdict(list)
    for worker, entries in picture.entries.items():
        for entry in entries:
            streams_of[entry.fields.get("task", "")].append((worker, entry))

    claimed_of: dict[str, list[str]] = defaultdict(list)
    for worker, claimed in picture.claimed.items():
        for task in claimed:
            claimed_of[task].append(worker)

    for task, record in picture.records.items():
        state = record.get("state", "(none)")
        behind = int(record.get("dependencies", "0")) > 0
        places = [f"ready:{lane}" for lane in lanes_of[task]]
        places += ["delayed"] * (task in picture.delayed)
        places += [f"worker:{worker}:tasks" for worker, _ in streams_of[task]]
        places += [f"worker:{worker}:claimed" for worker in claimed_of[task]]
        places += ["behind its dependencies"] * (behind and state not in _TERMINAL)
        if state == State.INACTIVE:
            if len(places) != 1 or places[0].startswith("worker:"):
                yield f"task {task} is inactive, which is one place; it is in {places}"
            yield from _ready_score(picture, task, record, lanes_of[task])
            stale = {"worker", "entry", "request"} & set(record)
            if stale:
                yield f"task {task} is inactive and still has {sorted(stale)}"
        elif state in _ASSIGNED:
            if places == [f"worker:{record.get('worker')}:claimed"]:
                if not picture.alive(record["worker"]):
                    yield f"task {task} is claimed on {record['worker']}, which is not alive"
                if not record.get("entry", "").endswith(CLAIMED):
                    yield f"task {task} is claimed; its record names entry {record.get('entry')}"
            elif places != [f"worker:{record.get('worker')}:tasks"]:
                yield f"task {task} is {state} on {record.get('worker')}; it is in {places}"
            else:
                yield from _assigned(picture, task, record, streams_of[task][0][1])
        elif state in _TERMINAL:
            if places:
                yield f"task {task} is {state} and still in {places}"
        else:
            yield f"task {task} is in the state {state}, which no record may be in between two scripts"


def _ready_score(picture: Picture, task: str, record: dict[str, str], lanes: list[str]) -> Iterator[str]:
    for lane in lanes:
        if record.get("lane") != lane.removesuffix("!"):
            yield f"task {task} of lane {record.get('lane')} waits in ready:{lane}"
        expected = int(record.get("order", "0")) - int(record.get("priority", "0")) * PRIORITY_STEP
        if picture.ready[lane][task] != expected:
            yield f"task {task} waits at {picture.ready[lane][task]}, by its record at {expected}"


def _assigned(picture: Picture, task: str, record: dict[str, str], entry: Entry) -> Iterator[str]:
    worker, state = record["worker"], record["state"]
    if not picture.alive(worker):
        yield f"task {task} is {state} on {worker}, which is not alive"
    if entry.id != record.get("entry") or entry.fields.get("attempt") != record.get("attempt"):
        yield (
            f"task {task}: its record names entry {record.get('entry')} attempt {record.get('attempt')}, "
            f"the stream has {entry.id} attempt {entry.fields.get('attempt')}"
        )
    if state != State.RUNNING and entry.id not in picture.read.get(worker, set()):
        yield f"task {task} is {state}, but no processor has read its entry"
    if state != State.RUNNING and int(record.get("request", "0")) < 1:
        yield f"task {task} is {state} without a numbered request"


def _dependencies(picture: Picture) -> Iterator[str]:
    """Whoever waits is listed by what it waits for; values stay exactly as long as somebody needs them."""
    needed: Counter[str] = Counter()
    for record in picture.records.values():
        if record.get("state") in _ACTIVE:
            needed.update(record.get("needs", "").split())
    waits_for: Counter[str] = Counter()
    for task, dependents in picture.dependents.items():
        if task not in picture.records:
            yield f"dependents:{task} is there without a record of {task}"
        for dependent in dependents:
            waits_for[dependent] += 1
            if picture.state(dependent) != State.INACTIVE:
                yield f"{dependent} waits for {task}, but is {picture.state(dependent) or 'gone'}"
            elif task not in picture.records[dependent].get("needs", "").split():
                yield f"{dependent} waits for {task}, but does not need it"
    for task, record in picture.records.items():
        left = int(record.get("dependencies", "0"))
        if record.get("state") in _ACTIVE and left != waits_for[task]:
            yield f"task {task} has {left} dependencies left; {waits_for[task]} tasks list it"
        if int(record.get("users", "0")) != needed[task]:
            yield f"task {task} counts {record.get('users', '0')} users; {needed[task]} tasks need it"
        kept = "keep" in record and picture.database.lifetime_ms(picture.keys.task(task)) >= 0
        if record.get("state") in _TERMINAL and not needed[task] and not kept:
            yield f"task {task} is {record.get('state')} and needed by nobody, but its record is there"
        has_value = (task,) in picture.ids["value"]
        if has_value != (record.get("state") in _TERMINAL):
            yield f"task {task} is {record.get('state')}; value:{task} is {'there' if has_value else 'missing'}"
    for task, count in needed.items():
        if task not in picture.records:
            yield f"{count} tasks need {task}, whose record is gone"


def _indexes(picture: Picture) -> Iterator[str]:
    """No index names a task that is not there or not in that state, and no side key lacks its record."""
    for lane, members in picture.ready.items():
        for task in members:
            if picture.state(task) != State.INACTIVE:
                yield f"ready:{lane} has {task}, which is {picture.state(task) or 'gone'}"
    for task in picture.delayed:
        if picture.state(task) != State.INACTIVE:
            yield f"delayed has {task}, which is {picture.state(task) or 'gone'}"
    for (task,) in picture.ids["payload"]:
        if picture.state(task) not in _ACTIVE:
            yield f"payload:{task} is there; its task is {picture.state(task) or 'gone'}"
    for task, record in picture.records.items():
        if "payload" in record and (task,) not in picture.ids["payload"]:
            yield f"task {task} says that payload:{task} exists; it does not"
    for (task,) in picture.ids["value"]:
        if task not in picture.records:
            yield f"value:{task} is there without a record of {task}"
    for worker, claimed in picture.claimed.items():
        for task in claimed:
            if picture.records.get(task, {}).get("worker") != worker:
                yield f"worker:{worker}:claimed has {task}, whose record does not say so"
    for worker, entries in picture.entries.items():
        for entry in entries:
            record = picture.records.get(entry.fields.get("task", ""), {})
            if record.get("worker") != worker or record.get("entry") != entry.id:
                yield f"worker:{worker}:tasks has {entry.id} of {entry.fields.get('task')}, whose record does not"


def _streams(picture: Picture) -> Iterator[str]:
    """No group lists an entry that is not there."""
    keys, database = picture.keys, picture.database
    groups = [(getattr(keys, name)(), GROUP_SCHEDULERS) for name in REQUEST_STREAMS]
    groups += [(keys.worker_tasks(worker), GROUP_PROCESSORS) for worker in picture.entries]
    for stream, group in groups:
        if not database.exists(stream):
            continue
        there = {entry.id for entry in database.stream(stream)}
        for pending in database.pending(stream, group):
            if pending.id not in there:
                yield f"{stream[len(keys.prefix) :]}: {pending.id} is pending for {pending.consumer}, but is not there"


def _loads(picture: Picture) -> Iterator[str]:
    """Load sets hold the workers that may get tasks, by what lies in their streams."""
    for worker, facts in picture.workers.items():
        processors = int(facts.get("processors", "0"))
        takes = "gone" not in facts and "draining" not in facts and processors > 0
        outstanding = len(picture.entries.get(worker, ()))
        score = outstanding / max(processors, 1) + (FULL if outstanding >= int(facts.get("room", "0")) else 0)
        lanes = facts.get("lanes", "").split()
        for lane in lanes:
            actual = picture.load.get(lane, {}).get(worker)
            if takes and (actual is None or abs(actual - score) > 1e-6):
                yield f"load:{lane} has {worker} at {actual}; it has {outstanding} outstanding, so {score}"
            if not takes and actual is not None:
                yield f"load:{lane} has {worker}, which takes no tasks"
        for lane, members in picture.load.items():
            if lane not in lanes and worker in members:
                yield f"load:{lane} has {worker}, which does not serve the lane"
    for lane, members in picture.load.items():
        for worker in members:
            if worker not in picture.workers:
                yield f"load:{lane} has {worker}, which has no record"


def _counts(picture: Picture) -> Iterator[str]:
    """Gauges equal recounts, totals per state equal totals per function."""
    states = Counter(record.get("state") for record in picture.records.values())
    for state in sorted(_ACTIVE | {State.WORKER_DISCONNECTING.value}):
        counted = int(picture.counts.get(f"state:{state}", "0"))
        if counted != states[state]:
            yield f"counts says {counted} tasks are {state}; {states[state]} are"
    for state in sorted(_TERMINAL):
        by_function = sum(
            int(number)
            for field, number in picture.counts.items()
            if field.startswith("function:") and field.rsplit(":", 1)[1] == state
        )
        counted = int(picture.counts.get(f"state:{state}", "0"))
        if by_function != counted:
            yield f"counts says {counted} tasks became {state}; by function it is {by_function}"


def _clients(picture: Picture) -> Iterator[str]:
    """A client's unfinished tasks are its records, and nothing of a client outlives it."""
    listed = set(picture.database.zset(picture.keys.clients()))
    unfinished: dict[str, set[str]] = defaultdict(set)
    for task, record in picture.records.items():
        if record.get("state") in _ACTIVE and "keep" not in record:
            unfinished[task.partition(".")[0]].add(task)
    for client in sorted(set(unfinished) | set(picture.client_tasks)):
        missing = unfinished[client] - picture.client_tasks.get(client, set())
        if "ended" in picture.clients.get(client, {}):
            missing = {task for task in missing if picture.state(task) not in _ASSIGNED}
        surplus = picture.client_tasks.get(client, set()) - unfinished[client]
        if missing or surplus:
            yield f"client:{client}:tasks lacks {sorted(missing)} and has {sorted(surplus)} too many"
        if client not in picture.clients:
            yield f"client {client} has tasks but no record"
    for client in picture.clients:
        expires = picture.database.lifetime_ms(picture.keys.client(client)) >= 0
        nested = picture.clients[client].get("parent", "")
        if client not in listed and not expires and nested not in picture.records:
            yield f"client:{client} never expires and is not among the living"
    for client in sorted(listed - set(picture.clients)):
        yield f"clients has {client}, which has no record"
    for kind in ("client_objects", "client_batches", "client_inbox"):
        for (client,) in picture.ids[kind]:
            if client not in picture.clients:
                key = getattr(picture.keys, kind)(client)
                if picture.database.lifetime_ms(key) < 0:
                    yield f"{key[len(picture.keys.prefix) :]} is there without a record of its client"


def _workers(picture: Picture) -> Iterator[str]:
    """A worker is alive with a lease and a stream, or gone with neither and soon forgotten."""
    leased = set(picture.database.zset(picture.keys.workers()))
    for worker in picture.workers:
        lifetime = picture.database.lifetime_ms(picture.keys.worker(worker))
        if picture.alive(worker):
            if worker not in leased:
                yield f"worker {worker} is alive without a lease"
            if GROUP_PROCESSORS not in picture.database.groups(picture.keys.worker_tasks(worker)):
                yield f"worker {worker} is alive without a group on its task stream"
        else:
            if worker in leased:
                yield f"worker {worker} is gone and has a lease"
            if not 0 <= lifetime <= GONE_WORKER_MS:
                yield f"worker {worker} is gone; its record lives for {lifetime} ms"
    for worker in sorted(leased - set(picture.workers)):
        yield f"workers has {worker}, which has no record"
    for kind in ("worker_tasks", "worker_control", "worker_claimed"):
        for (worker,) in picture.ids[kind]:
            key = getattr(picture.keys, kind)(worker)
            if not picture.alive(worker) and picture.database.lifetime_ms(key) < 0:
                yield f"{key[len(picture.keys.prefix) :]} is there for good; its worker is not alive"


def _objects(picture: Picture) -> Iterator[str]:
    """An object is held by somebody who is there, or expires."""
    by_task = {record["object"] for record in picture.records.values() if record.get("object")}
    for thing, holders in picture.holders.items():
        if (thing,) not in picture.ids["object"]:
            yield f"holders:{thing} is there, the object is not"
        for holder in holders:
            if holder not in picture.clients and holder not in picture.records:
                yield f"object {thing} is held by {holder}, which is not there"
    for thing in picture.database.zset(picture.keys.objects()):
        if (thing,) not in picture.ids["object"]:
            yield f"objects lists {thing}, which is not there"
    for client, objects in picture.client_objects.items():
        for thing in objects:
            if client not in picture.holders.get(thing, set()):
                yield f"client:{client}:objects has {thing}, which it does not hold"
    for thing, holders in picture.holders.items():
        for holder in holders & set(picture.clients):
            if thing not in picture.client_objects.get(holder, set()):
                yield f"object {thing} is held by client {holder}, which does not list it"
    chunks = [(thing, picture.keys.object(thing)) for (thing,) in picture.ids["object"]]
    chunks += [(thing, picture.keys.object_chunk(thing, chunk)) for thing, chunk in picture.ids["object_chunk"]]
    for thing, key in chunks:
        held = thing in picture.holders or thing in by_task
        lifetime = picture.database.lifetime_ms(key)
        kept = all("keep" in picture.records.get(holder, {}) for holder in picture.holders.get(thing, ()))
        if held and lifetime >= 0 and not kept:
            yield f"{key[len(picture.keys.prefix) :]} is held, but expires"
        if not held and lifetime < 0:
            yield f"{key[len(picture.keys.prefix) :]} never expires, and nobody holds it"
    for thing in sorted(set(picture.holders) | by_task):
        for chunk in range(1, object_chunks(thing)):
            if (thing, str(chunk)) not in picture.ids["object_chunk"]:
                yield f"object {thing} lacks chunk {chunk}"


def _lifetimes(picture: Picture) -> Iterator[str]:
    """What a replica writes about itself goes with it."""
    for kind in ("scheduler", "lease"):
        for (identity,) in picture.ids[kind]:
            key = getattr(picture.keys, kind)(identity)
            if picture.database.lifetime_ms(key) == -1:
                yield f"{key[len(picture.keys.prefix) :]} never expires"


def _nothing_waits(picture: Picture) -> Iterator[str]:
    """All requests have been applied."""
    for name in REQUEST_STREAMS:
        stream = getattr(picture.keys, name)()
        waiting = picture.database.length(stream)
        if waiting:
            yield f"{waiting} requests wait in {stream[len(picture.keys.prefix) :]}"


def wait_for_invariants(database: Database, keys: Keys, timeout: float = 60.0) -> None:
    """Wait until everything has come to rest; fail with what still does not hold. For namespaces where others write:
    a picture taken meanwhile may be torn, a true violation stays.
    """
    last: list[str] = []

    def at_rest() -> bool:
        last[:] = violations(database, keys)
        return not last

    try:
        wait_until(at_rest, "all invariants hold", timeout)
    except pytest.fail.Exception:
        pytest.fail("invariants that do not hold even at rest:\n  " + "\n  ".join(last))
