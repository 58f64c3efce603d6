"""Six scenarios: each ends with every task in the one state that it must reach, whatever was killed on the way."""

from __future__ import annotations

from collections.abc import Callable

from crash.world import BrokenLawError, World
from support.driver import CALL, LONG_CALL

Scenario = Callable[[World], None]


def needs(number: int, *dependencies: str) -> list[object]:
    """A row whose task waits for others."""
    return [number, 0, CALL, {"dependencies": list(dependencies)}]


def submit_run_collect(world: World) -> None:
    """Calls of every kind run; one fails, one is retried; the client takes everything and leaves."""
    client = world.client()
    world.worker(2)
    world.answers = {3: "failed", 4: "retry"}
    client.submit(1, [2, 0, LONG_CALL, None], 3)
    client.submit([4, 0, CALL, {"retries": 1}], [5, 0, CALL, {"priority": 3}])
    world.work_off({client: {1: "success", 2: "success", 3: "failed", 4: "success", 5: "success"}})
    client.disconnect(after=client.batch)
    world.settle()
    world.work_off({})
    if world.database.keys(world.keys.task("")) or world.database.exists(world.keys.client_inbox(client.id)):
        raise BrokenLawError("a client that has left leaves tasks or its inbox behind")


def cancel(world: World) -> None:
    """A task is cancelled in each state: held, queued, waiting, behind a dependency, finished."""
    client = world.client()
    worker = world.worker(1)
    client.submit(1, 2, 3, needs(4, client.task(3)), 5)
    world.take(worker, 1)
    client.cancel(1, 2, 3, after=client.batch)
    world.work_off({client: {1: "canceled", 2: "canceled", 3: "canceled", 4: "canceled", 5: "success"}})
    client.cancel(5, after=client.batch)
    world.work_off({client: {1: "canceled", 2: "canceled", 3: "canceled", 4: "canceled", 5: "success"}})


def worker_death(world: World) -> None:
    """A worker dies holding one task, with another queued; its late outcome counts for nothing."""
    client = world.client()
    doomed = world.worker(1)
    client.submit(1, 2, 3)
    world.take(doomed, 1)
    late = doomed.row(client.task(1), "failed", attempt=1)
    world.lose(doomed)
    world.worker(1)
    doomed.send_outcomes(late)
    world.work_off({client: dict.fromkeys((1, 2, 3), "success")})


def balance(world: World) -> None:
    """What a busy worker has read and not started goes to one that joins idle."""
    client = world.client()
    busy = world.worker(1)
    client.submit(1, 2)
    world.take(busy, 2)
    joined = world.worker(1)
    world.until(lambda: busy.asked("give_back"), "the busy worker is asked to give a task back")
    world.work_off({client: {1: "success", 2: "success"}})
    if not any(row[4 - 1] == joined.id for row in world.events()):
        raise BrokenLawError("the worker that joined was given nothing")


def graph(world: World) -> None:
    """Tasks wait for others in the same batch and in another; a failure ends what is downstream of it."""
    client = world.client()
    world.worker(2)
    world.answers = {4: "failed"}
    one, two, four, five = (client.task(number) for number in (1, 2, 4, 5))
    client.submit(1, needs(2, one), needs(3, one, two), 4, needs(5, four), needs(6, five, one))
    client.submit(needs(7, two), after=client.batch)
    states = {**dict.fromkeys((1, 2, 3, 7), "success"), **dict.fromkeys((4, 5, 6), "failed")}
    world.work_off({client: states})


def client_death(world: World) -> None:
    """A client dies with tasks in each state: they are cancelled; another client's are not."""
    dead, living = world.client(), world.client()
    worker = world.worker(1)
    dead.submit(1, 2, 3, needs(4, dead.task(1)))
    world.take(worker, 1)
    living.submit(1, 2)
    world.abandon(dead)
    world.work_off({living: {1: "success", 2: "success"}})
    world.until(lambda: not world.database.keys(world.keys.task(dead.id)), "no task of the dead client is left")
    world.until(lambda: not world.database.exists(world.keys.object(dead.function)), "its objects are freed")
    world.work_off({living: {1: "success", 2: "success"}})


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario for scenario in (submit_run_collect, cancel, worker_death, balance, graph, client_death)
}
