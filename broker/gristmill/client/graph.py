"""Graphs: tasks that are submitted together and use each other's values.

A graph is a dict from names to nodes. `plan` keeps what the wanted nodes need, in an order in which each node comes
after those that it uses; `submit` makes a task of each call, whose dependencies are tasks made before. Values go from
task to task; the client only gets those of the nodes that were asked for. Nothing is sent before everything has been
checked and serialised.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from graphlib import CycleError
from typing import TYPE_CHECKING, Any, NamedTuple

from gristmill.client.functions import FunctionObject, check_call
from gristmill.client.future import RUNNING, Future
from gristmill.client.serializer import PLAIN_PROTOCOL, LargeCall, dump_call
from gristmill.client.serializing import DependencyFailedError
from gristmill.errors import SerializationError
from gristmill.protocol.kinds import INLINE_BYTES
from gristmill.protocol.payloads import escaped, text_of

if TYPE_CHECKING:
    from gristmill.client.session import Session

KEY_CHARACTERS = 100
"""A longer name of a node is cut where people read it."""


class Node(NamedTuple):
    """One node: a call that uses the values of others."""

    function: Callable[..., Any]
    needs: tuple[Hashable, ...]
    """The nodes whose values are the arguments, in order; one may come twice."""
    first: tuple[Any, ...] = ()
    """Arguments before those."""


class Data(NamedTuple):
    """A node that is a value."""

    value: Any


Nodes = Callable[[Hashable], "Node | Data"]
"""Gives a node by its name; raises KeyError for an unknown one."""


class Graph:
    """The tasks of one graph that was submitted."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.names: dict[int, Hashable] = {}
        """The node of each task, by the task's number."""

    def unfinished(self) -> list[Future]:
        """Those that have no outcome yet."""
        table = self._session.unfinished
        return [future for number in self.names if (future := table.get(number)) is not None]

    def note(self, error: Exception, number: int) -> None:
        """Say in an exception which node it comes from (from Python 3.11 on: exceptions have no notes before)."""
        if hasattr(error, "add_note"):
            error.add_note(f"in node {self.names[number]!r} of the graph")


# --- the order --------------------------------------------------------------------------------------------


def plan(nodes: Nodes, wanted: Iterable[Hashable]) -> dict[Hashable, Node | Data]:
    """The wanted nodes and all that they need, each after those that it uses.

    Raises KeyError for an unknown node and graphlib.CycleError when one needs itself, directly or not.
    """
    found: dict[Hashable, Node | Data] = {}
    for start in wanted:
        if start in found:
            continue
        path: list[tuple[Hashable, Node | Data, Iterable[Hashable]]] = [_step(nodes, start)]
        open_keys = {start: 0}
        while path:
            key, node, rest = path[-1]
            for need in rest:
                if need in found:
                    continue
                if need in open_keys:
                    circle = [item[0] for item in path[open_keys[need] :]]
                    names = " needs ".join(repr(name) for name in [*circle, need])
                    raise CycleError(f"expected a graph without a circle; got {names}", [*circle, need])
                open_keys[need] = len(path)
                path.append(_step(nodes, need))
                break
            else:
                path.pop()
                del open_keys[key]
                found[key] = node
    return found


def _step(nodes: Nodes, key: Hashable) -> tuple[Hashable, Node | Data, Iterable[Hashable]]:
    node = nodes(key)
    return key, node, iter(node.needs if type(node) is Node else ())


# --- opengris-scaler's format -----------------------------------------------------------------------------


def named_nodes(graph: Mapping[str, Any]) -> Nodes:
    """Nodes of a graph in which a call is a tuple of a callable and names; everything else is data."""
    if not isinstance(graph, Mapping):
        raise TypeError(f"expected a graph: a dict from names to calls and values; got {type(graph).__qualname__}")

    def node(key: Hashable) -> Node | Data:
        value = graph[key]  # type: ignore[index]  # a name that is no text is not there
        if type(value) is not tuple or not value or not callable(value[0]):
            return Data(value)
        function, *names = value
        for name in names:
            if not isinstance(name, str):
                raise TypeError(
                    f"expected the arguments of node {key!r} to be names of nodes; got {name!r}; "
                    "make a value a node of its own"
                )
            if name not in graph:
                raise KeyError(f"node {key!r} needs {name!r}, which is not in the graph")
        return Node(function, tuple(names))

    return node


