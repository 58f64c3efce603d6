"""Entries of a worker's stream go one way only: what no processor was given is there until one gets it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from gristmill.protocol.keys import GROUP_PROCESSORS
from support.driver import Driver, PlayedClient, PlayedWorker, numbers

ALL = (1, 2, 3, 4, 5, 6)


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


@pytest.fixture
def worker(driver: Driver, client: PlayedClient) -> PlayedWorker:
    """A worker with six tasks in its stream, all unread; nothing waits elsewhere."""
    worker = driver.worker(6)
    client.submit(*ALL)
    assert numbers(worker.queue()) == list(ALL)
    return worker


SUBSETS = [ended for size in (1, 2) for ended in itertools.combinations(ALL, size)]


@pytest.mark.parametrize("delivered", [0, 1, 3])
@pytest.mark.parametrize("ended", SUBSETS, ids=str)
def test_an_outcome_takes_its_own_entries_and_no_others(
    client: PlayedClient, worker: PlayedWorker, delivered: int, ended: tuple[int, ...]
) -> None:
    for processor in range(1, delivered + 1):
        worker.read(1, processor)
    worker.succeed(*(client.task(number) for number in ended))

    assert numbers(worker.queue()) == [number for number in ALL if number not in ended]


@pytest.mark.parametrize("late", [4, 5, 6])
def test_an_outcome_of_an_unread_task_after_all_that_was_read_has_ended(
    client: PlayedClient, worker: PlayedWorker, late: int
) -> None:
    worker.read(3)
    worker.succeed(client.task(1), client.task(2), client.task(3))
    worker.succeed(client.task(late))

    left = [number for number in (4, 5, 6) if number != late]
    assert numbers(worker.queue()) == left
    assert numbers(entry.fields["task"] for entry in worker.read(10)) == left


def test_an_outcome_that_is_stale_takes_nothing(client: PlayedClient, worker: PlayedWorker) -> None:
    worker.read(2)
    worker.succeed(client.task(6), attempt=7)

    assert numbers(worker.queue()) == list(ALL)


def test_outcomes_in_whatever_order_leave_the_unread(client: PlayedClient, worker: PlayedWorker) -> None:
    worker.read(4)
    for number in (3, 1, 4, 2):
        worker.succeed(client.task(number))

    assert numbers(worker.queue()) == [5, 6]


@pytest.mark.parametrize("ended", [(2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 7), (6, 7, 8, 9, 10), range(1, 11), range(2, 13)])
def test_many_outcomes_take_their_own_entries_and_no_others(driver: Driver, ended: Sequence[int]) -> None:
    client, worker = driver.client(), driver.worker(12)
    client.submit(*range(1, 13))
    worker.read(10)
    worker.succeed(*(client.task(number) for number in ended))

    left = [number for number in range(1, 13) if number not in ended]
    assert numbers(worker.queue()) == left
    assert [outcome.number for outcome in client.outcomes()] == list(ended)


@pytest.mark.parametrize("lost", ["the group", "the stream"])
def test_outcomes_count_when_the_place_of_their_entries_is_gone(driver: Driver, lost: str) -> None:
    client, worker = driver.client(), driver.worker(6)
    client.submit(*ALL)
    worker.read(6)
    key = driver.keys.worker_tasks(worker.id)
    driver.database.run(*(("DEL", key) if lost == "the stream" else ("XGROUP", "DESTROY", key, GROUP_PROCESSORS)))
    worker.succeed(*(client.task(number) for number in ALL))

    assert [outcome.number for outcome in client.outcomes()] == list(ALL)
    assert worker.entries() == []
    worker.lose()
