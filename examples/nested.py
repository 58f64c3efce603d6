"""Tasks that submit tasks: a client inside a task works like any other.

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


def count(size: int) -> int:
    """Give each place for the first queen to a task of its own, and add up what they find."""
    with Client() as client:  # no address: inside a task it is the worker's own
        futures = [client.submit(queens, size, (column,)) for column in range(size)]
        return sum(future.result() for future in futures)


def main() -> None:
    """Eight queens: one task, which starts eight more and waits for them."""
    with LocalCluster(workers=2) as cluster, Client(cluster) as client:
        print(f"eight queens can stand in {client.submit(count, 8).result()} ways")


if __name__ == "__main__":
    main()
