"""`Snapshot`: what a person may want to know about one namespace, read together in few round trips."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gristmill.protocol.keys import ID_PATTERN, Keys
from gristmill.snapshot.changes import unpack_changes
from gristmill.snapshot.fleet import (
    page_of,
    read_client,
    read_clients,
    read_schedulers,
    read_worker,
    read_workers,
    read_workers_of,
    redis_now,
)
from gristmill.snapshot.health import (
    alerts,
    read_audit,
    read_counts,
    read_intake,
    read_lanes,
    read_paused,
    read_queues,
    read_redis,
    with_missing,
)
from gristmill.snapshot.history import Happened, read_happened
from gristmill.snapshot.objects import read_objects
from gristmill.snapshot.reading import REPLY_TIMEOUT_SECONDS, Command, Reader, Reading, sure, text, together
from gristmill.snapshot.records import (
    Alert,
    Client,
    Counts,
    Fleet,
    Intake,
    Lane,
    ObjectList,
    Order,
    Overview,
    Pulse,
    RedisFacts,
    RedisPicture,
    Scheduler,
    TaskDetail,
    TaskList,
    Worker,
    WorkerPage,
)
from gristmill.snapshot.server import read_server
from gristmill.snapshot.tasks import read_newest_tasks, read_task


class Snapshot:
    """The read API for people over one namespace; it may be shared by threads.

    Every method reads what lies in Redis now. They raise ConnectionLostError when Redis is away (or does not answer
    within `reply_timeout` seconds) and RedisRefusedError when it answers with an error, and can be called again.
    """

    def __init__(
        self, address: str, namespace: str = "default", *, reply_timeout: float = REPLY_TIMEOUT_SECONDS
    ) -> None:
        self.address = address
        self.keys = Keys(namespace)
        self._reader = Reader(address, name="gristmill-snapshot", reply_timeout=reply_timeout)

    @property
    def namespace(self) -> str:
        return self.keys.namespace

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later read opens and closes one of its own."""
        self._reader.close()

    def _one(self, reading: Reading[Any]) -> Any:
        return together(self._reader, reading)[0]

    def ping(self) -> None:
        """One cheap read of the namespace: returns when Redis serves it, raises as all methods do when not."""
        self._one(read_intake(self.keys))

    def counts(self) -> Counts:
        """Tasks per state and other totals."""
        counts: Counts = self._one(read_counts(self.keys))
        return counts

    def intake(self) -> Intake:
        """Whether new tasks are taken."""
        intake: Intake = self._one(read_intake(self.keys))
        return intake

    def fleet(self, *, also: Iterable[str] = ()) -> Fleet:
        """Workers, schedulers, and the lanes in which tasks wait. `also`: workers to show when they have gone."""
        keys = self.keys
        (workers, total, gone), schedulers, lanes, paused, now = together(
            self._reader,
            read_workers(keys, also=also),
            read_schedulers(keys),
            read_lanes(keys),
            read_paused(keys),
            _read_now(),
        )
        return Fleet(now, workers, total, gone, schedulers, with_missing(lanes, workers), paused)

    def paused(self) -> bool:
        """Whether dispatch is paused."""
        paused: bool = self._one(read_paused(self.keys))
        return paused

    def client(self, client: str) -> Client | None:
        """One client; None when nobody knows it."""
        found: Client | None = self._one(read_client(self.keys, client)) if ID_PATTERN.match(client) else None
        return found

    def audit(self, limit: int = 100) -> tuple[Order, ...]:
        """What people have ordered of late, newest first."""
        orders: tuple[Order, ...] = self._one(read_audit(self.keys, limit))
        return orders

    def pulse(self) -> Pulse:
        """Counts, the intake, what waits, and Redis itself, in one round trip."""
        keys = self.keys
        counts, intake, (backlog, quarantined, delayed, clients), redis, now = together(
            self._reader, read_counts(keys), read_intake(keys), read_queues(keys), read_redis(keys), _read_now()
        )
        return Pulse(now, counts, intake, clients, delayed, backlog, quarantined, redis)

    def workers(
        self, *, page: int = 1, per_page: int = 50, sort: str = "worker", descending: bool = False,
        also: Iterable[str] = (),
    ) -> WorkerPage:  # fmt: skip
        """One page of the workers. `also`: ids of workers to show as gone if they are registered no longer."""
        workers, total, gone = self._one(read_workers(self.keys, also=also))
        return page_of(workers, total=total, gone=gone, page=page, per_page=per_page, sort=sort, descending=descending)

    def workers_of(self, hostname: str) -> tuple[Worker, ...]:
        """The workers of one host."""
        found: tuple[Worker, ...] = self._one(read_workers_of(self.keys, hostname))
        return found

    def worker(self, worker: str) -> Worker | None:
        """One worker, also one that has gone less than ten minutes ago."""
        found: Worker | None = self._one(read_worker(self.keys, worker)) if ID_PATTERN.match(worker) else None
        return found

    def schedulers(self) -> tuple[Scheduler, ...]:
        """The scheduler replicas."""
        found: tuple[Scheduler, ...] = self._one(read_schedulers(self.keys))
        return found

    def clients(self, *, page: int = 1, per_page: int = 50) -> tuple[Client, ...]:
        """One page of the clients."""
        found: tuple[Client, ...] = self._one(read_clients(self.keys, page=page, per_page=per_page))
        return found

    def newest_tasks(self, *, limit: int = 25, state: str = "", function: str = "") -> TaskList:
        """The tasks that changed last; `state` is their state now, `function` text in the function's name."""
        found: TaskList = self._one(read_newest_tasks(self.keys, limit=limit, state=state, function=function))
        return found

    def task(self, task: str, *, with_story: bool = True) -> TaskDetail:
        """One task: record, place, story; `known` is False when there is neither record nor story."""
        found: TaskDetail = self._one(read_task(self.keys, task, address=self.address, with_story=with_story))
        return found

    def states(self, tasks: Sequence[str]) -> dict[str, str]:
        """The state that the record of each task names; empty for one without a record."""
        replies = self._reader.round_trip([("HGET", self.keys.task(task), "state") for task in tasks])
        return {task: text(sure(reply)) for task, reply in zip(tasks, replies, strict=True)}

    def objects(self) -> ObjectList:
        """The 500 largest objects."""
        found: ObjectList = self._one(read_objects(self.keys))
        return found

    def server(self) -> RedisPicture:
        """Redis itself: facts, memory, persistence, and the length and pending entries of each stream."""
        found: RedisPicture = self._one(read_server(self.keys))
        return found

    def lanes(self) -> tuple[Lane, ...]:
        """Lanes with tasks that wait, with the missing capability where no worker serves them."""
        return self.fleet().lanes

    def redis(self) -> RedisFacts:
        """Version, memory and persistence of the server."""
        found: RedisFacts = self._one(read_redis(self.keys))
        return found

    def alerts(self) -> tuple[Alert, ...]:
        """What a person should know; empty when all is well."""
        return self.overview(per_page=1).alerts

    def overview(
        self, *, page: int = 1, per_page: int = 50, sort: str = "worker", descending: bool = False
    ) -> Overview:
        """Pulse and fleet as one picture, with one page of the workers."""
        view = {"page": page, "per_page": per_page, "sort": sort, "descending": descending}
        return overview_of(self.keys, self.pulse(), self.fleet(), **view)  # type: ignore[arg-type]

    def happened(self, after: str, failures_after: str, *, most: int = 200) -> Happened:
        """What `events` and `failures` hold after these entries; `0` is the beginning."""
        found: Happened = self._one(read_happened(self.keys, after, failures_after, most))
        return found

    def last_change(self) -> str:
        """Where history ends now: the id of the newest entry of `events`, to be handed to `changes_after`."""
        (entries,) = self._reader.round_trip([("XREVRANGE", self.keys.events(), "+", "-", "COUNT", 1)])
        return text(entries[0][0]) if sure(entries) else "0"

    def changes_after(self, entry: str, wait_ms: int) -> tuple[str, dict[str, str]]:
        """Wait at most `wait_ms` for something to happen after `entry`.

        Returns the entry up to which was read (at most 100 at a time) and the newest state of each task in there.
        """
        command: Command = ("XREAD", "COUNT", 100, "BLOCK", max(1, wait_ms), "STREAMS", self.keys.events(), entry)
        (streams,) = self._reader.round_trip([command])
        states: dict[str, str] = {}
        for read in streams[0][1] if sure(streams) else ():
            entry = text(read[0])
            states.update((change.task, change.state) for change in unpack_changes(read).rows)
        return entry, states


