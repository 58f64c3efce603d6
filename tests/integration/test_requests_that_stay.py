"""Requests that must stay pending, because something else comes first or only a newer release knows them, keep nobody
from anything else: not after a reconnect, and not by being claimed again and again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gristmill import LocalCluster
from gristmill.protocol.keys import GROUP_SCHEDULERS, Keys
from gristmill.protocol.kinds import VERSION
from support.database import Database
from support.driver import CALL, LANE
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]

CLIENT = "byhand"
SEVERAL_READS = 40
"""More than a scheduler reads of a stream in one go."""


class Scene:
    """One real scheduler without workers, and a client that is played by hand."""

    def __init__(self, cluster: LocalCluster, database: Database) -> None:
        self.cluster = cluster
        self.database = database
        self.keys: Keys = cluster.keys
        body = {"client": CLIENT, "registration": 1, "lease_ms": 120_000}
        self.send("submit", "client", body)
        wait_until(lambda: database.exists(self.keys.client(CLIENT)), "the client is registered")

    def send(self, stream: str, kind: str, body: dict[str, Any]) -> str:
        """Append a request; answers its entry id."""
        text = json.dumps({"version": VERSION, **body})
        identity: bytes = self.database.run("XADD", getattr(self.keys, stream)(), "*", kind, text)
        return identity.decode()

    def submit(self, batch: int, *numbers: int) -> None:
        function = f"{CLIENT}.f1-1"
        self.database.run("SET", self.keys.object(function), "bytes", "EX", 86_400, "NX")
        rows = [[number, 0, CALL, None] for number in numbers]
        body = {"client": CLIENT, "batch": batch, "lane": LANE, "functions": [[function, "f"]], "tasks": rows}
        self.send("submit", "tasks", body)

    def cancel(self, number: int, after: int) -> str:
        tasks = [f"{CLIENT}.{number:07d}"]
        return self.send("cancels", "cancel", {"client": CLIENT, "tasks": tasks, "after": after, "reason": ""})

    def has(self, number: int) -> bool:
        return self.database.exists(self.keys.task(f"{CLIENT}.{number:07d}"))

    def pending(self, stream: str) -> list[str]:
        """Ids of what the scheduler has read and not applied."""
        key = getattr(self.keys, stream)()
        return [pending.id for pending in self.database.pending(key, GROUP_SCHEDULERS)]

    def connection(self) -> str:
        """The id of the scheduler's connection; empty when there is none."""
        name = f"name=gristmill-scheduler-{self.cluster.schedulers[0].pid} "
        for line in self.database.run("CLIENT", "LIST").decode().splitlines():
            if name in line:
                return str(line.split()[0].removeprefix("id="))
        return ""

    def cut(self) -> None:
        """Kill the scheduler's connection and wait for the next."""
        before = wait_until(self.connection, "the scheduler is connected")
        self.database.run("CLIENT", "KILL", "ID", before)
        wait_until(lambda: self.connection() not in ("", before), "the scheduler is connected again")

    def take_off(self, stream: str, *entries: str) -> None:
        """Remove requests by hand."""
        key = getattr(self.keys, stream)()
        self.database.run("XACK", key, GROUP_SCHEDULERS, *entries)
        self.database.run("XDEL", key, *entries)

    def canceled(self) -> int:
        return int(self.database.hash(self.keys.counts()).get("state:canceled", "0"))


@pytest.fixture
def scene(start_cluster: Starter, database: Database) -> Scene:
    return Scene(start_cluster(workers=0, schedulers=1), database)


def leave_newer(scene: Scene, stream: str, count: int) -> list[str]:
    """So many requests of version 99 lie pending in a stream."""
    kind = {"submit": "tasks", "results": "outcomes", "cancels": "cancel", "heartbeats": "beat"}[stream]
    entries = [scene.send(stream, kind, {"version": VERSION + 98}) for _ in range(count)]
    wait_until(lambda: scene.pending(stream) == entries, "the scheduler has read what only a newer one knows")
    return entries


# --- after a reconnect --------------------------------------------------------------------------------------


def test_with_an_early_request_pending_new_ones_are_read_after_a_reconnect(scene: Scene) -> None:
    early = scene.cancel(1, after=2)
    wait_until(lambda: scene.pending("cancels") == [early], "the scheduler has read the cancel")
    scene.cut()

    scene.submit(1, 1, 2)
    wait_until(lambda: scene.has(1), "a batch is applied after the reconnect")
    assert scene.pending("cancels") == [early]
    scene.submit(2, 3)
    wait_until(lambda: not scene.has(1), "the cancel is applied when its batch has come")
    wait_until(lambda: scene.pending("cancels") == [], "nothing is pending")


def test_pending_requests_are_read_to_their_end_after_a_reconnect(scene: Scene) -> None:
    early = [scene.cancel(number, after=1) for number in range(1, SEVERAL_READS + 1)]
    wait_until(lambda: scene.pending("cancels") == early, "the scheduler has read all cancels")
    scene.cut()

    scene.submit(1, *range(1, SEVERAL_READS + 2))
    wait_until(lambda: scene.canceled() == SEVERAL_READS, "every cancel that waited is applied")
    assert scene.has(SEVERAL_READS + 1)