def check_keys(graph: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
    """The names of wanted nodes: each once, all in the graph."""
    if isinstance(keys, str):
        raise TypeError(f"expected a list of names of nodes; got the text {keys!r}; write [{keys!r}]")
    wanted = list(keys)
    if len(set(wanted)) < len(wanted):
        twice = next(key for at, key in enumerate(wanted) if key in wanted[:at])
        raise KeyError(f"expected each key once; got {twice!r} twice")
    for key in wanted:
        if key not in graph:
            raise KeyError(f"{key!r} is not in the graph")
    return wanted


# --- tasks ------------------------------------------------------------------------------------------------


def submit(
    session: Session, planned: Mapping[Hashable, Node | Data], options: Mapping[str, Any] | None
) -> dict[Hashable, Any]:
    """Submit what `plan` gave: a future for each call, the value for each data node."""
    session.check_open()
    made: dict[Hashable, Any] = {}
    graph = Graph(session)
    size = sum(type(node) is Node for node in planned.values())
    base = dict(options or {})
    graph_id = ""
    for key, node in planned.items():
        if type(node) is Data:
            made[key] = node.value
            continue
        assert type(node) is Node
        called = session.outbox.functions.get(node.function)
        args = (*node.first, *[made[need] for need in node.needs])
        if not called.least <= len(args) <= called.most:
            _check(key, node, called, args)
        number = next(session.numbers)
        graph_id = graph_id or f"{session.client_id}.g{number}"
        shown = escaped(str(key)[:KEY_CHARACTERS])
        about = {**base.get("about", {}), "graph": graph_id, "key": shown, "size": size}
        future = Future(session, number, called, {**base, "about": about})
        _serialise(session, future, key, called, args)
        future._graph = graph
        graph.names[number] = key
        for dependency in future._dependencies:
            dependency._last_user = future
        made[key] = future
    session.enqueue_graph([made[key] for key, node in planned.items() if type(node) is Node])
    return made


def _check(key: Hashable, node: Node, called: FunctionObject, args: tuple[Any, ...]) -> None:
    try:
        check_call(node.function, called, args, {})
    except TypeError as error:
        raise TypeError(f"node {key!r}: {error}") from None


def _serialise(session: Session, future: Future, key: Hashable, called: FunctionObject, args: tuple[Any, ...]) -> None:
    """Put the call into the future: by pickle alone where that gives the right bytes."""
    data, beside = _plainly(args) if session.serializer is None else None, None
    if data is not None:
        session.depends(future, tuple(dict.fromkeys(args)))
    else:
        try:
            data, beside = dump_call(session, called.name, args, {})
        except DependencyFailedError as failed:
            raise failed.future.exception() or failed from None
        except SerializationError as error:
            raise type(error)(f"node {key!r}: {error}") from error
        if beside is not None:
            session.depends(future, beside.dependencies)
    leaves = beside.leaves if beside is not None else ()
    if leaves:
        session.upload(leaves)
    if len(data) <= INLINE_BYTES and not leaves:
        future._call = text_of(data)
    else:
        future._large = LargeCall(data, args, {}, keep=bool(future._dependencies), leaves=leaves)


class _Pickler(pickle.Pickler):
    """Pickle's own, for futures and nothing else that needs care."""

    def persistent_id(self, value: Any) -> Any:
        return value.task_id if type(value) is Future else None


def _plainly(args: tuple[Any, ...]) -> bytes | None:
    """The bytes of a call whose arguments are all futures of tasks that are not done; None for any other."""
    for value in args:
        if type(value) is not Future or value._state is not RUNNING or getattr(value, "_graph", None) is None:
            return None
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, PLAIN_PROTOCOL)
    pickler.fast = True  # nothing comes twice but futures: the shorter the call, the less Redis has to write
    pickler.dump((args, {}))
    return buffer.getvalue()


# --- values -----------------------------------------------------------------------------------------------


def wanted_of(made: dict[Any, Any], wanted: list[Any], *, block: bool, timeout: float | None) -> dict[Any, Any]:
    """The wanted nodes by name: their values, or futures of them. Of what `submit` gave nothing else is kept."""
    chosen = {key: made[key] for key in wanted}
    made.clear()
    if not block:
        return {key: value if type(value) is Future else _done(value) for key, value in chosen.items()}
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        for key, value in chosen.items():
            if type(value) is Future:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                chosen[key] = value.result(left)
        return chosen
    except BaseException:
        unfinished = [future for future in chosen.values() if type(future) is Future and not future.done()]
        for future in unfinished[:1]:
            assert future._session is not None
            if future._session.refusal is None:
                future._session.cancel(unfinished)
        raise
    finally:
        del chosen  # an exception's traceback must not keep every value alive


def _done(value: Any) -> Future:
    future = Future()
    future.set_result(value)
    return future
