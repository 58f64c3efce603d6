"""Housekeeping: a slow walk over everything in the namespace that finds what no step would ever touch again.

Nothing here should ever find anything. But keys are deleted by hand, evicted, or lost with a server's last writes; and
then a task must not be stuck for good, nor a worker's place. The walk goes in slices, one script for some hundred keys;
each finding is repaired by a step of the state machine and counted (`repaired:...` in `counts`).
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson

from gristmill.protocol.keys import GROUP_SCHEDULERS, REQUEST_STREAMS, kind_of
from gristmill.protocol.kinds import VERSION, Request
from gristmill.protocol.states import ACTIVE
from gristmill.scheduler.controller import Controller, Duty, Replica
from gristmill.scheduler.refusals import is_refusal
from gristmill.store.connection import ReplyError, pack

log = logging.getLogger(__name__)

PERIOD_SECONDS = 2.0
LEAST_KEYS, MOST_KEYS = 200, 2000
"""Keys looked at in one go."""
PASS_STEPS = 150
"""A pass over everything shall take so many steps, when that does not make them too large."""
IDS_AT_ONCE = 50
KEYS_AT_ONCE = 200
WALKS_AT_ONCE = 10
"""Slices of long sets and streams that are looked at in one go."""
MISSING_SECONDS = {"client": 120.0, "worker": 60.0}
"""So long the owner of what is found may be away before that is cleared up: it may be about to register anew."""
COUNTED_TASKS = 200_000
"""More are not counted anew: the ids of a pass lie in memory."""
TASK_PARTS = ("payload", "value", "dependents")
CLIENT_PARTS = ("client_tasks", "client_objects", "client_batches", "client_inbox")


class Survey:
    """One replica's walk. Losing it loses nothing: another begins anew."""

    def __init__(self) -> None:
        self._cursor = b"0"
        self._walks: deque[tuple[str, str, str]] = deque()
        """Sets and streams to be walked through: kind of key, owner, where to go on."""
        self._missing: dict[tuple[str, str], float] = {}
        """Owners without a record, and when that was first seen."""
        self._counted: dict[str, str] | None = None
        """The state of every task of this pass; None when it is not counted."""
        self._events = b""

    def step(self, replica: Replica) -> None:
        """Look at the next keys."""
        for _ in range(min(WALKS_AT_ONCE, len(self._walks))):
            self._walk(replica, *self._walks.popleft())
        if self._walks:
            return
        if self._cursor == b"0":
            self._begin(replica)
        count = min(max(int(replica.connection.request("DBSIZE")) // PASS_STEPS, LEAST_KEYS), MOST_KEYS)
        found = self._scan(replica, count)
        by_kind: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for key in found:
            name, ids = kind_of(key.decode("utf-8", "replace")[len(replica.keys.prefix) :])
            by_kind[name].append(ids)
        self._look_at(replica, by_kind)
        if self._cursor == b"0":
            self._end(replica)

    def _scan(self, replica: Replica, count: int) -> list[bytes]:
        """About so many of the next keys, in slices: others come in between."""
        found: list[bytes] = []
        for _ in range(0, count, KEYS_AT_ONCE):
            options = ("MATCH", replica.keys.prefix + "*", "COUNT", KEYS_AT_ONCE)
            self._cursor, some = replica.connection.request("SCAN", self._cursor, *options)
            found += some
            if self._cursor == b"0":
                break
        return found

    # --- a slice --------------------------------------------------------------------------------------------

    def _look_at(self, replica: Replica, by_kind: dict[str, list[tuple[str, ...]]]) -> None:
        tasks = [task for (task,) in by_kind["task"]]
        self._check(replica, "check_tasks", tasks)
        self._check(replica, "check_leftovers", {task for part in TASK_PARTS for (task,) in by_kind[part]})
        self._check(replica, "check_objects", [thing for (thing,) in by_kind["object"]])
        self._check(replica, "check_clients", [client for (client,) in by_kind["client"]])
        self._check(replica, "check_loads", [lane for (lane,) in by_kind["load"]])
        # Those that are kept outlive their clients.
        facts = _ask(replica, [("HMGET", replica.keys.task(task), "state", "keep") for task in tasks])
        known = {task: row for task, row in zip(tasks, facts, strict=True) if not isinstance(row, ReplyError)}
        self._count({task: (state or b"").decode("utf-8", "replace") for task, (state, _) in known.items()})
        self._walks += [("client_tasks", client, "0") for (client,) in by_kind["client_tasks"]]
        self._walks += [("worker_tasks", worker, "-") for (worker,) in by_kind["worker_tasks"]]
        clients = {task.partition(".")[0] for task, (state, keep) in known.items() if state and not keep}
        clients |= {client for part in CLIENT_PARTS for (client,) in by_kind[part]}
        self._look_for(replica, "client", clients)
        workers = {worker for (worker,) in by_kind["worker_tasks"]}
        self._look_for(replica, "worker", workers)

    def _walk(self, replica: Replica, kind: str, owner: str, start: str) -> None:
        """The next slice of a client's tasks or a worker's stream."""
        if kind == "client_tasks":
            cursor, members = replica.connection.request("SSCAN", replica.keys.client_tasks(owner), start, "COUNT", 300)
            self._check(replica, "check_members", [member.decode("utf-8", "replace") for member in members], owner)
            after = cursor.decode()
            if after != "0":
                self._walks.append((kind, owner, after))
        else:
            after = self._script(replica, "check_entries", owner, start) or "checked"
            if after != "checked":
                self._walks.append((kind, owner, after))

    def _check(self, replica: Replica, script: str, ids: Iterable[str], *before: str) -> None:
        """Have a script look at ids, some at once; one that it stumbles over is passed over alone."""
        for some in _some(ids, IDS_AT_ONCE):
            word: str | None = some[0]
            while word in some:  # it answers the id with which to go on, when they need much
                some = some[some.index(word) :]
                word = self._script(replica, script, *before, " ".join(some))
            if word is None and len(some) > 1:
                for one in some:
                    self._script(replica, script, *before, one)

    @staticmethod
    def _script(replica: Replica, name: str, *arguments: str) -> str | None:
        """Its word; None when it cannot be done: a key has a type that it should not have."""
        try:
            replica.scripts_run += 1
            return replica.scripts.apply(replica.connection, replica.scripts.duty(name, *arguments))
        except ReplyError as error:
            if is_refusal(error):
                raise
            log.debug("housekeeping passes over what it cannot read", extra={"script": name, "reason": str(error)})
            return None

    # --- owners that are gone -------------------------------------------------------------------------------

    def _look_for(self, replica: Replica, kind: str, owners: set[str]) -> None:
        """What belongs to a client or worker without a record is cleared up when it stays away."""
        listed = sorted(owners)
        record = getattr(replica.keys, kind)
        for owner, reply in zip(listed, _ask(replica, [("EXISTS", record(owner)) for owner in listed]), strict=True):
            if reply != 0:
                self._missing.pop((kind, owner), None)
                continue
            since = self._missing.setdefault((kind, owner), time.monotonic())
            if time.monotonic() - since < MISSING_SECONDS[kind]:
                continue
            del self._missing[kind, owner]
            log.warning("clearing up after one without a record", extra={kind: owner})
            request = Request.END_CLIENT if kind == "client" else Request.END_WORKER
            body = orjson.dumps({"version": VERSION, kind: owner, "reason": "expired"})
            _ask(replica, [
                ("XADD", replica.keys.continued(), "*", request.value, body),
                ("HINCRBY", replica.keys.counts(), f"repaired:{kind}_gone", 1),
            ])  # fmt: skip

    # --- a pass ---------------------------------------------------------------------------------------------

    def _begin(self, replica: Replica) -> None:
        self._events = replica.connection.request("HGET", replica.keys.counts(), "events") or b"0"
        self._counted = {}
        longest = max(MISSING_SECONDS.values()) * 3
        self._missing = {who: at for who, at in self._missing.items() if time.monotonic() - at < longest}

    def _count(self, states: dict[str, str]) -> None:
        if self._counted is None:
            return
        self._counted.update(states)
        if len(self._counted) > COUNTED_TASKS:
            self._counted = None

    def _end(self, replica: Replica) -> None:
        """Everything was seen: requests without content are taken off, counts are put right if nothing has moved."""
        for name in REQUEST_STREAMS:
            _forget_pending(replica, getattr(replica.keys, name)())
        counts = replica.keys.counts()
        if self._counted is None or replica.connection.request("HGET", counts, "events") not in (self._events, None):
            return
        states = Counter(self._counted.values())
        for state in sorted(ACTIVE):
            said = int(replica.connection.request("HGET", counts, f"state:{state.value}") or 0)
            if said != states[state.value]:
                self._script(replica, "recount", self._events.decode(), state.value, str(states[state.value]))


def _forget_pending(replica: Replica, stream: str) -> None:
    """Entries that were deleted by hand after they had been read: nobody can ever apply them."""
    (pending,) = _ask(replica, [("XPENDING", stream, GROUP_SCHEDULERS, "-", "+", IDS_AT_ONCE)])
    if isinstance(pending, ReplyError):
        return  # no group: the loop makes it anew
    found = _ask(replica, [("XRANGE", stream, entry, entry) for entry, *_ in pending])
    for (entry, *_), there in zip(pending, found, strict=True):
        # (Most that are gone were applied meanwhile: those are acknowledged already.)
        if there == [] and _ask(replica, [("XACK", stream, GROUP_SCHEDULERS, entry)]) == [1]:
            _ask(replica, [("HINCRBY", replica.keys.counts(), "repaired:request", 1)])


def _ask(replica: Replica, commands: list[tuple[Any, ...]]) -> list[Any]:
    """The replies to plain commands in one write; an error that is not a refusal stands in its place."""
    if not commands:
        return []
    replica.connection.send(*map(pack, commands))
    replies = [replica.connection.read() for _ in commands]
    for reply in replies:
        if isinstance(reply, ReplyError) and is_refusal(reply):
            raise reply
    return replies


def _some(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    remaining = iter(ids)
    while some := list(islice(remaining, size)):
        yield some


def controller() -> Controller:
    """One walk at a time, whichever replica has the lease."""
    return Controller("housekeeping", duties=(Duty("survey", PERIOD_SECONDS, Survey().step),))
