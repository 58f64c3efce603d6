"""Submit calls one by one, and gather their values as they come.

python examples/submit_and_gather.py
"""

from concurrent.futures import as_completed

from gristmill import Client, LocalCluster


def is_prime(number: int) -> bool:
    """Trial division: slow on purpose."""
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def main() -> None:
    """Look for primes on two workers."""
    candidates = range(10**9, 10**9 + 200)
    # A cluster on this machine, with a Redis of its own; both are gone when the block ends.
    with LocalCluster(workers=2) as cluster, Client(cluster) as client:
        futures = {client.submit(is_prime, number): number for number in candidates}
        primes = sorted(futures[future] for future in as_completed(futures) if future.result())
    print(f"{len(primes)} primes among {len(candidates)} numbers; the first is {primes[0]}")


if __name__ == "__main__":
    main()
