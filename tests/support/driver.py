"""Schedulers, clients and workers played by hand: real scripts on a real Redis, one step at a time.

A `Driver` is a scheduler that applies a request when it is told to. A `PlayedClient` and a `PlayedWorker` say what a
real one would say, and nothing on their own. Small numbers stand for tasks: `client.task(3)` is the id of task 3.
"""

from __future__ import annotations

import base64
import json
import pickle
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gristmill.protocol.keys import GROUP_PROCESSORS, GROUP_SCHEDULERS, REQUEST_STREAMS, Keys
from gristmill.protocol.kinds import STREAM_OF, VERSION, Request
from gristmill.protocol.records import unpack_record
from gristmill.store.connection import Connection
from gristmill.transitions import EARLY, NEWER, Scripts
from support.database import Database, Entry, entry_of

LANE = "python3.11"
CALL = base64.b64encode(pickle.dumps(((), {}), protocol=5)).decode()
VALUE = base64.b64encode(pickle.dumps("value", protocol=5)).decode()
OTHER_VALUE = base64.b64encode(pickle.dumps("another value", protocol=5)).decode()
FAILURE = base64.b64encode(b'{"type":"builtins.ValueError","message":"no","traceback":"...","pickle":null}').decode()
LONG_CALL = base64.b64encode(b"x" * 600).decode()


class Outcome(NamedTuple):
    """A row of an outcomes notice, as the client reads it."""

    number: int
    attempt: int
    state: str
    payload: Any
    because: str | None = None


