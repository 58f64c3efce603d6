"""`make crash-sweep`: every scenario once per Redis command of the scheduler, killed at that command in every way.

make crash-sweep                              everything (half an hour on two free cores)
make crash-sweep ARGS="--sample 50 --seed 7"  50 points of each scenario
make crash-sweep ARGS="graph cancel"          these scenarios
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable

from crash import points, pool, processes, sweep
from crash.points import Point
from crash.scenarios import SCENARIOS
from support.database import Database
from support.server import RedisServer


def judge(server: RedisServer, jobs: int, todo: Iterable[tuple[str, Point]]) -> tuple[int, int, list[str]]:
    """Run all of it; how many runs, how many of them reached their point, and the violations."""
    runs, reached, found = 0, 0, []
    # Spawned, not forked: nothing of this process is shared.
    with multiprocessing.get_context("spawn").Pool(jobs, pool.begin, (server.socket,)) as processes_of_pool:
        for scenario, point, crashed_at, violation in processes_of_pool.imap_unordered(pool.run, todo):
            runs += 1
            reached += bool(crashed_at) or bool(violation)
            if violation:
                found.append(violation)
                print(violation, flush=True)
            if runs % 200 == 0:
                print(f"{runs} runs, now {scenario} {point.number} {point.mode.name}", flush=True)
    return runs, reached, found


def main() -> int:
    """Sweep; 1 when a law did not hold."""
    parser = argparse.ArgumentParser(prog="make crash-sweep", description="Kill the scheduler at every command.")
    known = [*SCENARIOS, *processes.ROLES]
    parser.add_argument("scenarios", nargs="*", help=f"some of {', '.join(known)}; all without any")
    parser.add_argument("--sample", type=int, default=0, help="so many points of each scenario; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at the same time")
    options = parser.parse_args()
    unknown = set(options.scenarios) - set(known)
    if unknown:
        parser.error(f"expected scenarios; got {', '.join(sorted(unknown))}")
    begun = time.monotonic()
    server = RedisServer()
    server.start()
    try:
        database = Database(server.address)
        todo: list[tuple[str, Point]] = []
        for scenario in options.scenarios or known:
            if scenario in processes.ROLES:
                first, last = 1, processes.run(server.socket, scenario).commands
            else:
                first, last = sweep.extent(database, scenario)
            some = points.sample(first, last, options.sample, options.seed)
            chosen = some if options.sample else list(points.every(first, last))
            print(f"{scenario}: {len(chosen)} points", flush=True)
            todo += [(scenario, point) for point in chosen]
        runs, reached, found = judge(server, options.jobs, todo)
    finally:
        server.discard()
    seconds = time.monotonic() - begun
    print(f"{runs} runs, {reached} reached their crash point, {len(found)} violations; {seconds:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
