"""Submit calls one by one, and gather their values as they come.

python examples/submit_and_gather.py
"""

from concurrent.futures import as_completed

from gristmill import Client, LocalCluster


def smallest_factor(number: int) -> tuple[int, int]:
    """The number and its smallest factor, by trial division: slow on purpose."""
    for factor in range(2, int(number**0.5) + 1):
        if number % factor == 0:
            return number, factor
    return number, number


def main() -> None:
    """Look for primes on two workers."""
    candidates = range(10**9, 10**9 + 200)
    # A cluster on this machine, with a Redis of its own; both are gone when the block ends.
    with LocalCluster(workers=2) as cluster, Client(cluster) as client:
        futures = [client.submit(smallest_factor, number) for number in candidates]
        primes = []
        for future in as_completed(futures):
            number, factor = future.result()
            if number == factor:
                primes.append(number)
    print(f"{len(primes)} primes among {len(candidates)} numbers; the first is {min(primes)}")


if __name__ == "__main__":
    main()
