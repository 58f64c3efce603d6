"""No script does more than a slice of work, and what is more than a message may hold is refused whole."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from gristmill.protocol.kinds import Request
from gristmill.scheduler import information, suspects, tasks
from gristmill.scheduler.controller import SLICES, Replica
from gristmill.settings import SchedulerSettings
from gristmill.store.connection import ReplyError
from support.driver import CALL, FAILURE, Driver, PlayedClient, PlayedWorker, numbers
from transitions.test_duplicates import BODIES

# --- dependents that need much ------------------------------------------------------------------------------

SOURCES = 250
DEPENDENTS = 100
BUDGET = 500
"""Things that one script may touch downstream."""


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


@pytest.fixture
def entangled(driver: Driver, client: PlayedClient) -> PlayedWorker:
    """A worker that executes task 1; every dependent needs it and all other sources."""
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    for start in range(2, SOURCES + 1, 100):
        client.submit(*range(start, min(start + 100, SOURCES + 1)))
    needs = {"dependencies": [client.task(number) for number in range(1, SOURCES + 1)]}
    for start in range(SOURCES + 1, SOURCES + DEPENDENTS + 1, 20):
        client.submit(*([number, 0, CALL, needs] for number in range(start, start + 20)))
    return worker


def test_dependents_that_need_much_fail_in_slices(
    driver: Driver, client: PlayedClient, entangled: PlayedWorker
) -> None:
    entangled.fail(client.task(1))
    (left,) = driver.database.stream(driver.keys.continued())
    assert json.loads(left.fields["resolve"])["task"] == client.task(1)
    slices = [len(client.outcomes()) - 1]
    while driver.database.length(driver.keys.continued()):
        ended = len(client.outcomes())
        (entry,) = driver.read("continued")
        driver.apply_entry("continued", entry)
        slices.append(len(client.outcomes()) - ended)

    assert sum(slices) == DEPENDENTS
    assert max(slices) <= BUDGET // SOURCES + 1


def test_dependents_that_failed_in_slices_leave_nothing(
    driver: Driver, client: PlayedClient, entangled: PlayedWorker
) -> None:
    entangled.fail(client.task(1))
    driver.settle()

    failed = {outcome.number: outcome for outcome in client.outcomes() if outcome.state == "failed"}
    source = failed.pop(1)
    assert (source.payload, source.because) == (FAILURE, None)
    assert set(failed) == set(range(SOURCES + 1, SOURCES + DEPENDENTS + 1))
    assert {(outcome.payload, outcome.because) for outcome in failed.values()} == {(FAILURE, client.task(1))}
    assert driver.record(client.task(1)) == {}
    assert driver.record(client.task(SOURCES))["users"] == "0"
    assert driver.database.keys(driver.keys.dependents("")) == []
    assert driver.database.keys(driver.keys.value("")) == []


def test_dependents_that_need_much_are_cancelled_with_their_source_in_slices(
    driver: Driver, client: PlayedClient, entangled: PlayedWorker
) -> None:
    client.cancel(SOURCES)
    assert len(client.outcomes()) <= BUDGET // SOURCES + 2
    driver.settle()

    assert driver.counts()["state:canceled"] == DEPENDENTS + 1
    assert numbers(entangled.queue())[0] == 1


def test_a_client_whose_tasks_need_much_is_cleared_in_slices(driver: Driver, client: PlayedClient) -> None:
    driver.worker(1)
    for start in range(1, SOURCES + 1, 100):
        client.submit(*range(start, min(start + 100, SOURCES + 1)))
    needs = {"dependencies": [client.task(number) for number in range(1, SOURCES + 1)]}
    other = driver.client()
    for start in range(1, 41, 20):
        other.submit(*([number, 0, CALL, needs] for number in range(start, start + 20)))
    tasks = driver.keys.client_tasks(other.id)
    other.disconnect()
    left = [int(driver.database.run("SCARD", tasks))]
    while driver.database.length(driver.keys.continued()):
        for entry in driver.read("continued"):
            driver.apply_entry("continued", entry)
        left.append(int(driver.database.run("SCARD", tasks)))

    assert left[-1] == 0
    assert max(before - after for before, after in itertools.pairwise(left)) <= BUDGET // SOURCES + 1


# --- more than a worker can bear ----------------------------------------------------------------------------


@pytest.fixture
def swamped(driver: Driver, client: PlayedClient) -> PlayedWorker:
    """A worker that was given a thousand short tasks, and whose room is 2 now. It has read none."""
    worker = driver.worker(1, queue_size=2000)
    set_queue(driver, worker, 1999)
    worker.beat(1)
    for start in range(1, 1001, 100):
        client.submit(*range(start, start + 100))
    assert len(worker.queue()) == 1000
    set_queue(driver, worker, 1)
    return worker


def set_queue(driver: Driver, worker: PlayedWorker, queue: int) -> None:
    key = driver.keys.worker(worker.id)
    driver.database.run("HSET", key, "queue", queue, "room", queue + 1)


def beat_until_it_rests(worker: PlayedWorker, processors: int) -> list[int]:
    """How many tasks are left after each beat."""
    left = [len(worker.queue())]
    while len(left) < 2 or left[-1] != left[-2]:
        worker.beat(processors)
        left.append(len(worker.queue()))
    return left


def test_beats_give_back_the_surplus_slice_by_slice_until_it_is_gone(driver: Driver, swamped: PlayedWorker) -> None:
    left = beat_until_it_rests(swamped, 1)

    assert left[-1] == 2
    assert max(before - after for before, after in itertools.pairwise(left)) <= 500
    assert numbers(swamped.queue()) == [1, 2]
    assert numbers(driver.ready()) == list(range(3, 1001))


def test_without_processors_beats_give_back_all_that_is_unread(driver: Driver, swamped: PlayedWorker) -> None:
    left = beat_until_it_rests(swamped, 0)

    assert left[-1] == 0
    assert numbers(driver.ready()) == list(range(1, 1001))


def test_without_processors_what_is_held_stays(driver: Driver, swamped: PlayedWorker) -> None:
    swamped.read(3)
    left = beat_until_it_rests(swamped, 0)

    assert left[-1] == 3
    assert numbers(swamped.queue()) == [1, 2, 3]


def test_up_to_twice_the_room_nothing_goes_to_and_fro(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    set_queue(driver, worker, 3)
    worker.beat(1)
    client.submit(*range(1, 5))
    set_queue(driver, worker, 1)
    worker.beat(1)

    assert numbers(worker.queue()) == [1, 2, 3, 4]


# --- duties with much to do ---------------------------------------------------------------------------------


@pytest.fixture
def replica(driver: Driver) -> Replica:
    settings = SchedulerSettings(redis=driver.database.address, namespace=driver.keys.namespace)
    return Replica("replica", settings, driver.keys, driver.scripts, driver.connection)


def test_a_key_that_the_duty_of_suspects_cannot_read_is_an_error_reply(driver: Driver, replica: Replica) -> None:
    driver.client().submit(1)
    driver.database.run("SET", driver.keys.alone(), "text")
    with pytest.raises(ReplyError, match="WRONGTYPE"):
        suspects.run_alone(replica)
    driver.database.run("DEL", driver.keys.alone())

    suspects.run_alone(replica)


def note_changes(driver: Driver, entries: int) -> None:
    for number in range(1, entries + 1):
        fields = (
            "number",
            number,
            "workers",
            "[]",
            "functions",
            "[]",
            "changes",
            f'[["a.{number:07d}","success",1,-1,-1]]',
        )
        driver.database.run("XADD", driver.keys.events(), "*", *fields)
    driver.database.run("HSET", driver.keys.counts(), "events", entries)


def delay(driver: Driver, count: int) -> None:
    """So many retries are due; their records are gone."""
    pairs = [word for number in range(count) for word in (1, f"nobody.{number:07d}")]
    driver.database.run("ZADD", driver.keys.delayed(), *pairs)


def test_trim_says_that_there_is_more(driver: Driver) -> None:
    note_changes(driver, 110)

    assert [driver.duty("trim", 10) for _ in range(3)] == ["more", "more", "trimmed"]
    assert driver.database.length(driver.keys.events()) == 10


def test_promote_says_that_there_is_more(driver: Driver) -> None:
    delay(driver, 450)

    assert [driver.duty("promote") for _ in range(3)] == ["more", "more", "promoted"]
    assert driver.database.zset(driver.keys.delayed()) == {}


def test_the_duty_trims_on_while_there_is_more(
    driver: Driver, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(information, "KEPT_CHANGES", 10)
    note_changes(driver, 110)
    information.trim(replica)

    assert driver.database.length(driver.keys.events()) == 10
    assert replica.scripts_run == 3


def test_the_duty_promotes_on_while_there_is_more(driver: Driver, replica: Replica) -> None:
    delay(driver, 450)
    tasks.promote(replica)

    assert driver.database.zset(driver.keys.delayed()) == {}
    assert replica.scripts_run == 3


def test_a_duty_ends_after_so_many_slices_and_goes_on_next_time(driver: Driver, replica: Replica) -> None:
    delay(driver, SLICES * 200 + 100)
    tasks.promote(replica)
    assert (replica.scripts_run, len(driver.database.zset(driver.keys.delayed()))) == (SLICES, 100)

    tasks.promote(replica)
    assert driver.database.zset(driver.keys.delayed()) == {}


# --- lanes that seem to stand still -------------------------------------------------------------------------


class Clock:
    """Stands where the module `time` stood."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tasks, "time", clock)
    return clock


