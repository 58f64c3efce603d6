"""The read API answers what lies in Redis, in few round trips, whatever lies there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import gristmill.transitions
from gristmill.errors import ConnectionLostError
from gristmill.protocol.keys import Keys
from gristmill.snapshot import SHOWN_STATES, WORKER_SORTS, Snapshot
from gristmill.snapshot.health import FINDINGS
from gristmill.snapshot.reading import Command, Reader
from support.database import Database
from support.seeding import Seeding
from support.server import RedisServer

WORKER = "mill-1|100|w1|aaaa"


@pytest.fixture
def seeding(database: Database, keys: Keys) -> Seeding:
    return Seeding(database, keys)


@pytest.fixture
def snapshot(server: RedisServer, namespace: str) -> Iterator[Snapshot]:
    with Snapshot(server.address, namespace, reply_timeout=60.0) as snapshot:
        yield snapshot


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> list[list[Command]]:
    """The commands of each round trip that is made."""
    made: list[list[Command]] = []
    send = Reader.round_trip

    def noted(reader: Reader, commands: list[Command]) -> list[Any]:
        made.append(commands)
        return send(reader, commands)

    monkeypatch.setattr(Reader, "round_trip", noted)
    return made


def codes(snapshot: Snapshot) -> set[str]:
    return {alert.code for alert in snapshot.alerts()} - {"persistence-off"}  # the tests' server keeps nothing


def test_what_is_read_after_its_close_leaves_no_connection(server: RedisServer, namespace: str) -> None:
    snapshot = Snapshot(server.address, namespace)
    snapshot.ping()
    snapshot.close()
    snapshot.ping()

    assert not snapshot._reader._idle


def test_an_empty_namespace_has_zeros_and_no_rows(snapshot: Snapshot) -> None:
    seen = snapshot.overview()

    assert dict.fromkeys(SHOWN_STATES, 0) == seen.counts.states
    assert (seen.workers.rows, seen.schedulers, seen.lanes) == ((), (), ())
    assert seen.intake.open
    assert {"no-scheduler"} == codes(snapshot)


def test_every_finding_of_housekeeping_is_read() -> None:
    scripts = Path(gristmill.transitions.__file__).parent.rglob("*.lua")
    text = "\n".join(path.read_text(encoding="utf-8") for path in scripts)

    counted = set(re.findall(r"repaired\('(\w+)'", text)) | set(re.findall(r"'repaired:(\w+)'", text))
    assert counted
    assert counted <= set(FINDINGS)


def test_counts_come_per_state_kind_and_refusal(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.count(state__running=3, state__success=40, requests__tasks=9, refused__success__TaskCancel=2, events=43)

    counts = snapshot.counts()

    assert (counts.active, counts.finished) == (3, 40)
    assert counts.requests["tasks"] == 9
    assert counts.refused == {"success:TaskCancel": 2}
    assert counts.changes == 43


def test_a_worker_shows_what_it_holds_what_is_queued_and_its_free_room(snapshot: Snapshot, seeding: Seeding) -> None:
    row = {"task": "Client0001.0000001", "function": "shop.price", "running_ms": 1500}
    seeding.worker(WORKER, assigned=5, held=2, room=8, processors=[row, {}], capabilities={"gpu": 2})

    (worker,) = snapshot.workers().rows

    assert (worker.state, worker.outstanding, worker.held, worker.queued, worker.free) == ("live", 5, 2, 3, 3)
    assert worker.capabilities == {"python3.11": -1, "gpu": 2}
    assert [processor.function for processor in worker.executing] == ["shop.price"]
    assert worker.cpu_percent == 102.5
    assert worker.rss_bytes == (40 + 2 * 60) << 20


def test_a_worker_that_was_not_heard_is_stale_before_it_is_gone(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.scheduler("s1")
    seeding.worker(WORKER, seen_ms_ago=9_000)
    seeding.worker("mill-1|101|w2|bbbb")

    page = snapshot.workers()

    assert {worker.name: worker.state for worker in page.rows} == {"w1": "stale", "w2": "live"}
    assert page.stale == 1
    assert {"stale-workers"} == codes(snapshot)


def test_a_worker_that_has_gone_is_shown_to_those_who_ask_for_it(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.worker(WORKER, registered=False, gone="expired")

    page = snapshot.workers(also=[WORKER, "mill-1|1|never|cccc", "no id:*"])

    assert page.rows == ()
    assert [worker.state for worker in page.gone] == ["expired"]
    assert snapshot.worker("mill-1|1|never|cccc") is None


def test_workers_come_in_pages_in_the_order_of_their_names(snapshot: Snapshot, seeding: Seeding) -> None:
    for number in range(1, 13):
        seeding.worker(f"mill-1|{900 - number}|w{number}|r")

    assert [row.name for row in snapshot.workers(per_page=5).rows] == ["w1", "w2", "w3", "w4", "w5"]
    assert [row.name for row in snapshot.workers(per_page=2, descending=True).rows] == ["w12", "w11"]
    last = snapshot.workers(page=99, per_page=5)
    assert (last.page, last.pages, [row.name for row in last.rows]) == (3, 3, ["w11", "w12"])


def test_workers_can_be_put_in_the_order_of_a_figure(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.worker("mill-1|1|w1|r", assigned=1)
    seeding.worker("mill-1|2|w2|r", assigned=7)
    seeding.worker("mill-1|3|w3|r", assigned=4)

    rows = snapshot.workers(sort="queued", descending=True, per_page=2).rows

    assert [row.name for row in rows] == ["w2", "w3"]


def test_a_scheduler_that_reports_no_longer_counts_as_silent(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.scheduler("s2")
    seeding.scheduler("s1", seen_ms_ago=20_000)

    assert [(row.name, row.live) for row in snapshot.schedulers()] == [("s2", True), ("s1", False)]
    assert snapshot.schedulers()[0].requests["tasks"] == 5000


def test_clients_show_their_unfinished_tasks(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.client("Client0001", tasks=4)

    assert [(client.client, client.unfinished) for client in snapshot.clients()] == [("Client0001", 4)]


def test_the_newest_tasks_come_first_each_once_with_its_newest_state(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "running", 1, WORKER, "shop.price"), ("c.0000002", "inactive", 0, "", "shop.tax"))
    seeding.changes(("c.0000001", "failed", 1, WORKER, "shop.price", 1200, 900, 1 << 20, "ValueError: no"))

    first, second = snapshot.newest_tasks().rows

    assert (first.task, first.state, first.worker, first.duration_us) == ("c.0000001", "failed", WORKER, 1200)
    assert first.error == "ValueError: no"
    assert 0 < first.started <= first.changed
    assert (
        second.task,
        second.state,
        second.function,
        second.duration_us,
    ) == ("c.0000002", "inactive", "shop.tax", None)


def test_newest_tasks_are_filtered_by_the_state_they_are_in_now(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "running", 1, WORKER, "shop.price"), ("c.0000002", "running", 1, WORKER, "shop.tax"))
    seeding.changes(("c.0000001", "success", 1, WORKER, "shop.price", 5, 5, 5))

    assert [row.task for row in snapshot.newest_tasks(state="running").rows] == ["c.0000002"]
    assert [row.task for row in snapshot.newest_tasks(function="PRICE").rows] == ["c.0000001"]
    assert snapshot.newest_tasks(state="canceled").complete


def test_a_long_history_is_read_in_bounded_steps(
    snapshot: Snapshot, seeding: Seeding, round_trips: list[list[Command]]
) -> None:
    for number in range(700):
        seeding.changes((f"c.{number:07}", "success", 1, WORKER, "shop.price", 1, 1, 1))

    nothing = snapshot.newest_tasks(state="failed")

    assert (nothing.changes_read, nothing.complete) == (600, False)
    assert len(round_trips) == 4
    assert len(snapshot.newest_tasks(limit=50).rows) == 50


def test_what_cannot_be_read_in_the_history_is_passed_over(
    snapshot: Snapshot, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.changes(("c.0000001", "running", 1, WORKER, "shop.price"))
    database.run("XADD", keys.events(), "*", "changes", "{not json")
    database.run("XADD", keys.events(), "*", "other", "fields")

    assert [row.task for row in snapshot.newest_tasks().rows] == ["c.0000001"]


def test_a_waiting_task_says_where_it_waits(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.lane("python3.11", waiting=3)
    seeding.task("Client0001.0000001", call="gAWVAAAA")

    detail = snapshot.task("Client0001.0000001")

    assert detail.call is not None
    assert (detail.state, detail.function, detail.call.size) == ("inactive", "shop.price", 6)
    assert detail.waits == "It waits for a worker: number 2 of 3 in lane python3.11."
    assert "call" not in detail.record


def test_a_task_behind_dependencies_or_a_retry_says_so(
    snapshot: Snapshot, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.task("c.0000001", dependencies=2)
    seeding.task("c.0000002", attempt=1)
    database.run("ZADD", keys.delayed(), seeding.now() + 5000, "c.0000002")

    assert snapshot.task("c.0000001").waits == "It waits for 2 of the tasks that it depends on."
    assert snapshot.task("c.0000002").waits.startswith("It failed and runs again in ")


def test_an_assigned_task_is_queued_until_a_processor_has_read_it(
    snapshot: Snapshot, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.worker(WORKER, assigned=2, held=1)
    held, queued = (entry.id for entry in database.stream(keys.worker_tasks(WORKER)))
    seeding.task("c.0000001", state="running", worker=WORKER, entry=held, attempt=1)
    seeding.task("c.0000002", state="running", worker=WORKER, entry=queued, attempt=1)

    assert snapshot.task("c.0000001").waits == ""
    assert "It is queued at worker" in snapshot.task("c.0000002").waits


def test_the_story_of_a_task_is_told_from_its_beginning(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "inactive", 0, "", "shop.price"), ("c.0000001", "running", 1, WORKER, "shop.price"))
    for number in range(2, 400):
        seeding.changes((f"c.{number:07}", "success", 1, WORKER, "shop.price", 1, 1, 1))
    seeding.changes(("c.0000001", "success", 1, WORKER, "shop.price", 1, 1, 1))

    detail = snapshot.task("c.0000001")

    assert [change.state for change in detail.story] == ["inactive", "running", "success"]
    assert (detail.story_complete, detail.state, detail.record) == (True, "success", {})


def test_the_beginning_of_an_unfinished_task_is_found_however_long_ago(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.task("c.0000001", state="running", worker=WORKER, attempt=1, assigned=seeding.now())
    seeding.changes(("c.0000001", "running", 1, WORKER, "shop.price"))
    for number in range(2, 900):
        seeding.changes((f"c.{number:07}", "success", 1, WORKER, "shop.price", 1, 1, 1))

    assert [change.state for change in snapshot.task("c.0000001").story] == ["running"]


def test_nobody_knows_a_task_without_record_and_story(snapshot: Snapshot) -> None:
    detail = snapshot.task("c.0000001")

    assert (detail.known, detail.state, detail.story) == (False, "", ())


def test_the_recipes_show_the_same_with_redis_cli(
    snapshot: Snapshot, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.worker(WORKER, assigned=1, held=1)
    (entry,) = (entry.id for entry in database.stream(keys.worker_tasks(WORKER)))
    seeding.task("c.0000001", state="running", worker=WORKER, entry=entry, attempt=1)

    recipes = snapshot.task("c.0000001").recipes

    assert f"'{keys.task('c.0000001')}'" in recipes[0]
    assert any("XPENDING" in recipe and entry in recipe for recipe in recipes)
    for recipe in recipes:
        subprocess.run(["bash", "-n", "-c", recipe], check=True)


@pytest.mark.parametrize(
    ("capabilities", "missing"),
    [
        ([{"gpu": 1}], ("linux",)),
        ([{"gpu": 1}, {"linux": -1}], ("gpu", "linux", "python3.11")),
        ([], ("gpu", "linux", "python3.11")),
    ],
)
def test_a_lane_that_nobody_serves_names_what_is_missing(
    snapshot: Snapshot, seeding: Seeding, capabilities: list[dict[str, int]], missing: tuple[str, ...]
) -> None:
    for number, one in enumerate(capabilities):
        seeding.worker(f"mill-1|{number}|w{number}|r", capabilities=one)
    seeding.lane("gpu,linux,python3.11", waiting=2)
    seeding.lane("python3.11", waiting=1, workers=1)

    unserved, served = snapshot.lanes()

    assert (2, missing) == (unserved.waiting, unserved.missing)
    assert (served.workers, served.missing) == (1, ())


def test_tasks_that_no_worker_can_serve_raise_an_alert_with_the_remedy(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.scheduler("s1")
    seeding.worker(WORKER)
    seeding.lane("gpu,python3.11", waiting=2)

    (alert,) = (alert for alert in snapshot.alerts() if alert.code == "lane-unserved")

    assert alert.text == "2 tasks wait that no worker can run: no worker has gpu."
    assert "gristmill worker --capabilities gpu" in alert.remedy


def test_a_closed_intake_a_backlog_and_quarantined_requests_raise_alerts(
    snapshot: Snapshot, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.scheduler("s1")
    database.run("SET", keys.intake(), "more than 10 tasks wait")
    database.run("XADD", keys.quarantine(), "*", "reason", "expected a JSON object")
    for _ in range(1000):
        database.run("XADD", keys.submit(), "*", "tasks", "{}")

    assert {"intake-closed", "quarantine", "backlog"} == codes(snapshot)


def test_a_server_that_may_evict_or_keeps_nothing_raises_alerts(own_server: RedisServer) -> None:
    with Snapshot(own_server.address) as snapshot:
        assert {"no-scheduler"} == {alert.code for alert in snapshot.alerts()}

        own_server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        own_server.command("CONFIG", "SET", "appendonly", "no")
        assert {"eviction-policy", "persistence-off"} <= {alert.code for alert in snapshot.alerts()}


def test_a_pulse_is_one_round_trip_of_twelve_commands(
    snapshot: Snapshot, seeding: Seeding, round_trips: list[list[Command]]
) -> None:
    seeding.count(state__running=3)

    assert snapshot.pulse().counts.states["running"] == 3
    assert [len(commands) for commands in round_trips] == [12]


def test_a_fleet_is_read_in_slices_and_nothing_scans_the_keyspace(
    snapshot: Snapshot, seeding: Seeding, round_trips: list[list[Command]]
) -> None:
    for number in range(250):
        seeding.worker(f"mill-1|{number}|w{number}|r", assigned=number % 2)
    seeding.lane("gpu,python3.11", waiting=2)

    fleet = snapshot.fleet()

    assert (len(fleet.workers), fleet.total) == (250, 250)
    assert [worker.outstanding for worker in fleet.workers[:3]] == [0, 1, 0]
    assert all(len(commands) <= 210 for commands in round_trips)
    words = {command[0] for commands in round_trips for command in commands}
    assert not words & {"KEYS", "SCAN", "SMEMBERS", "CLIENT", "EVALSHA", "CONFIG"}


def test_every_worker_of_the_fleet_is_sorted_not_only_those_shown(snapshot: Snapshot, seeding: Seeding) -> None:
    for number in range(60):
        seeding.worker(f"mill-1|{number}|w{number}|r", room=number)

    page = snapshot.workers(per_page=2, sort="free", descending=True)

    assert [worker.name for worker in page.rows] == ["w59", "w58"]
    assert (page.page, page.pages) == (1, 30)


@pytest.mark.parametrize("sort", WORKER_SORTS)
def test_every_column_can_be_sorted_by(snapshot: Snapshot, seeding: Seeding, sort: str) -> None:
    seeding.worker(WORKER, processors=[{"task": "c.0000001", "function": "f"}])
    seeding.worker("mill-2|1|w2|bbbb")

    up, down = (snapshot.workers(sort=sort, descending=falling).rows for falling in (False, True))

    assert {worker.name for worker in up} == {worker.name for worker in down} == {"w1", "w2"}


def test_the_task_at_the_head_of_a_lane_tells_how_long_work_waits(
    snapshot: Snapshot, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.lane("python3.11", waiting=2)
    seeding.task("Client0001.0000000", submitted=1_000)
    seeding.task("Client0001.0000001", submitted=9_000)

    assert snapshot.fleet().oldest_waiting == 1_000


def test_everything_can_be_written_as_json(
    snapshot: Snapshot, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.worker(WORKER, assigned=1, processors=[{"task": "c.0000001", "function": "f"}])
    database.run("HSET", keys.worker(WORKER), "name", b"\xff\xfe", "heartbeat", b'{"cpu_percent": NaN')
    seeding.scheduler("s1", cpu_percent="nan", rss_bytes="many")
    seeding.task("c.0000001", name=b"\xc3\x28")

    assert b'"workers"' in orjson.dumps(snapshot.overview())
    assert orjson.dumps(snapshot.task("c.0000001"))


def test_one_who_waits_is_told_what_changed(snapshot: Snapshot, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "running", 1, WORKER, "shop.price"))
    start = snapshot.last_change()
    assert (start, {}) == snapshot.changes_after(start, 1)

    entry = seeding.changes(
        ("c.0000001", "canceling", 1, WORKER, "shop.price"), ("c.0000001", "canceled", 1, WORKER, "shop.price")
    )

    assert (entry, {"c.0000001": "canceled"}) == snapshot.changes_after(start, 1000)


def test_redis_away_is_said_and_its_return_noticed(own_server: RedisServer) -> None:
    with Snapshot(own_server.address) as snapshot:
        snapshot.ping()
        own_server.kill()
        with pytest.raises(ConnectionLostError):
            snapshot.overview()

        own_server.start()
        snapshot.ping()
