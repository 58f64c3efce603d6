"""Cancel what is no longer needed: the first good answer ends the search.

python examples/cancel.py
"""

import time
from concurrent.futures import FIRST_COMPLETED, wait

from gristmill import Client, LocalCluster


def search(place: str, seconds: float) -> str:
    """Stands for a search that takes a while."""
    time.sleep(seconds)
    return place


def main() -> None:
    """Look in three places at once, and stop looking when one of them has it."""
    places = {"attic": 0.2, "cellar": 60.0, "garden": 60.0}
    with LocalCluster(workers=3) as cluster, Client(cluster) as client:
        futures = [client.submit(search, place, seconds) for place, seconds in places.items()]
        done, pending = wait(futures, return_when=FIRST_COMPLETED)
        print(f"found in the {done.pop().result()}")
        for future in pending:
            future.cancel()  # a task that runs already is interrupted on its worker
        wait(pending)
        print(f"cancelled: {sum(future.cancelled() for future in pending)} of {len(pending)}")


if __name__ == "__main__":
    main()