def test_a_lane_in_use_is_not_retired_by_reconnects_in_a_row(
    driver: Driver, client: PlayedClient, replica: Replica, clock: Clock
) -> None:
    driver.worker(1)
    client.submit(1)
    keeper = tasks.LaneKeeper()
    for _ in range(5):
        keeper.retire(replica)
        clock.now += 1.0

    assert set(driver.database.hash(driver.keys.lanes())) == {"python3.11"}


def test_a_lane_that_stands_still_for_the_whole_time_is_retired(
    driver: Driver, client: PlayedClient, replica: Replica, clock: Clock
) -> None:
    driver.worker(1)
    client.submit(1)
    keeper = tasks.LaneKeeper()
    keeper.retire(replica)
    clock.now += tasks.RETIRE_SECONDS
    keeper.retire(replica)

    assert driver.database.hash(driver.keys.lanes()) == {}


def test_a_lane_that_moves_now_and_then_is_kept(
    driver: Driver, client: PlayedClient, replica: Replica, clock: Clock
) -> None:
    worker = driver.worker(1)
    keeper = tasks.LaneKeeper()
    for number in range(1, 5):
        client.submit(number)
        worker.read()
        worker.succeed(client.task(number))
        keeper.retire(replica)
        clock.now += 0.6 * tasks.RETIRE_SECONDS
        keeper.retire(replica)

    assert set(driver.database.hash(driver.keys.lanes())) == {"python3.11"}