class Driver:
    """A scheduler that does one thing at a time."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self.database = database
        self.keys = keys
        self.scripts = Scripts(keys)
        self.connection = Connection(database.address, name="played-scheduler")
        self.connection.connect()
        self.replica = "played"
        self.words: list[tuple[str, str]] = []
        """(kind, word) of every request applied so far."""
        for name in REQUEST_STREAMS:
            stream = getattr(keys, name)()
            self.database.run("XGROUP", "CREATE", stream, GROUP_SCHEDULERS, "0", "MKSTREAM")

    def close(self) -> None:
        self.connection.close()

    # --- requests -------------------------------------------------------------------------------------------

    def send(self, kind: Request | str, body: dict[str, Any] | bytes, stream: str = "") -> str:
        """Append a request to its stream; answers its entry id. Nobody has read it yet."""
        name = stream or STREAM_OF[Request(kind)]
        text = body if isinstance(body, bytes) else json.dumps({"version": VERSION, **body}).encode()
        word = kind.value if isinstance(kind, Request) else kind
        answer = self.database.run("XADD", getattr(self.keys, name)(), "*", word, text)
        return bytes(answer).decode()

    def read(self, stream: str) -> list[Entry]:
        """Read what is new in a request stream: from now on it is pending for this replica."""
        key = getattr(self.keys, stream)()
        reply = self.database.run(
            "XREADGROUP", "GROUP", GROUP_SCHEDULERS, self.replica, "COUNT", 100, "STREAMS", key, ">"
        )
        return [entry_of(item) for item in reply[0][1]] if reply else []

    def apply_entry(self, stream: str, entry: Entry) -> str:
        """Apply an entry that has been read; answers the script's word."""
        ((kind, body),) = entry.fields.items()
        key = getattr(self.keys, stream)()
        came = body.encode("utf-8", "surrogateescape")
        command = self.scripts.request(key.encode(), kind.encode(), entry.id.encode(), came)
        assert command is not None, f"no script applies {kind!r}"
        word = self.scripts.apply(self.connection, command)
        self.words.append((kind, word))
        return word

    def request(self, kind: Request | str, body: dict[str, Any] | bytes, stream: str = "") -> str:
        """Send a request and apply it at once; answers the script's word. Only one request may be waiting."""
        name = stream or STREAM_OF[Request(kind)]
        sent = self.send(kind, body, name)
        entries = {entry.id: entry for entry in self.read(name)}
        assert list(entries) == [sent], f"expected one waiting request, got {entries}"
        return self.apply_entry(name, entries[sent])

    def pending(self, stream: str) -> list[Entry]:
        """What this replica has read and not applied."""
        key = getattr(self.keys, stream)()
        reply = self.database.run("XREADGROUP", "GROUP", GROUP_SCHEDULERS, self.replica, "STREAMS", key, "0")
        return [entry_of(item) for item in reply[0][1]] if reply else []

    def settle(self) -> list[tuple[str, str]]:
        """Apply all that waits, what scripts leave for the next slice included; answers (kind, word) of each."""
        before = len(self.words)
        while True:
            later = 0
            for name in REQUEST_STREAMS:
                self.read(name)
                for entry in self.pending(name):
                    later += self.apply_entry(name, entry).encode() in (EARLY, NEWER)
            waiting = sum(self.database.length(getattr(self.keys, name)()) for name in REQUEST_STREAMS)
            if waiting == later:
                return self.words[before:]

    # --- duties ---------------------------------------------------------------------------------------------

    def duty(self, name: str, *arguments: Any) -> str:
        """Run one duty script; answers its word."""
        return self.scripts.apply(self.connection, self.scripts.duty(name, *arguments))

    # --- people ---------------------------------------------------------------------------------------------

    def client(self, **changes: Any) -> PlayedClient:
        """A client that has registered."""
        client = PlayedClient(self)
        assert client.register(**changes) == "applied"
        return client

    def worker(self, processors: int = 1, **changes: Any) -> PlayedWorker:
        """A worker that has registered and has this many processors ready."""
        worker = PlayedWorker(self)
        assert worker.register(concurrency=max(processors, 1), **changes) == "applied"
        if processors:
            assert worker.beat(processors) == "applied"
        return worker

    # --- what lies there ------------------------------------------------------------------------------------

    def record(self, task: str) -> dict[str, str]:
        """The record of a task; empty when there is none."""
        return unpack_record(self.database.hash(self.keys.task(task)))

    def now_ms(self) -> int:
        """Redis's clock."""
        seconds, microseconds = self.database.run("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    def state(self, task: str) -> str:
        """The state in the record of a task; empty when there is none."""
        return self.record(task).get("state", "")

    def ready(self, lane: str = LANE) -> list[str]:
        """The tasks that wait in a lane, first first."""
        return list(self.database.zset(self.keys.ready(lane)))

    def load(self, lane: str = LANE) -> dict[str, float]:
        """The workers of a lane by their load."""
        return self.database.zset(self.keys.load(lane))

    def counts(self) -> dict[str, int]:
        """All counters that are not zero."""
        return {name: int(number) for name, number in self.database.hash(self.keys.counts()).items() if number != "0"}

    def quarantine(self) -> list[dict[str, str]]:
        """What has been set aside."""
        return [entry.fields for entry in self.database.stream(self.keys.quarantine())]

    def audit(self) -> list[dict[str, str]]:
        """What people have ordered, oldest first."""
        return [entry.fields for entry in self.database.stream(self.keys.audit())]

    def events(self) -> list[list[Any]]:
        """Every change that was noted: [task, state, attempt, worker or "", function or "", ...]."""
        rows = []
        for entry in self.database.stream(self.keys.events()):
            workers, functions = json.loads(entry.fields["workers"]), json.loads(entry.fields["functions"])
            for task, state, attempt, worker, function, *rest in json.loads(entry.fields["changes"]):
                rows.append(
                    [
                        task,
                        state,
                        attempt,
                        workers[worker] if worker >= 0 else "",
                        functions[function] if function >= 0 else "",
                        *rest,
                    ]
                )
        return rows

    def snapshot(self) -> dict[str, Any]:
        """Everything in the namespace but the counters and the request streams, to compare before with after."""
        requests = {getattr(self.keys, name)() for name in REQUEST_STREAMS}
        return {
            key: self._content(key)
            for key in self.database.keys(self.keys.prefix)
            if key != self.keys.counts() and key not in requests
        }

    def _content(self, key: str) -> Any:
        database = self.database
        kind = database.type(key)
        if kind == "stream":
            pending = [(item.id, item.consumer) for item in database.pending(key, GROUP_PROCESSORS)]
            return database.stream(key), pending
        read = {"string": database.string, "hash": database.hash, "set": database.set, "zset": database.zset}
        return read[kind](key)


class PlayedClient:
    """What a client would send."""

    def __init__(self, driver: Driver, identity: str = "") -> None:
        self.driver = driver
        self.id = identity or secrets.token_hex(5)
        self.batch = 0
        self.function = self.object("f1")

    def register(self, **changes: Any) -> str:
        self.batch = 0
        body = {
            "client": self.id,
            "registration": 1,
            "host": "here",
            "pid": 1,
            "python": "3.11",
            "release": "0",
            "lease_ms": 120_000,
            "name": "",
            "parent": None,
            "parent_attempt": 0,
        }
        return self.driver.request(Request.CLIENT, {**body, **changes})

    def task(self, number: int) -> str:
        """The id of one of its tasks."""
        return f"{self.id}.{number:07d}"

    def object(self, name: str, *chunks: bytes) -> str:
        """Write an object of the client, as it would just before the entry that names it; answers its id."""
        return write_object(self.driver, f"{self.id}.{name}", *(chunks or (b"bytes",)))

    def body(self, rows: Sequence[Any], **changes: Any) -> dict[str, Any]:
        """A batch of rows; a bare number stands for a call without arguments."""
        self.batch += 1
        full = [row if isinstance(row, list) else [row, 0, CALL, None] for row in rows]
        body = {
            "client": self.id,
            "batch": self.batch,
            "lane": LANE,
            "functions": [[self.function, "tests.function"]],
            "tasks": full,
            "after": 0,
        }
        return {**body, **changes}

    def submit(self, *rows: Any, **changes: Any) -> str:
        """Send a batch and have it applied; answers the script's word."""
        return self.driver.request(Request.TASKS, self.body(rows, **changes))

    def depend(self, number: int, *needs: int, part: int = 1, last: bool = True, after: int = 0) -> str:
        """More of what an incomplete task needs."""
        body = {"client": self.id, "task": self.task(number), "part": part, "last": last, "after": after}
        return self.driver.request(Request.DEPEND, {**body, "dependencies": [self.task(need) for need in needs]})

    def cancel(self, *numbers: int, after: int = 0) -> str:
        body = {"client": self.id, "tasks": [self.task(number) for number in numbers], "after": after, "reason": ""}
        return self.driver.request(Request.CANCEL, body)

    def claim(self, worker: PlayedWorker, *numbers: int, claim: int = 1, after: int = 0) -> str:
        """A waiting task of the worker wants to run one of these itself."""
        body = {"client": self.id, "worker": worker.id, "claim": claim, "after": after}
        return self.driver.request(Request.CLAIM, {**body, "tasks": [self.task(number) for number in numbers]})

    def claimed(self) -> list[Entry | None]:
        """What it was told to run itself, as an entry would say it; None for nothing."""
        found = []
        for body in self.told("claimed"):
            flat = body["fields"]
            pairs = None if flat is None else [text.encode() for text in flat]
            found.append(None if pairs is None else entry_of([b"0-0", pairs]))
        return found

    def release(self, *objects: str, after: int = 0) -> str:
        return self.driver.request(Request.RELEASE, {"client": self.id, "objects": list(objects), "after": after})

    def disconnect(self, after: int = 0) -> str:
        return self.driver.request(Request.DISCONNECT, {"client": self.id, "after": after})

    def beat(self, **figures: Any) -> str:
        return self.driver.request(Request.CLIENT_BEAT, {"client": self.id, **figures})

    def record(self) -> dict[str, str]:
        return self.driver.database.hash(self.driver.keys.client(self.id))

    def inbox(self) -> list[tuple[str, dict[str, Any]]]:
        """(kind, body) of all that it was told and has not deleted."""
        entries = self.driver.database.stream(self.driver.keys.client_inbox(self.id))
        return [(kind, json.loads(body)) for entry in entries for kind, body in entry.fields.items()]

    def told(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of one kind of notice."""
        return [body for found, body in self.inbox() if found == kind]

    def outcomes(self) -> list[Outcome]:
        """Every outcome that it was told, in order."""
        rows = [row for body in self.told("outcomes") for row in body["rows"]]
        return [Outcome(row[0], row[1], row[2], row[3], row[8] if len(row) > 8 else None) for row in rows]

    def outcome(self, number: int) -> Outcome:
        """The one outcome of a task: there must be exactly one."""
        (found,) = [outcome for outcome in self.outcomes() if outcome.number == number]
        return found


class PlayedWorker:
    """What a worker and its processors would send."""

    def __init__(self, driver: Driver, identity: str = "") -> None:
        self.driver = driver
        self.id = identity or f"here|1|played|{secrets.token_hex(3)}"

    def register(self, **changes: Any) -> str:
        body = {
            "worker": self.id,
            "name": "played",
            "host": "here",
            "pid": 1,
            "python": "3.11",
            "release": "0",
            "concurrency": 1,
            "queue_size": 1000,
            "capabilities": {LANE: -1},
            "lease_ms": 15_000,
        }
        return self.driver.request(Request.WORKER, {**body, **changes})

    def beat(self, processors_ready: int = 1, **changes: Any) -> str:
        body = {"worker": self.id, "processors_ready": processors_ready, "oldest_running_ms": 0, "processors": []}
        return self.driver.request(Request.BEAT, {**body, **changes})

    def read(self, count: int = 1, processor: int = 1) -> list[Entry]:
        """A processor takes up to `count` tasks: they are held from now on."""
        key = self.driver.keys.worker_tasks(self.id)
        consumer = f"{self.id}|{processor}"
        reply = self.driver.database.run(
            "XREADGROUP", "GROUP", GROUP_PROCESSORS, consumer, "COUNT", count, "STREAMS", key, ">"
        )
        return [entry_of(item) for item in reply[0][1]] if reply else []

    def queue(self) -> list[str]:
        """The ids of the tasks in its stream."""
        return [entry.fields["task"] for entry in self.entries()]

    def entries(self) -> list[Entry]:
        """What lies in its stream."""
        return self.driver.database.stream(self.driver.keys.worker_tasks(self.id))

    def record(self) -> dict[str, str]:
        return self.driver.database.hash(self.driver.keys.worker(self.id))

    def lease_end(self) -> float | None:
        return self.driver.database.zset(self.driver.keys.workers()).get(self.id)

    def control(self) -> list[tuple[str, dict[str, Any]]]:
        """(kind, body) of all that it was told and has not deleted."""
        entries = self.driver.database.stream(self.driver.keys.worker_control(self.id))
        return [(kind, json.loads(body)) for entry in entries for kind, body in entry.fields.items()]

    def asked(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of one kind of control message."""
        return [body for found, body in self.control() if found == kind]

    # --- what it reports ------------------------------------------------------------------------------------

    def row(
        self, task: str, status: str = "success", payload: Any = VALUE, *, attempt: int | None = None, ms: float = 50
    ) -> list[Any]:
        """An outcome; the attempt is the one in the record unless another is given."""
        if attempt is None:
            attempt = int(self.driver.record(task).get("attempt", "1"))
        error = None if status == "success" else "ValueError: no"
        return [task, attempt, status, payload, int(ms * 1000), int(ms * 900), 1000, error]

    def send_outcomes(self, *rows: list[Any]) -> str:
        return self.driver.request(Request.OUTCOMES, {"worker": self.id, "outcomes": list(rows)})

    def succeed(self, *tasks: str, **changes: Any) -> str:
        return self.send_outcomes(*(self.row(task, **changes) for task in tasks))

    def fail(self, *tasks: str, **changes: Any) -> str:
        return self.send_outcomes(*(self.row(task, "failed", FAILURE, **changes) for task in tasks))

    def retry(self, *tasks: str, **changes: Any) -> str:
        return self.send_outcomes(*(self.row(task, "retry", FAILURE, **changes) for task in tasks))

    def died(self, *tasks: str, **changes: Any) -> str:
        payload = {"error": "ProcessorDiedError", "message": "it was killed by signal 9"}
        return self.send_outcomes(*(self.row(task, "died", payload, **changes) for task in tasks))

    def confirm(self, task: str, answer: str, *, request: int | None = None, attempt: int | None = None) -> str:
        """Answer a request; by default the one in the task's record."""
        record = self.driver.record(task)
        confirm = {
            "task": task,
            "attempt": int(record.get("attempt", "1")) if attempt is None else attempt,
            "request": int(record.get("request", "1")) if request is None else request,
            "answer": answer,
        }
        return self.driver.request(Request.CONFIRMS, {"worker": self.id, "confirms": [confirm]})

    def give_back(self, *tasks: str, attempt: int | None = None) -> str:
        pairs = [[task, int(self.driver.record(task)["attempt"]) if attempt is None else attempt] for task in tasks]
        return self.driver.request(Request.RETURNED, {"worker": self.id, "tasks": pairs})

    def suspend(self, *waiting: str, number: int, ready: int = 1) -> str:
        """These tasks wait for others, one a processor; `ready` processors take tasks, those counted too."""
        body = {"worker": self.id, "processors_ready": ready, "suspended": len(waiting), "suspensions": number}
        return self.driver.request(Request.SUSPENDED, {**body, "waiting": list(waiting)})

    def drain(self) -> str:
        return self.driver.request(Request.DRAIN, {"worker": self.id})

    def leave(self) -> str:
        return self.driver.request(Request.LEAVE, {"worker": self.id})

    def lose(self) -> list[tuple[str, str]]:
        """Its lease ends: what it held moves on. Answers what was applied."""
        self.driver.database.run("ZADD", self.driver.keys.workers(), -1, self.id)
        assert self.driver.duty("sweep", 1000) == "swept"
        return self.driver.settle()


def write_object(driver: Driver, stem: str, *chunks: bytes) -> str:
    """Write an object in chunks, each with a lifetime; answers its id."""
    identity = f"{stem}-{len(chunks)}"
    for number, chunk in enumerate(chunks):
        key = driver.keys.object_chunk(identity, str(number)) if number else driver.keys.object(identity)
        driver.database.run("SET", key, chunk, "NX", "EX", 86_400)
    return identity


def numbers(tasks: Iterable[str]) -> list[int]:
    """The numbers in ids of tasks."""
    return [int(task.rpartition(".")[2]) for task in tasks]
