"""Futures as arguments: a task that gets a future waits for it, on the cluster, and receives its value.

python examples/dependencies.py
"""

import random

from gristmill import Client, LocalCluster


def throw(seed: int, darts: int) -> int:
    """How many random points of the unit square fall into the quarter circle."""
    source = random.Random(seed)
    return sum(source.random() ** 2 + source.random() ** 2 <= 1 for _ in range(darts))


def estimate(hits: list[int], darts: int) -> float:
    """Pi, from all throws together."""
    return 4 * sum(hits) / (darts * len(hits))


def main() -> None:
    """Twenty tasks, and one that waits for all of them. Nothing comes back to this process in between."""
    darts = 20_000
    with LocalCluster(workers=2) as cluster, Client(cluster) as client:
        hits = [client.submit(throw, seed, darts) for seed in range(20)]
        pi = client.submit(estimate, hits, darts)  # a list of futures, or one alone: both work
        print(f"pi is about {pi.result():.3f}")


if __name__ == "__main__":
    main()