# --- messages with too much in them -------------------------------------------------------------------------


def confirm_of(task: str) -> dict[str, Any]:
    return {"task": task, "attempt": 1, "request": 1, "answer": "canceled"}


TOO_MANY: dict[str, tuple[Request, str, Any]] = {
    "returned": (Request.RETURNED, "tasks", lambda task: [task, 1]),
    "confirms": (Request.CONFIRMS, "confirms", confirm_of),
}


@pytest.mark.parametrize(("kind", "field", "item"), TOO_MANY.values(), ids=TOO_MANY)
def test_more_than_a_thousand_items_are_refused_whole(
    driver: Driver, client: PlayedClient, kind: Request, field: str, item: Any
) -> None:
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    client.cancel(1)
    before = driver.snapshot()
    body = {"worker": worker.id, field: [item(client.task(1)), *(item(client.task(n)) for n in range(2, 1002))]}
    assert driver.request(kind, body) == "malformed"

    assert len(driver.quarantine()) == 1
    assert driver.snapshot() | {driver.keys.quarantine(): None} == before | {driver.keys.quarantine(): None}
    assert driver.state(client.task(1)) == "canceling"


@pytest.mark.parametrize(("kind", "field", "item"), TOO_MANY.values(), ids=TOO_MANY)
def test_a_thousand_items_are_applied(
    driver: Driver, client: PlayedClient, kind: Request, field: str, item: Any
) -> None:
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    client.cancel(1)
    body = {"worker": worker.id, field: [item(client.task(n)) for n in range(1, 1001)]}

    assert driver.request(kind, body) == "applied"
    assert client.outcome(1).state == "canceled"


MOST: dict[str, tuple[Request, str, int]] = {
    "outcomes": (Request.OUTCOMES, "outcomes", 1000),
    "dependencies": (Request.DEPEND, "dependencies", 1000),
    "claims": (Request.CLAIM, "tasks", 500),
    "waiting": (Request.SUSPENDED, "waiting", 100_000),
}


@pytest.mark.parametrize(("kind", "field", "most"), MOST.values(), ids=MOST)
def test_as_many_as_may_be_are_applied_and_one_more_is_refused(
    driver: Driver, client: PlayedClient, kind: Request, field: str, most: int
) -> None:
    worker = driver.worker(1)
    client.submit(*range(1, 8))
    worker.read()
    sound = BODIES[kind](client, worker)
    items = sound[field] or [client.task(1)]
    before = driver.snapshot()

    assert driver.request(kind, {**sound, field: items * (most + 1)}) == "malformed"
    assert driver.snapshot().keys() - before.keys() == {driver.keys.quarantine()}
    assert driver.request(kind, {**sound, field: items * most}) == "applied"
