"""What may happen: each fault is a function; those that last come with the function that ends them."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import NamedTuple

from chaos.installation import Installation, signal_process, tree

Heal = Callable[[], None]


class Fault(NamedTuple):
    """One kind of fault."""

    weight: int
    strike: Callable[[Installation, random.Random], Heal | None]
    longest_seconds: float = 0.0
    """How long it lasts at most; 0 for a blow."""


def kill_scheduler(world: Installation, draw: random.Random) -> Heal:
    world.kill(draw.choice(world.living("scheduler")))
    return world.complete


def kill_worker(world: Installation, draw: random.Random) -> Heal:
    world.kill(draw.choice(world.living("worker")))
    return world.complete


def drain_worker(world: Installation, draw: random.Random) -> Heal:
    draw.choice(world.living("worker")).process.terminate()
    return world.complete


def kill_processor(world: Installation, draw: random.Random) -> None:
    if processors := world.processors():
        pid = draw.choice(processors)
        world.histories.killed_pids.add(pid)
        signal_process(pid, signal.SIGKILL)


def kill_client(world: Installation, draw: random.Random) -> Heal:
    world.kill(draw.choice(world.living("client")))
    return world.complete


def kill_all_schedulers(world: Installation, draw: random.Random) -> Heal:
    for program in world.living("scheduler"):
        world.kill(program)
    return world.complete


def _freeze(pids: list[int]) -> Heal:
    for pid in pids:
        signal_process(pid, signal.SIGSTOP)

    def thaw() -> None:
        for pid in pids:
            signal_process(pid, signal.SIGCONT)

    return thaw


def freeze_scheduler(world: Installation, draw: random.Random) -> Heal:
    return _freeze([draw.choice(world.living("scheduler")).process.pid])


def freeze_worker(world: Installation, draw: random.Random) -> Heal:
    """The whole worker: a virtual machine that stands still."""
    return _freeze([process.pid for process in tree(draw.choice(world.living("worker")))])


def freeze_agent(world: Installation, draw: random.Random) -> Heal:
    """Only the agent; its processors go on."""
    return _freeze([draw.choice(world.living("worker")).process.pid])


def freeze_processor(world: Installation, draw: random.Random) -> Heal | None:
    processors = world.processors()
    return _freeze([draw.choice(processors)]) if processors else None


def freeze_client(world: Installation, draw: random.Random) -> Heal:
    return _freeze([draw.choice(world.living("client")).process.pid])


def restart_redis(world: Installation, draw: random.Random) -> Heal:
    """A crash; its data are on the disk."""
    world.server.kill()
    return world.server.start


def freeze_redis(world: Installation, draw: random.Random) -> Heal:
    return _freeze([world.server.pid])


def flush_scripts(world: Installation, draw: random.Random) -> None:
    world.server.command("SCRIPT", "FLUSH")


def kill_connections(world: Installation, draw: random.Random) -> None:
    world.server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def lose_replies(world: Installation, draw: random.Random) -> None:
    """One reply each to some of the commands that change something."""
    for name in draw.sample([b"XADD", b"XREADGROUP", b"EVALSHA", b"XDEL", b"SET", b"XREAD"], 3):
        world.proxy.lose_reply(lambda command, name=name: command.name == name)  # type: ignore[misc]


def cut_network(world: Installation, draw: random.Random) -> None:
    world.proxy.cut()


def cut_one(world: Installation, draw: random.Random) -> None:
    program = draw.choice([program for program in world.programs if program.alive])
    world.proxy.cut(program.process.pid)


def silence_one(world: Installation, draw: random.Random) -> None:
    """Half-open: its connections are dead, and nobody says so."""
    program = draw.choice([program for program in world.programs if program.alive])
    world.proxy.go_silent(program.process.pid)


def hold_network(world: Installation, draw: random.Random) -> Heal:
    world.proxy.held = True

    def release() -> None:
        world.proxy.held = False

    return release


def delay_network(world: Installation, draw: random.Random) -> Heal:
    world.proxy.delay_seconds = draw.choice([0.002, 0.01, 0.03])

    def hurry() -> None:
        world.proxy.delay_seconds = 0.0

    return hurry


FAULTS: tuple[Fault, ...] = (
    Fault(6, kill_scheduler, 1.0),
    Fault(6, kill_worker, 2.0),
    Fault(3, drain_worker, 1.0),
    Fault(6, kill_processor),
    Fault(2, kill_client, 1.0),
    Fault(1, kill_all_schedulers, 3.0),
    Fault(4, freeze_scheduler, 5.0),
    Fault(3, freeze_worker, 15.0),
    Fault(3, freeze_agent, 15.0),
    Fault(2, freeze_processor, 8.0),
    Fault(2, freeze_client, 8.0),
    Fault(4, restart_redis, 3.0),
    Fault(3, freeze_redis, 5.0),
    Fault(2, flush_scripts),
    Fault(3, kill_connections),
    Fault(6, lose_replies),
    Fault(3, cut_network),
    Fault(4, cut_one),
    Fault(3, silence_one),
    Fault(3, hold_network, 3.0),
    Fault(2, delay_network, 4.0),
)
