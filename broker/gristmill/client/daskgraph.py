"""Dask's graphs: `dask.compute(x, scheduler=client.dask_get)`.

Dask itself turns whatever its users write (nested tasks, lists, literals, names that are tuples, expressions) into
nodes; each becomes one task, in which the node is called with the values that it needs, as Dask's own schedulers do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from gristmill.client.graph import Data, Node, Nodes

if TYPE_CHECKING:
    from dask.typing import Key


def dask_nodes(graph: Any) -> Nodes:
    """The nodes of a graph of Dask, or of one of its expressions.

    Raises ImportError when Dask is missing, or too old to have nodes.
    """
    try:
        from dask._task_spec import Alias, DataNode, GraphNode, convert_legacy_graph
    except ImportError as error:
        raise ImportError(
            "expected Dask 2025.1 or later for dask_get; it cannot be imported: pip install --upgrade dask"
        ) from error
    if not isinstance(graph, Mapping):
        graph = graph.__dask_graph__()
    specified: Mapping[Key, GraphNode] = convert_legacy_graph(graph)

    def node(key: Hashable) -> Node | Data:
        found = specified[key]  # type: ignore[index]  # a name that is no Key is not there
        if type(found) is DataNode:
            return Data(found.value)
        if type(found) is Alias:
            return Node(same, (found.target,))
        needs = tuple(found.dependencies)
        return Node(run_node, needs, (found, needs))

    return node


def run_node(node: Callable[[dict[Hashable, Any]], Any], names: tuple[Hashable, ...], *values: Any) -> Any:
    """What the task of a node does."""
    return node(dict(zip(names, values, strict=True)))


def same(value: Any) -> Any:
    """What the task of another name for a node does."""
    return value


def flat(keys: Any) -> list[Hashable]:
    """The names in lists of lists of them, each once."""
    found: dict[Hashable, None] = {}
    rest = [keys]
    while rest:
        item = rest.pop()
        if isinstance(item, list):
            rest.extend(reversed(item))
        else:
            found[item] = None
    return list(found)


def nested(keys: Any, values: Mapping[Hashable, Any]) -> Any:
    """The values in the place of the names; a list becomes a tuple, as Dask has it."""
    if isinstance(keys, list):
        return tuple(nested(key, values) for key in keys)
    return values[keys]
