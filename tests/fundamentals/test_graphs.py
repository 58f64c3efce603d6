"""Graphs: what is asked for is run, each node once, and values go from node to node."""

from __future__ import annotations

import operator
from graphlib import CycleError
from pathlib import Path
from typing import Any

import pytest

from gristmill import CancelledError, Client, Future, LocalCluster, SerializationError
from support import tasks
from support.database import Database


class Broken:
    """A value that no pickle takes."""

    def __reduce__(self) -> Any:
        raise ValueError("not this one")


def increment(number: int) -> int:
    return number + 1


def test_values_go_from_node_to_node(client: Client) -> None:
    graph = {"a": 2, "b": 3, "sum": (operator.add, "a", "b"), "square": (operator.mul, "sum", "sum")}

    assert client.get(graph, ["square", "sum"]) == {"square": 25, "sum": 5}


def test_the_nodes_of_a_graph_leave_together(client: Client, cluster: LocalCluster) -> None:
    # One that went ahead could end before those that need it have come, and they would have to be sent again.
    database = Database(cluster.address)

    def requests_ever() -> int:
        facts = database.run("XINFO", "STREAM", cluster.keys.submit())
        return int(facts[facts.index(b"entries-added") + 1])

    before = requests_ever()
    graph: dict[str, Any] = {"0": 0} | {str(number): (increment, str(number - 1)) for number in range(1, 90)}
    assert client.get(graph, ["89"]) == {"89": 89}
    assert requests_ever() - before == 1
    database.close()


def test_the_order_of_the_answer_is_that_of_the_keys(client: Client) -> None:
    graph = {"a": 1, "b": (abs, "a"), "c": (abs, "a")}

    assert list(client.get(graph, ["c", "a", "b"])) == ["c", "a", "b"]


def test_data_nodes_may_be_asked_for(client: Client) -> None:
    values = {"none": None, "list": [1, (2, 3)], "tuple": (1, 2), "empty": ()}
    assert client.get(values, list(values)) == values

    future = client.get({"a": 5}, ["a"], block=False)["a"]
    assert (future.done(), future.result()) == (True, 5)
    assert future.profiling_info().duration_s == 0


def test_a_node_may_need_nothing(client: Client) -> None:
    assert client.get({"empty": (list,)}, ["empty"]) == {"empty": []}


def test_diamonds_and_a_node_that_is_used_twice(client: Client) -> None:
    graph = {
        "top": 3,
        "left": (operator.neg, "top"),
        "right": (abs, "left"),
        "bottom": (operator.sub, "right", "left"),
        "twice": (operator.add, "left", "left"),
    }

    assert client.get(graph, ["bottom", "twice"]) == {"bottom": 6, "twice": -6}


