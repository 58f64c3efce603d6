"""Tasks that submit tasks: a client inside a task works like any other, and never blocks the cluster.

python examples/nested.py
"""

from gristmill import Client, LocalCluster


def queens(size: int, columns: tuple[int, ...] = ()) -> int:
    """In how many ways the board can be filled, given the columns of the first queens."""
    if len(columns) == size:
        return 1
    return sum(queens(size, (*columns, column)) for column in free_columns(size, columns))


def free_columns(size: int, columns: tuple[int, ...]) -> list[int]:
    """Where the next row's queen may stand."""
    row = len(columns)
    return [
        column
        for column in range(size)
        if all(column != other and abs(column - other) != row - index for index, other in enumerate(columns))
    ]


def split(size: int, columns: tuple[int, ...], depth: int) -> int:
    """Give each way to place the next queen to a task of its own, `depth` rows deep; below that, count here."""
    if depth == 0:
        return queens(size, columns)
    with Client() as client:  # no address: inside a task it is the worker's own
        futures = [client.submit(split, size, (*columns, column), depth - 1) for column in free_columns(size, columns)]
        return sum(future.result() for future in futures)


def main() -> None:
    """Eight queens: one task starts eight, and each of those some more."""
    with LocalCluster(workers=2) as cluster, Client(cluster) as client:
        print(f"eight queens can stand in {client.submit(split, 8, (), 2).result()} ways")


if __name__ == "__main__":
    main()
