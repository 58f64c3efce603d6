"""Every read that is made for people: the status page, the commands and the tests use this and nothing else.

    with Snapshot("redis://localhost:6379/0") as snapshot:
        snapshot.counts().states["running"]

It answers with small frozen records, asks for a bounded amount however large the installation is (no KEYS, no SCAN, a
page of workers at a time), takes the time from Redis, writes nothing, and never unpickles anything.
"""

from __future__ import annotations

from gristmill.snapshot.api import Snapshot, overview_of
from gristmill.snapshot.changes import ChangeRow, Changes
from gristmill.snapshot.fleet import STALE_MS, WORKER_SORTS
from gristmill.snapshot.history import FailedAttempt, Happened
from gristmill.snapshot.machines import MACHINE_SORTS, Machine, machines_of
from gristmill.snapshot.recipes import redis_cli
from gristmill.snapshot.records import (
    SHOWN_STATES,
    Alert,
    Bytes,
    Change,
    Client,
    Counts,
    Fleet,
    Intake,
    Lane,
    ObjectList,
    Order,
    Overview,
    Processor,
    Pulse,
    RedisFacts,
    RedisPicture,
    Scheduler,
    StoredObject,
    StreamFacts,
    TaskDetail,
    TaskList,
    TaskRow,
    Worker,
    WorkerPage,
)
from gristmill.snapshot.tasks import check_task_id, is_task_id

__all__ = [
    "MACHINE_SORTS",
    "SHOWN_STATES",
    "STALE_MS",
    "WORKER_SORTS",
    "Alert",
    "Bytes",
    "Change",
    "ChangeRow",
    "Changes",
    "Client",
    "Counts",
    "FailedAttempt",
    "Fleet",
    "Happened",
    "Intake",
    "Lane",
    "Machine",
    "ObjectList",
    "Order",
    "Overview",
    "Processor",
    "Pulse",
    "RedisFacts",
    "RedisPicture",
    "Scheduler",
    "Snapshot",
    "StoredObject",
    "StreamFacts",
    "TaskDetail",
    "TaskList",
    "TaskRow",
    "Worker",
    "WorkerPage",
    "check_task_id",
    "is_task_id",
    "machines_of",
    "overview_of",
    "redis_cli",
]
