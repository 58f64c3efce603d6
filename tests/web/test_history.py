"""The history: what the events tell is in the index, bounded, and what they no longer tell is a gap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gristmill.protocol.keys import Keys
from gristmill.snapshot import Snapshot
from gristmill_web.history import Bounds, Ended, History
from gristmill_web.history.events import EventFilter, find_events, gaps, story_of
from gristmill_web.history.tasks import TaskFilter, dependents_of, find_tasks, task_of
from support.database import Database
from support.seeding import Seeding
from support.server import RedisServer
from support.waiting import wait_until

WORKER = "mill-1|100|w1|aaaa"
NONE: list[Any] = [None] * 4


@pytest.fixture
def snapshot(server: RedisServer, namespace: str) -> Iterator[Snapshot]:
    with Snapshot(server.address, namespace, reply_timeout=60.0) as snapshot:
        yield snapshot


@pytest.fixture
def history(snapshot: Snapshot) -> Iterator[History]:
    """Read by hand: `catch_up`."""
    history = History(snapshot)
    yield history
    history.close()


@pytest.fixture
def small(snapshot: Snapshot) -> Iterator[History]:
    history = History(snapshot, Bounds(tasks=100, changes=200))
    yield history
    history.close()


def test_a_task_is_what_its_changes_tell(history: History, seeding: Seeding) -> None:
    about = {"graph": "g1", "key": "sum", "tags": ["nightly", "eu"], "lane": "gpu,python3.11", "needs": [1, 2]}
    seeding.changes(("c.0000003", "inactive", 0, "", "shop.price", *NONE, about))
    seeding.changes(("c.0000003", "running", 1, WORKER, "shop.price"))
    seeding.changes(("c.0000003", "success", 1, WORKER, "shop.price", 2_000, 1_500, 4096))
    history.catch_up()

    task = task_of(history.index, "c.0000003")

    assert task is not None
    assert (task.state, task.client, task.worker, task.function) == ("success", "c", WORKER, "shop.price")
    assert (task.attempt, task.duration_us, task.cpu_us, task.memory) == (1, 2_000, 1_500, 4096)
    assert (task.graph, task.node, task.tags, task.lane, task.needs) == (
        "g1", "sum", ["nightly", "eu"], "gpu,python3.11", [1, 2],
    )  # fmt: skip
    assert task.submitted is not None
    assert task.started is not None
    assert task.submitted <= task.started <= (task.ended or 0)
    assert task.wait_ms == task.started - task.submitted


def test_the_story_says_which_event_led_from_state_to_state(history: History, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "inactive", 0, "", "f"))
    seeding.changes(("c.0000001", "running", 1, WORKER, "f"))
    seeding.changes(("c.0000001", "inactive", 1, "", "f", 5, 4, 3, "ValueError: no", {"event": "ResultFailedRetry"}))
    seeding.changes(("c.0000001", "running", 2, WORKER, "f"), ("c.0000001", "canceling", 2, WORKER, "f"))
    seeding.changes(("c.0000001", "canceled", 2, WORKER, "f", 0, 0, 0))
    history.catch_up()

    story = story_of(history.index, "c.0000001")

    assert story.complete
    assert [(change.previous, change.state, change.event) for change in story.changes] == [
        ("", "inactive", "Submitted"),
        ("inactive", "running", "HasCapacity"),
        ("running", "inactive", "ResultFailedRetry"),
        ("inactive", "running", "HasCapacity"),
        ("running", "canceling", "TaskCancel"),
        ("canceling", "canceled", "CancelConfirmCanceled"),
    ]
    # What it has left is still named where it went back.
    assert story.changes[2].worker == WORKER


def test_what_is_known_does_not_depend_on_how_much_is_read_at_once(
    snapshot: Snapshot, seeding: Seeding, database: Database, keys: Keys
) -> None:
    for number in range(30):
        task = f"c.{number:07}"
        seeding.changes((task, "inactive", 0, "", "f"))
        seeding.changes((task, "running", 1, WORKER, "f"))
        end, error = ("success", "") if number % 3 else ("failed", "no")
        seeding.changes((task, end, 1, WORKER, "f", 9, 8, 7, error))
    at_once, bit_by_bit = History(snapshot), History(snapshot)
    at_once.catch_up()
    for _ in range(200):
        happened = snapshot.happened(bit_by_bit._after, "0", most=1)
        bit_by_bit._take(happened)

    def rows(history: History) -> list[Any]:
        tasks = find_tasks(history.index, TaskFilter(), limit=100).rows
        return [tasks, find_events(history.index, EventFilter(), limit=200)]

    assert len(rows(at_once)[0]) == 30
    assert rows(at_once) == rows(bit_by_bit)
    at_once.close()
    bit_by_bit.close()


def test_tracebacks_come_from_their_own_stream(
    history: History, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.changes(("c.0000001", "failed", 1, WORKER, "f", 1, 1, 1, "ValueError: no"))
    fields = ("task", "c.0000001", "attempt", 1, "worker", WORKER, "traceback", "Traceback ...\nValueError: no")
    database.run("XADD", keys.failures(), "*", *fields)
    history.catch_up()

    assert story_of(history.index, "c.0000001").tracebacks == {1: "Traceback ...\nValueError: no"}


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (TaskFilter(), [6, 5, 4, 3, 2, 1]),
        (TaskFilter(state="failed"), [2]),
        (TaskFilter(state="success"), [6, 5, 1]),
        (TaskFilter(function="shop.tax"), [6, 5, 2]),
        (TaskFilter(worker=WORKER), [6, 5, 2, 1]),
        (TaskFilter(client="d"), [6, 5]),
        (TaskFilter(graph="g1"), [4]),
        (TaskFilter(tag="eu"), [4]),
        (TaskFilter(tag="e"), []),
        (TaskFilter(text="NO PRICE"), [2]),
        (TaskFilter(text="shop.T"), [6, 5, 2]),
        (TaskFilter(text="100%_"), []),
        (TaskFilter(find="c.000000"), [4, 3, 2, 1]),
        (TaskFilter(find="c.0000003"), [3]),
        (TaskFilter(state="success", client="c"), [1]),
        (TaskFilter(until=1), []),
        (TaskFilter(since=1 << 50), []),
        (TaskFilter(since=1), [6, 5, 4, 3, 2, 1]),
    ],
)
def test_tasks_are_filtered(history: History, seeding: Seeding, wanted: TaskFilter, numbers: list[int]) -> None:
    seeding.changes(
        ("c.0000001", "success", 1, WORKER, "shop.price", 1, 1, 1),
        ("c.0000002", "failed", 1, WORKER, "shop.tax", 1, 1, 1, "ValueError: no price"),
        ("c.0000003", "inactive", 0, "", "shop.price"),
        ("c.0000004", "inactive", 0, "", "shop.price", *NONE, {"graph": "g1", "tags": ["eu"]}),
        ("d.0000005", "success", 1, WORKER, "shop.tax", 1, 1, 1),
        ("d.0000006", "success", 1, WORKER, "shop.tax", 1, 1, 1),
    )
    history.catch_up()

    assert [int(row.task[-1]) for row in find_tasks(history.index, wanted).rows] == numbers


def test_pages_lead_from_the_newest_to_the_oldest_and_back(history: History, seeding: Seeding) -> None:
    seeding.changes(*((f"c.{number:07}", "inactive", 0, "", "f") for number in range(25)))
    history.catch_up()
    index = history.index

    first = find_tasks(index, TaskFilter(), limit=10)
    second = find_tasks(index, TaskFilter(), before=first.rows[-1].id, limit=10)
    third = find_tasks(index, TaskFilter(), before=second.rows[-1].id, limit=10)

    numbers = [int(row.task[2:]) for page in (first, second, third) for row in page.rows]
    assert numbers == list(range(24, -1, -1))
    assert [(page.newer, page.older) for page in (first, second, third)] == [(False, True), (True, True), (True, False)]
    assert find_tasks(index, TaskFilter(), after=third.rows[0].id, limit=10).rows == second.rows
    # What is newer than the newest but one is less than a page: the newest page is a full one.
    assert find_tasks(index, TaskFilter(), after=first.rows[3].id, limit=10) == first


def test_dependents_are_found_by_number(history: History, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "success", 1, WORKER, "f", 1, 1, 1), ("c.0000011", "inactive", 0, "", "f"))
    for number, needs in ((12, [1]), (13, [11, 1]), (14, [11])):
        seeding.changes((f"c.{number:07}", "inactive", 0, "", "f", *NONE, {"needs": needs}))
    seeding.changes(("d.0000015", "inactive", 0, "", "f", *NONE, {"needs": [1]}))
    history.catch_up()

    task = task_of(history.index, "c.0000001")
    assert task is not None
    assert [row.task for row in dependents_of(history.index, task)] == ["c.0000012", "c.0000013"]


# --- what is missing ----------------------------------------------------------------------------------------


def test_what_redis_had_forgotten_before_the_start_is_a_gap(
    history: History, seeding: Seeding, database: Database, keys: Keys
) -> None:
    for number in range(3):
        seeding.changes((f"c.{number:07}", "inactive", 0, "", "f"), (f"d.{number:07}", "inactive", 0, "", "f"))
    database.run("XTRIM", keys.events(), "MAXLEN", 1)
    history.catch_up()

    (gap,) = gaps(history.index)
    assert (gap.reason, gap.changes) == ("before", 4)
    events = find_events(history.index, EventFilter())
    assert [row.gap for row in events.rows] == [None, gap]
    assert "4 changes are older" in gap.sentence


def test_what_is_trimmed_before_it_was_read_is_a_gap_in_the_middle(
    history: History, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.changes(("c.0000001", "inactive", 0, "", "f"))
    history.catch_up()
    for number in range(2, 6):
        seeding.changes((f"c.{number:07}", "inactive", 0, "", "f"))
    database.run("XTRIM", keys.events(), "MAXLEN", 1)
    history.catch_up()

    (gap,) = gaps(history.index)
    assert (gap.reason, gap.changes) == ("trimmed", 3)
    events = find_events(history.index, EventFilter())
    assert [(row.task, row.gap) for row in events.rows] == [("c.0000005", gap), ("c.0000001", None)]
    # It stands there too when the filter leaves out what lies beside it.
    assert find_events(history.index, EventFilter(task="c.0000005")).rows[0].gap == gap


def test_a_task_that_ended_in_a_gap_does_not_run_for_ever(
    history: History, seeding: Seeding, database: Database, keys: Keys
) -> None:
    for task in ("c.0000001", "c.0000002", "c.0000003"):
        seeding.changes((task, "running", 1, WORKER, "f"))
        seeding.task(task, state="running", worker=WORKER)
    history.catch_up()
    database.run("DEL", keys.task("c.0000001"))
    database.run("HSET", keys.task("c.0000002"), "state", "canceling")
    seeding.changes(("c.0000001", "success", 1, WORKER, "f", 1, 1, 1), ("c.0000002", "canceling", 1, WORKER, "f"))
    seeding.changes(("c.0000009", "inactive", 0, "", "f"))
    database.run("XTRIM", keys.events(), "MAXLEN", 1)
    history.catch_up()
    history.catch_up()

    states = {row.task: row.state for row in find_tasks(history.index, TaskFilter()).rows}
    assert states == {
        "c.0000001": "unseen", "c.0000002": "canceling", "c.0000003": "running", "c.0000009": "inactive",
    }  # fmt: skip


def test_a_redis_that_has_lost_its_data_begins_anew(history: History, seeding: Seeding, database: Database) -> None:
    seeding.changes(("c.0000001", "running", 1, WORKER, "f"), ("c.0000002", "success", 1, WORKER, "f", 1, 1, 1))
    history.catch_up()
    before = seeding.now()
    wait_until(lambda: seeding.now() > before, "what comes now has a later time")
    database.run("FLUSHALL")
    again = Seeding(database, seeding.keys)
    again.changes(("c.0000003", "inactive", 0, "", "f"))
    history.catch_up()
    history.catch_up()

    states = {row.task: row.state for row in find_tasks(history.index, TaskFilter()).rows}
    assert states == {"c.0000001": "unseen", "c.0000002": "success", "c.0000003": "inactive"}
    assert [gap.reason for gap in gaps(history.index)] == ["reset"]
    assert find_events(history.index, EventFilter()).rows[0].gap is not None


# --- bounds -------------------------------------------------------------------------------------------------


def test_the_index_is_bounded_and_forgets_the_oldest_first(
    small: History, seeding: Seeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gristmill_web.history.index.TRIM_EVERY", 1)
    seeding.changes(("c.0000000", "running", 1, WORKER, "f"))
    for start in range(1, 300, 10):
        rows = [(f"c.{number:07}", "success", 1, WORKER, "f", 1, 1, 1) for number in range(start, start + 10)]
        seeding.changes(*rows)
        small.catch_up()

    tasks = [row.task for row in find_tasks(small.index, TaskFilter(), limit=500).rows]
    # The unfinished one stays: it is still there.
    assert tasks == [*(f"c.{number:07}" for number in range(300, 200, -1)), "c.0000000"]
    assert len(find_events(small.index, EventFilter(), limit=500).rows) == 200


def test_what_is_older_than_a_day_is_forgotten(
    small: History, seeding: Seeding, database: Database, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gristmill_web.history.index.TRIM_EVERY", 1)
    long_ago = seeding.now() - 25 * 3_600_000
    old = '[["c.0000001","success",1,-1,-1,1,1,1]]'
    fields = ("number", 1, "workers", "[]", "functions", "[]", "changes", old)
    database.run("XADD", keys.events(), f"{long_ago}-0", *fields)
    small.catch_up()
    assert task_of(small.index, "c.0000001") is not None
    seeding._changes = 1
    seeding.changes(("c.0000002", "success", 1, WORKER, "f", 1, 1, 1))
    small.catch_up()

    assert task_of(small.index, "c.0000001") is None
    assert task_of(small.index, "c.0000002") is not None


# --- rubbish ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        "not json", "5", "{}", "[5]", "[[]]", '[["c.1"]]', '[[null,null,null,null,null]]',
        '[["c.0000001","failed",-5,99,"x",-1,1e300,"m",5,[]]]', f'[["{"t" * 9000}","{"s" * 9000}",1,0,0]]',
        '[["c.0000001","inactive",0,-1,-1,null,null,null,null,{"graph":5,"tags":"x","needs":["a"],"lane":[],"key":{}}]]',
    ],
)  # fmt: skip
def test_entries_nobody_of_ours_wrote_harm_nothing(
    history: History, seeding: Seeding, database: Database, keys: Keys, changes: str
) -> None:
    database.run("XADD", keys.events(), "*", "number", 1, "workers", "{}", "functions", "[1]", "changes", changes)
    database.run("XADD", keys.events(), "*", "odd", "one")
    database.run("XADD", keys.failures(), "*", "odd", "one")
    seeding._changes = 5
    seeding.changes(("c.0000007", "success", 1, WORKER, "f", 1, 1, 1))
    history.catch_up()

    assert find_tasks(history.index, TaskFilter(), limit=1).rows[0].task == "c.0000007"
    for row in find_tasks(history.index, TaskFilter()).rows:
        assert len(row.task) <= 200


# --- the reader ---------------------------------------------------------------------------------------------


def test_the_reader_follows_what_happens_and_tells_its_observers(history: History, seeding: Seeding) -> None:
    told: list[Ended] = []
    history.observers.append(told.append)
    seeding.changes(("c.0000001", "success", 1, WORKER, "f", 77, 1, 1))
    history.look()
    assert task_of(history.index, "c.0000001") is not None
    assert told == []

    seeding.changes(("c.0000002", "running", 1, WORKER, "f"))
    seeding.changes(("c.0000002", "success", 1, WORKER, "f", 88, 1, 1))

    wait_until(lambda: told, "the observer is told of what has ended since")
    assert [one.duration_us for one in told] == [88]
    assert told[0].wait_ms is not None


def test_the_reader_says_why_it_cannot_read_and_goes_on_by_itself(own_server: RedisServer) -> None:
    with Snapshot(own_server.address, "default", reply_timeout=60.0) as snapshot:
        history = History(snapshot)
        history.look()
        assert history.problem == ""
        own_server.stop()
        wait_until(lambda: history.problem, "the reader says that Redis is away")
        own_server.start()
        wait_until(lambda: not history.problem, "the reader reads again")
        history.close()


def test_a_reader_that_is_closed_leaves_no_thread(snapshot: Snapshot) -> None:
    history = History(snapshot)
    history.look()
    thread = history._thread
    history.close()

    assert thread is not None
    wait_until(lambda: not thread.is_alive(), "the thread has ended")