def overview_of(
    keys: Keys, pulse: Pulse, fleet: Fleet, *, page: int = 1, per_page: int = 50, sort: str = "worker",
    descending: bool = False,
) -> Overview:  # fmt: skip
    """What was read, put together, with the alerts that follow from it. Pure."""
    workers = page_of(
        fleet.workers, total=fleet.total, gone=fleet.gone, page=page, per_page=per_page, sort=sort,
        descending=descending,
    )  # fmt: skip
    return Overview(
        namespace=keys.namespace,
        now=pulse.now,
        counts=pulse.counts,
        intake=pulse.intake,
        workers=workers,
        schedulers=fleet.schedulers,
        clients=pulse.clients,
        lanes=fleet.lanes,
        oldest_waiting=fleet.oldest_waiting,
        delayed=pulse.delayed,
        backlog=pulse.backlog,
        quarantined=pulse.quarantined,
        paused=fleet.paused,
        redis=pulse.redis,
        alerts=alerts(
            counts=pulse.counts,
            intake=pulse.intake,
            workers=workers,
            schedulers=fleet.schedulers,
            lanes=fleet.lanes,
            backlog=pulse.backlog,
            quarantined=pulse.quarantined,
            paused=fleet.paused,
            redis=pulse.redis,
            keys=keys,
        ),
    )


def _read_now() -> Reading[int]:
    (time,) = yield [("TIME",)]
    return redis_now(time)
