"""Everything may arrive twice: the entry, the batch, the outcome, the registration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gristmill.protocol.kinds import STREAM_OF, Request
from support.driver import VALUE, Driver, PlayedClient, PlayedWorker

Body = Callable[[PlayedClient, PlayedWorker], dict[str, Any]]

BODIES: dict[Request, Body] = {
    Request.CLIENT: lambda client, worker: {"client": "another", "registration": 1, "lease_ms": 1000},
    Request.TASKS: lambda client, worker: client.body([10, 11]),
    Request.OUTCOMES: lambda client, worker: {"worker": worker.id, "outcomes": [worker.row(client.task(1))]},
    Request.CONFIRMS: lambda client, worker: {
        "worker": worker.id,
        "confirms": [{"task": client.task(2), "attempt": 1, "request": 1, "answer": "canceled"}],
    },
    Request.RETURNED: lambda client, worker: {"worker": worker.id, "tasks": [[client.task(1), 1]]},
    Request.SUSPENDED: lambda client, worker: {
        "worker": worker.id, "processors_ready": 2, "suspended": 1, "suspensions": 1, "waiting": [client.task(1)],
    },
    Request.CLAIM: lambda client, worker: {
        "client": client.id, "worker": worker.id, "claim": 1, "tasks": [client.task(3)], "after": 0,
    },
    Request.CANCEL: lambda client, worker: {"client": client.id, "tasks": [client.task(3)], "after": 0},
    Request.RELEASE: lambda client, worker: {"client": client.id, "objects": [client.function], "after": 0},
    Request.DISCONNECT: lambda client, worker: {"client": client.id, "after": 0},
    Request.WORKER: lambda client, worker: {
        "worker": "w2", "concurrency": 1, "queue_size": 10, "lease_ms": 1000, "capabilities": {},
    },
    Request.BEAT: lambda client, worker: {"worker": worker.id, "processors_ready": 5},
    Request.CLIENT_BEAT: lambda client, worker: {"client": client.id},
    Request.DRAIN: lambda client, worker: {"worker": worker.id},
    Request.LEAVE: lambda client, worker: {"worker": worker.id},
    Request.END_CLIENT: lambda client, worker: {"client": client.id},
    Request.END_WORKER: lambda client, worker: {"worker": worker.id, "reason": "expired"},
    Request.DEPEND: lambda client, worker: {
        "client": client.id, "task": client.task(7), "part": 1, "last": True, "dependencies": [], "after": 0,
    },
    Request.DROP_USES: lambda client, worker: {"task": client.task(7), "dependencies": [client.task(99)]},
    Request.RESOLVE: lambda client, worker: {"task": client.task(1)},
    Request.HELD: lambda client, worker: {"worker": worker.id, "number": 1, "tasks": []},
    Request.KNOWN: lambda client, worker: {"client": client.id, "registration": 1, "tasks": [1, 99]},
    Request.CANCEL_CLIENT: lambda client, worker: {"by": "somebody", "client": client.id, "reason": ""},
    Request.RETRY: lambda client, worker: {"by": "somebody", "task": client.task(1)},
    Request.ORDER_WORKER: lambda client, worker: {"by": "somebody", "worker": worker.id, "order": "drain"},
    Request.PAUSE: lambda client, worker: {"by": "somebody", "paused": True},
    Request.OUTPUT: lambda client, worker: {"task": client.task(1), "lines": [["out", "text"]], "dropped": 1},
    Request.WATCH: lambda client, worker: {"client": client.id, "task": client.task(1)},
    Request.SHUTDOWN: lambda client, worker: {"client": client.id},
}  # fmt: skip
"""A sound body of each kind."""


@pytest.mark.parametrize("kind", Request)
def test_an_entry_that_two_replicas_apply_counts_once(driver: Driver, kind: Request) -> None:
    client, worker = driver.client(), driver.worker(2)
    client.submit(*range(1, 8))
    worker.read(2)
    client.cancel(2)
    driver.send(kind, BODIES[kind](client, worker))
    (entry,) = driver.read(STREAM_OF[kind])
    assert driver.apply_entry(STREAM_OF[kind], entry) in ("applied", "early", "unknown")
    before, counts = driver.snapshot(), driver.counts()

    assert driver.apply_entry(STREAM_OF[kind], entry) == "duplicate"
    assert driver.snapshot() == before
    assert driver.counts() == counts


@pytest.mark.parametrize("kind", Request)
@pytest.mark.parametrize("body", [b"{", b'{"version":1}'])
def test_what_two_replicas_cannot_understand_is_set_aside_once(driver: Driver, kind: Request, body: bytes) -> None:
    driver.send(kind, body)
    (entry,) = driver.read(STREAM_OF[kind])
    first = driver.apply_entry(STREAM_OF[kind], entry)
    aside = len(driver.quarantine())

    assert driver.apply_entry(STREAM_OF[kind], entry) == "duplicate"
    assert len(driver.quarantine()) == aside == (first == "malformed")


def test_an_entry_that_nobody_was_given_is_not_applied(driver: Driver) -> None:
    client = driver.client()
    body = client.body([1])
    sent = driver.send(Request.TASKS, body)
    (entry,) = driver.database.stream(driver.keys.submit())
    assert entry.id == sent

    assert driver.apply_entry("submit", entry) == "duplicate"
    assert driver.ready() == []


def test_an_outcome_of_each_attempt_counts_only_for_its_own(driver: Driver) -> None:
    client, first = driver.client(), driver.worker(1)
    client.submit(1)
    first.read()
    early = first.row(client.task(1))
    first.lose()
    second = driver.worker(1)
    second.read()
    late = second.row(client.task(1))

    first.send_outcomes(early)
    assert client.outcomes() == []
    second.send_outcomes(late)
    first.send_outcomes(early)
    second.send_outcomes(late)
    assert client.outcome(1)[:4] == (1, 2, "success", VALUE)
