"""Dask's collections and graphs, run by this cluster."""

# mypy: disable-error-code="attr-defined,no-untyped-call"

from __future__ import annotations

import operator
import os
import warnings
from typing import Any

import pytest

from gristmill import Client
from support import tasks

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what its own imports say
    import dask
    import dask.array
    import dask.bag
    import dask.dataframe
    import numpy as np
    import pandas as pd
    from dask._task_spec import Alias, DataNode, Task, TaskRef

pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_literal_graph_with_nested_tasks_lists_and_literals(client: Client) -> None:
    graph = {
        "x": 1,
        ("y", 0): (operator.add, "x", 10),
        ("y", 1): (sum, ["x", ("y", 0), (operator.mul, "x", 5)]),
        "z": (tasks.echo, {"a": 1}),
        "alias": ("y", 1),
        "list": ["x", ("y", 0)],
    }

    assert client.dask_get(graph, ("y", 1)) == 17
    assert client.dask_get(graph, ["alias", ["x", ("y", 0)], "z"]) == (17, (1, 11), {"a": 1})
    assert client.dask_get(graph, "list") == [1, 11]


def test_graphs_of_nodes(client: Client) -> None:
    graph = {
        "data": DataNode("data", 5),
        "task": Task("task", operator.add, TaskRef("data"), 1),
        "other": Alias("other", "task"),
        "more": Task("more", pow, TaskRef("other"), TaskRef("other")),
    }

    assert client.dask_get(graph, ["more", "other"]) == (6**6, 6)


def test_delayed_calls(client: Client) -> None:
    offset = 3

    @dask.delayed  # type: ignore[untyped-decorator, unused-ignore]
    def shifted(number: int) -> int:
        return number + offset

    total = dask.delayed(sum)([shifted(n) for n in range(10)])

    assert total.compute(scheduler=client.dask_get) == 75


def test_arrays(client: Client) -> None:
    array = dask.array.arange(10_000, chunks=1000).reshape(100, 100)
    answer = ((array + array.T).sum(axis=0) / 2).compute(scheduler=client.dask_get)

    plain = np.arange(10_000).reshape(100, 100)
    assert np.array_equal(answer, (plain + plain.T).sum(axis=0) / 2)


def test_bags(client: Client) -> None:
    words = dask.bag.from_sequence(["a b a", "b a", "c"] * 20, npartitions=6)
    counted = words.map(str.split).flatten().frequencies()

    assert dict(counted.compute(scheduler=client.dask_get)) == {"a": 60, "b": 40, "c": 20}


def test_data_frames(client: Client) -> None:
    frame = pd.DataFrame({"key": ["a", "b"] * 50, "value": range(100)})
    collection = dask.dataframe.from_pandas(frame, npartitions=4)
    means = collection.groupby("key").value.mean().compute(scheduler=client.dask_get)

    assert means.to_dict() == {"a": 49.0, "b": 50.0}


def test_it_may_be_the_scheduler_of_everything_and_runs_in_the_workers(client: Client) -> None:
    with dask.config.set(scheduler=client.dask_get):
        assert dask.delayed(os.getpid)().compute() != os.getpid()
        one, two = dask.compute(dask.delayed(abs)(-1), dask.delayed(abs)(-2))

    assert (one, two) == (1, 2)


def test_an_exception_comes_back(client: Client) -> None:
    failing: Any = dask.delayed(tasks.raise_value_error)("no")

    with pytest.raises(ValueError, match="no"):
        failing.compute(scheduler=client.dask_get)
