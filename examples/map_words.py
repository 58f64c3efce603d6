"""Map a function over many items: one call, and the values in the order of the items.

python examples/map_words.py
"""

from gristmill import Client, LocalCluster

TEXT = """\
The mill stands at the stream. The stream turns the wheel, the wheel turns the stone,
and the stone grinds the grist that each farmer brings.
"""


def longest_word(line: str) -> str:
    """The longest word of a line; of equals the first."""
    return max(line.replace(".", " ").replace(",", " ").split(), key=len)


def main() -> None:
    """Once by map, once by starmap, which spreads each item over the arguments."""
    with LocalCluster(workers=2) as cluster, Client(cluster) as client:
        for word in client.map(longest_word, TEXT.splitlines()):
            print("the longest word of a line:", word)
        print("powers:", list(client.starmap(pow, [(2, 10), (3, 5), (7, 2)])))


if __name__ == "__main__":
    main()
