"""`make chaos`: thousands of tasks under random faults; every law of `chaos.history` must hold.

    make chaos SEED=7 MINUTES=30

The seed chooses faults and work, not what the operating system does with them: the same seed is the same storm, not
the same run. Exit code 1, and the folder with every history and log is kept, when a law did not hold.
"""

from __future__ import annotations

import argparse
import heapq
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import redis

from chaos import history
from chaos.faults import FAULTS, Heal
from chaos.installation import Installation
from support.invariants import violations

PAUSE_SECONDS = (0.3, 2.5)
"""Between two faults."""
CLIENTS_END_SECONDS = 300.0
REST_SECONDS = 90.0


class Storm:
    """Strikes, and heals what lasts."""

    def __init__(self, world: Installation, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.struck: Counter[str] = Counter()
        self._healing: list[tuple[float, int, str, Heal]] = []
        self._lasting: set[str] = set()
        self._number = 0

    def strike(self) -> None:
        """One random fault. Of those that last, each kind is under way once."""
        fault = self.random.choices(FAULTS, [fault.weight for fault in FAULTS])[0]
        name = fault.strike.__name__
        redis_away = {"restart_redis", "freeze_redis"} & self._lasting
        if name in self._lasting or (redis_away and name in ("restart_redis", "freeze_redis", "flush_scripts",
                                                             "kill_connections")):  # fmt: skip
            return
        try:
            heal = fault.strike(self.world, self.random)
        except (IndexError, redis.RedisError):
            return  # nobody is there to be struck
        self.struck[name] += 1
        print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
        if heal is not None:
            self._number += 1
            self._lasting.add(name)
            due = time.monotonic() + self.random.uniform(0.1, max(0.2, fault.longest_seconds))
            heapq.heappush(self._healing, (due, self._number, name, heal))

    def heal(self, *, everything: bool = False) -> None:
        """End what has lasted long enough."""
        while self._healing and (everything or self._healing[0][0] <= time.monotonic()):
            _, _, name, heal = heapq.heappop(self._healing)
            heal()
            self._lasting.discard(name)

    def watch(self) -> None:
        """Read the events while Redis is there."""
        if not {"restart_redis", "freeze_redis"} & self._lasting:
            try:
                self.world.watch()
            except redis.RedisError:
                pass  # its connections were just killed


def run(folder: Path, seed: int, seconds: float) -> list[str]:
    """One run; every law that did not hold."""
    with Installation(folder, seed) as world:
        storm = Storm(world, seed)
        begun = time.monotonic()
        next_strike = begun + 3.0
        while time.monotonic() < begun + seconds:
            storm.heal()
            if time.monotonic() >= next_strike:
                storm.strike()
                next_strike = time.monotonic() + storm.random.uniform(*PAUSE_SECONDS)
            storm.watch()
            time.sleep(0.05)
        storm.heal(everything=True)
        world.complete()
        print("the storm is over: waiting for the clients", flush=True)
        (folder / "stop").touch()
        return _judge(world, storm, folder)


def _wait(world: Installation, condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for something while the events are read."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        world.watch()
        time.sleep(0.1)
    return False


def _judge(world: Installation, storm: Storm, folder: Path) -> list[str]:
    found = []
    begun = time.monotonic()
    if not _wait(world, lambda: not world.living("client"), CLIENTS_END_SECONDS):
        found.append(f"the clients have not ended after {CLIENTS_END_SECONDS:g} s")
    print(f"the clients have ended after {time.monotonic() - begun:.0f} s", flush=True)
    found += world.failed_clients()
    # The leases of clients that were killed end now rather than in two minutes.
    for client in world.database.zset(world.keys.clients()):
        world.database.run("ZADD", world.keys.clients(), "XX", -1, client)
    last: list[str] = []

    def at_rest() -> bool:
        last[:] = violations(world.database, world.keys)
        return not last and not world.database.keys(world.keys.task(""))

    if not _wait(world, at_rest, REST_SECONDS):
        found += [f"at rest: {sentence}" for sentence in last]
        found += [f"at rest: {key} is left" for key in world.database.keys(world.keys.task(""))[:20]]
    for program in world.living("worker"):
        program.process.terminate()
    if not _wait(world, lambda: not world.living("worker") and not list(world.left_behind()), REST_SECONDS):
        found += [f"left behind: {key}" for key in list(world.left_behind())[:20]]
        found += [f"{program.name} does not leave" for program in world.living("worker")]
    world.histories.quarantined = world.set_aside()
    world.histories.clients = [history.read_client(path) for path in sorted(folder.glob("*.history"))]
    history.read_journal(folder / "journal", world.histories)
    if world.proxy.failure:
        found.append(f"the fault proxy failed: {world.proxy.failure!r}")
    found += history.broken_laws(world.histories)
    if not any(client.done for client in world.histories.clients):
        found.append("nothing happened: no task has resolved")
    print("faults: " + ", ".join(f"{name} {count}" for name, count in storm.struck.most_common()))
    print("figures: " + ", ".join(f"{name} {count}" for name, count in history.figures(world.histories).items()))
    return found


def main() -> int:
    """Run once; 1 when a law did not hold."""
    parser = argparse.ArgumentParser(prog="make chaos", description="Random faults over thousands of tasks.")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--keep", action="store_true", help="keep the folder with histories and logs in any case")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gmtest-chaos-"))
    print(f"seed {options.seed}, {options.minutes:g} minutes, histories in {folder}", flush=True)
    found = run(folder, options.seed, options.minutes * 60)
    for sentence in found[:50]:
        print(f"BROKEN {sentence}")
    print(f"seed {options.seed}: {len(found)} violations")
    if not found and not options.keep:
        shutil.rmtree(folder)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