@pytest.mark.parametrize("stream", ["submit", "results", "cancels", "heartbeats"])
def test_with_newer_requests_pending_new_ones_are_read_after_a_reconnect(scene: Scene, stream: str) -> None:
    newer = leave_newer(scene, stream, SEVERAL_READS)
    for number in (1, 2):
        scene.cut()
        scene.submit(number, number)
        wait_until(lambda number=number: scene.has(number), "a batch is applied after the reconnect")  # type: ignore[misc]

    assert scene.pending(stream) == newer
    scene.take_off(stream, *newer)


def test_behind_newer_requests_what_was_pending_as_well_is_applied_after_a_reconnect(scene: Scene) -> None:
    newer = leave_newer(scene, "cancels", SEVERAL_READS)
    early = scene.cancel(1, after=1)
    wait_until(lambda: early in scene.pending("cancels"), "the scheduler has read the cancel")
    scene.cut()

    scene.submit(1, 1)
    wait_until(lambda: scene.canceled() == 1, "the cancel behind them is applied")
    assert scene.pending("cancels") == newer
    scene.take_off("cancels", *newer)


# --- claimed again and again --------------------------------------------------------------------------------


class Calls(NamedTuple):
    """Commands that Redis has run."""

    reads: int
    scripts: int

    @classmethod
    def now(cls, database: Database) -> Calls:
        lines = dict(line.split(":", 1) for line in database.info("commandstats"))

        def calls(name: str) -> int:
            return int(lines.get(f"cmdstat_{name}", "calls=0,").partition(",")[0].removeprefix("calls="))

        return cls(calls("xreadgroup"), calls("evalsha"))

    def since(self, before: Calls) -> Calls:
        return Calls(self.reads - before.reads, self.scripts - before.scripts)


def deliveries(scene: Scene, stream: str) -> int:
    """How often entries were given to the scheduler so far, those that are pending."""
    key = getattr(scene.keys, stream)()
    return sum(entry.deliveries for entry in scene.database.pending(key, GROUP_SCHEDULERS))


def wait_for_claims(scene: Scene, stream: str, claims: int) -> None:
    """Wait until the entries have been claimed so often."""
    key = getattr(scene.keys, stream)()

    def claimed() -> bool:
        # The first delivery was a read.
        return min(entry.deliveries for entry in scene.database.pending(key, GROUP_SCHEDULERS)) > claims

    wait_until(claimed, f"what is pending was claimed {claims} times")


DUTIES, DUTIES_A_SECOND = 100, 20
"""More scripts than duties run during the test, however long a machine that stalls makes it."""


def duties_since(began: float) -> float:
    return DUTIES + DUTIES_A_SECOND * (time.monotonic() - began)


def test_an_early_request_is_tried_once_a_turn_however_often_it_was_claimed(scene: Scene) -> None:
    early = scene.cancel(1, after=1)
    wait_until(lambda: scene.pending("cancels") == [early], "the scheduler has read the cancel")
    wait_for_claims(scene, "cancels", 4)
    began, before = time.monotonic(), Calls.now(scene.database)
    wait_for_claims(scene, "cancels", 7)
    calls = Calls.now(scene.database).since(before)

    assert calls.scripts <= 1.1 * calls.reads + duties_since(began)
    scene.submit(1, 1)
    wait_until(lambda: scene.canceled() == 1, "the cancel is applied")


def test_newer_requests_are_tried_once_a_claim_however_often_they_were_claimed(scene: Scene) -> None:
    newer = leave_newer(scene, "submit", SEVERAL_READS)
    wait_for_claims(scene, "submit", 4)
    began = time.monotonic()
    claimed, before = deliveries(scene, "submit"), Calls.now(scene.database)
    wait_for_claims(scene, "submit", 7)
    calls = Calls.now(scene.database).since(before)
    claimed = deliveries(scene, "submit") - claimed

    # What was claimed just before may be tried after it.
    assert calls.scripts <= claimed + SEVERAL_READS + duties_since(began)
    scene.take_off("submit", *newer)


# --- kinds that nobody knows --------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["submit", "continued"])
def test_an_unknown_kind_stays_when_it_is_newer_and_is_set_aside_when_it_is_not(scene: Scene, stream: str) -> None:
    newer = scene.send(stream, "levitate", {"version": VERSION + 1})
    scene.send(stream, "levitate", {})
    quarantine = scene.keys.quarantine()
    wait_until(lambda: scene.database.length(quarantine) == 1, "the kind of this version is set aside")

    assert scene.pending(stream) == [newer]
    (aside,) = scene.database.stream(quarantine)
    assert aside.fields["reason"] == "expected a kind of request that this release knows"
    assert json.loads(aside.fields["body"]) == {"version": VERSION}
    scene.cut()
    scene.submit(1, 1)
    wait_until(lambda: scene.has(1), "a batch is applied after the reconnect")
    assert (scene.pending(stream), scene.database.length(quarantine)) == ([newer], 1)
    scene.take_off(stream, newer)