def test_only_what_is_needed_runs(client: Client, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    graph = {
        "log": log,
        "one": "one",
        "two": "two",
        "wanted": (tasks.note_start, "log", "one"),
        "not wanted": (tasks.note_start, "log", "two"),
    }
    client.get(graph, ["wanted"])

    assert tasks.started_lines(log) == ["one"]


def test_keys_may_be_any_text(client: Client) -> None:
    assert client.get({"a": -4, "caf\udce9": (abs, "a")}, ["caf\udce9"], timeout=30) == {"caf\udce9": 4}


def test_without_waiting_there_are_futures(client: Client) -> None:
    futures = client.get({"a": -4, "b": (abs, "a"), "c": (increment, "b")}, ["b", "c"], block=False)

    assert all(isinstance(future, Future) for future in futures.values())
    assert {key: future.result() for key, future in futures.items()} == {"b": 4, "c": 5}


@pytest.mark.parametrize(
    ("graph", "keys", "error", "words"),
    [
        ({"a": 1}, ["a", "a"], KeyError, "'a' twice"),
        ({"a": 1}, ["b"], KeyError, "'b' is not in the graph"),
        ({"a": (abs, "b")}, ["a"], KeyError, "node 'a' needs 'b'"),
        ({"a": (abs, 5)}, ["a"], TypeError, "got 5"),
        ({"a": (abs, "a")}, ["a"], CycleError, "'a' needs 'a'"),
        ({"a": (abs, "b"), "b": (abs, "c"), "c": (abs, "b")}, ["a"], CycleError, "'b' needs 'c' needs 'b'"),
        ({"a": 1}, "a", TypeError, r"write \['a'\]"),
        ([("a", 1)], ["a"], TypeError, "expected a graph"),
        ({"a": 1, "b": (increment, "a", "a")}, ["b"], TypeError, "node 'b'"),
        ({"a": Broken(), "b": (abs, "a")}, ["b"], SerializationError, "node 'b'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(
    client: Client, graph: Any, keys: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        client.get(graph, keys)


def test_a_node_that_fails_fails_those_that_need_it_and_no_others(client: Client) -> None:
    graph = {
        "text": "no",
        "number": -1,
        "bad": (tasks.raise_value_error, "text"),
        "after": (operator.neg, "bad"),
        "good": (abs, "number"),
    }
    futures = client.get(graph, ["after", "bad", "good"], block=False)

    assert futures["good"].result() == 1
    assert futures["after"].exception() is futures["bad"].exception()
    with pytest.raises(ValueError, match="no"):
        client.get(graph, ["after"])
    assert client.get(graph, ["good"]) == {"good": 1}


def test_nothing_behind_a_node_that_fails_runs(client: Client, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    graph: dict[str, Any] = {"log": log, "text": "a said no", "a": (tasks.raise_value_error, "text")}
    for before, name in zip("abcdefghijklmnopqrstuvwxy", "bcdefghijklmnopqrstuvwxyz", strict=True):
        graph[name] = (tasks.note_start, "log", before)
    futures = client.get(graph, ["z", "m"], block=False)

    for future in futures.values():
        with pytest.raises(ValueError, match="a said no") as caught:
            future.result(30)
        assert getattr(caught.value, "__notes__", ["in node 'a' of the graph"]) == ["in node 'a' of the graph"]
    assert tasks.started_lines(log) == []


def test_a_value_that_cannot_be_pickled_fails_the_node_and_all_behind_it(client: Client) -> None:
    graph = {"lock": (tasks.return_a_lock,), "use": (tasks.echo, "lock")}

    with pytest.raises(Exception, match="cannot be serialised"):
        client.get(graph, ["use"], timeout=30)


def test_to_cancel_one_future_cancels_the_graph(client: Client) -> None:
    graph = {"long": 60.0, "sleep": (tasks.sleep_long, "long"), "one": (abs, "sleep"), "two": (operator.neg, "sleep")}
    futures = client.get(graph, ["one", "two"], block=False)

    assert futures["one"].cancel()
    with pytest.raises(CancelledError):
        futures["two"].result(30)


def test_a_graph_may_be_far_deeper_than_pythons_stack(client: Client) -> None:
    graph: dict[str, Any] = {"0": 0} | {str(n): (increment, str(n - 1)) for n in range(1, 2001)}

    assert client.get(graph, ["2000"], timeout=200) == {"2000": 2000}


def test_a_graph_may_be_wide(client: Client) -> None:
    graph: dict[str, Any] = {f"data-{n}": n for n in range(300)}
    graph |= {f"node-{n}": (increment, f"data-{n}") for n in range(300)}
    graph["all"] = (tasks.total, *[f"node-{n}" for n in range(300)])

    assert client.get(graph, ["all"], timeout=60) == {"all": sum(range(301))}


def test_large_values_go_from_node_to_node(client: Client) -> None:
    graph = {"size": 300_000, "big": (bytes, "size"), "length": (len, "big")}

    assert client.get(graph, ["length"]) == {"length": 300_000}


def test_futures_may_be_data_nodes(client: Client) -> None:
    future = client.submit(abs, -8)

    assert client.get({"a": future, "b": (increment, "a")}, ["b"]) == {"b": 9}
