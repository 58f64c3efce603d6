"""Dask's collections on a cluster: a bag counts the words of many texts.

python examples/word_count.py
"""

import dask.bag

from gristmill import Client, LocalCluster

TEXT = """\
the mill stands at the stream the stream turns the wheel the wheel turns the stone
and the stone grinds the grist that each farmer brings to the mill
"""


def words(text: str) -> list[str]:
    """Its words."""
    return text.split()


def main() -> None:
    """Forty texts in eight partitions; the counts of each are put together by tasks, too."""
    texts = dask.bag.from_sequence([TEXT] * 40, npartitions=8)
    counts = texts.map(words).flatten().frequencies().topk(3, key=lambda pair: pair[1])
    with LocalCluster(workers=2) as cluster, Client(cluster) as client:
        for word, count in counts.compute(scheduler=client.dask_get):
            print(f"{word}: {count}")


if __name__ == "__main__":
    main()
