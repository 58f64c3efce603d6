"""The API: `Client`, and the view of it with other options."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import gristmill.client
from gristmill.client.functions import FunctionObject, check_call
from gristmill.client.future import CANCEL_SECONDS, CANCELLED, FINISHED, RUNNING, Future
from gristmill.client.gathering import gather
from gristmill.client.leaves import Leaf
from gristmill.client.many import ManyCalls
from gristmill.client.options import check_names, task_options
from gristmill.client.outbox import OPEN
from gristmill.client.printing import OutputLine, print_line
from gristmill.client.references import ObjectReference
from gristmill.client.serializer import LargeCall, dump_call
from gristmill.client.serializing import DependencyFailedError, send_object
from gristmill.client.session import Session
from gristmill.client.shutdown import shut_down
from gristmill.errors import SettingError
from gristmill.protocol.kinds import INLINE_BYTES
from gristmill.protocol.payloads import text_of
from gristmill.store.connection import hide_password

if TYPE_CHECKING:
    from gristmill.client.executor import Executor

CONNECT_SECONDS = 30.0
LEASE_SECONDS = 120.0
LONGEST_LEASE_SECONDS = 10_000_000
"""What the schedulers take at most: a registration with more would never be answered."""


class Cluster(Protocol):
    """What a client needs of a cluster (`gristmill.LocalCluster` is one)."""

    address: str
    namespace: str


class Calls(ManyCalls):
    """What can be called on a client, and on a view of it."""

    _session: Session
    _options: dict[str, Any] | None = None
    _given: Mapping[str, Any] = {}
    """What `_options` was made of."""
    _reserialize = False

    # --- one task -----------------------------------------------------------------------------------------

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Run `function(*args, **kwargs)` on a worker and return its future at once.

        Futures among the arguments, at any depth, are dependencies: the task runs when they are done, with their
        values in their place; when one fails or is cancelled, so does this task.

        A large argument (64 KiB of bytes, text or an array, at any depth, also in a partial or closure) is uploaded
        once, however many tasks use it. Each task has it for itself. An array of more than 4 MiB that is used again is
        looked at in samples: when only a part of it has changed since, say `options(reserialize=True)`.

        Raises SerializationError for a function or argument that cannot be pickled (and says which), TypeError for
        arguments that the function does not take and for coroutine and generator functions, QueueFullError while no
        tasks are taken, and ClientClosedError.

            future = client.submit(pow, 2, 10)
            future.result()  # 1024
        """
        session = self._session
        if session.refusal is not None or session.outbox.intake != OPEN:
            session.check_open()
        functions = session.outbox.functions
        called = functions.get_whole(function) if self._reserialize else functions.get(function)
        if kwargs or not called.least <= len(args) <= called.most:
            check_call(function, called, args, kwargs)
        return self._send(session, called, args, kwargs, self._options)

    def submit_verbose(
        self,
        function: Callable[..., Any],
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, int] | Iterable[str] | None = None,
        **options: Any,
    ) -> Future:
        """`submit` with the arguments as values, so that options can stand beside them (see `options`)."""
        if capabilities is not None:
            options["capabilities"] = capabilities
        return (self.options(**options) if options else self).submit(function, *args, **(kwargs or {}))

    def options(self, **options: Any) -> View:
        """A view of this client whose tasks have other options; what is not named stays as it is.

            priority        from -1000 to 1000; higher runs first
            capabilities    names that a worker must offer, such as ["gpu"]; numbers ({"gpu": 1}) are only shown
            retries         how often a task that fails runs again (0)
            retry_delay     seconds before it does (0)
            retry_on        exception class, or a tuple of them: only these are retried
            timeout         seconds that an attempt may take
            max_deaths      how many workers may die while executing it (3)
            keep            seconds for which the outcome is kept for whoever knows the task's id (`Future.from_id`);
                            such a task is detached: it outlives its client, and `submit` returns when Redis has it
            name            a text for people, on the status page
            tags            words for people, by which the status page finds the tasks
            profiling       whether to measure memory (`Future.profiling_info`): by default unless the task is short
            stream_output   bring what the task prints and logs here, line by line (see `Client`)
            reserialize     look at the whole of large arguments, which may have changed in part (see `submit`)

        Raises ValueError or TypeError for an option that cannot be meant.

            client.options(priority=10, retries=3).submit(download, url)
        """
        check_names(options)
        return View(self, {**self._given, **options})

    # --- many tasks ---------------------------------------------------------------------------------------

    def gather(self, futures: Iterable[Future], *, timeout: float | None = None) -> list[Any]:
        """The values of the futures in their order; the first exception (in order) is raised (`gristmill.gather`)."""
        return gather(futures, timeout=timeout)

    def cancel(self, futures: Future | Iterable[Future], *, timeout: float | None = CANCEL_SECONDS) -> int:
        """Cancel tasks, all at once, and wait at most `timeout` seconds for the answers.

        Returns how many ended cancelled; the others had their outcome first (or no answer came in time).
        """
        wanted = [futures] if isinstance(futures, Future) else list(futures)
        by_session: dict[Session, list[Future]] = {}
        for future in wanted:
            if future._state is RUNNING and future._session is not None:
                by_session.setdefault(future._session, []).append(future)
        for session, pending in by_session.items():
            session.cancel(pending)
        deadline = None if timeout is None else time.monotonic() + timeout
        return sum(future.await_end(_left(deadline)) is CANCELLED for future in wanted)

    def capacity(self) -> int:
        """How many tasks can execute at the same time now: the processors of all workers. Raises ConnectionLostError.

        client.capacity()  # 8
        """
        return self._session.lookout.capacity()

    def send_object(self, value: Any, name: str = "") -> ObjectReference:
        """Upload a value once; the reference can be an argument of any number of tasks, at any depth.

        Each task finds the value in its place, for itself alone. It is freed when the reference and the tasks that use
        it are gone. Raises SerializationError, ConnectionLostError and ClientClosedError.

            table = client.send_object(load_table(), name="table")
            futures = [client.submit(look_up, table, key) for key in keys]
        """
        return send_object(self._session, value, name)

    def clear(self, *, timeout: float | None = CANCEL_SECONDS) -> None:
        """Begin anew: unfinished tasks are cancelled (at most `timeout` seconds are waited for that), objects freed.

        Futures that are done keep their values. References that were made before raise MissingObjectError when they
        are used. New calls work.
        """
        self.cancel(list(self._session.unfinished.values()), timeout=timeout)
        self._session.forget_objects()

    def executor(self) -> Executor:
        """A `concurrent.futures.Executor` whose calls are tasks of this client, for all that takes one.

        await loop.run_in_executor(client.executor(), function, argument)
        """
        from gristmill.client.executor import Executor

        return Executor(self)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until Redis has taken everything that was submitted so far: it will run whatever dies then.

        Raises TimeoutError when that takes longer than `timeout` seconds.
        """
        begun = time.monotonic()
        if not self._session.flush(timeout):
            trouble = self._session.trouble
            why = f": {trouble.text}" if trouble.at >= begun else ""
            raise TimeoutError(f"Redis has not taken all submitted tasks within {timeout} s{why}")

    # --- graphs -------------------------------------------------------------------------------------------

    def get(
        self,
        graph: Mapping[str, Any],
        keys: Iterable[str],
        block: bool = True,
        capabilities: Mapping[str, int] | Iterable[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """The values of some nodes of a graph, by name, in the order of `keys`; only what they need is run.

        Args:
            graph: from names to nodes: a tuple of a callable and names of nodes, whose values are the arguments, is a
                call; everything else is a value.
            keys: which nodes are wanted.
            block: wait for the values; otherwise futures come in their place. To cancel one cancels the whole graph.
            capabilities: what the workers must offer that run it (see `options`).
            timeout: seconds that waiting may take.

        A node that fails fails those that need it with the same exception. The first (in the order of `keys`) is
        raised, and what has not run then is cancelled; so it is when `timeout` seconds have passed.

        Raises KeyError for an unknown node and for a key given twice, TypeError for an argument that is no name of a
        node, graphlib.CycleError for a circle, and what `submit` raises; nothing has been sent then.

            graph = {"a": 2, "b": 3, "sum": (operator.add, "a", "b"), "square": (operator.mul, "sum", "sum")}
            client.get(graph, ["sum", "square"])  # {"sum": 5, "square": 25}
        """
        from gristmill.client import graph as graphs

        nodes = graphs.named_nodes(graph)
        wanted = graphs.check_keys(graph, keys)
        view = self if capabilities is None else self.options(capabilities=capabilities)
        made = graphs.submit(self._session, graphs.plan(nodes, wanted), view._options)
        return graphs.wanted_of(made, wanted, block=block, timeout=timeout)

    def dask_get(self, dsk: Any, keys: Any, **kwargs: Any) -> Any:
        """A scheduler for Dask: `dask.compute(x, scheduler=client.dask_get)`.

        Takes Dask's graphs in all their forms and its expressions. Options of Dask's own schedulers
        (`num_workers`, ...) mean nothing here. Raises what a task raises.

            with dask.config.set(scheduler=client.dask_get):
                dask.array.ones((1000, 1000), chunks=100).sum().compute()
        """
        from gristmill.client import daskgraph
        from gristmill.client import graph as graphs

        wanted = daskgraph.flat(keys)
        made = graphs.submit(self._session, graphs.plan(daskgraph.dask_nodes(dsk), wanted), self._options)
        return daskgraph.nested(keys, graphs.wanted_of(made, wanted, block=True, timeout=None))

    # --- inside -------------------------------------------------------------------------------------------

    def _send(
        self,
        session: Session,
        called: FunctionObject,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: dict[str, Any] | None,
    ) -> Future:
        future = self._make(session, called, args, kwargs, options)
        _queue(session, future)
        if options is not None and "keep_ms" in options:
            session.flush(None)
        return future

    def _make(
        self,
        session: Session,
        called: FunctionObject,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: dict[str, Any] | None,
    ) -> Future:
        """The future of a call, ready to be queued; or one that is done, when a dependency failed already."""
        try:
            data, beside = dump_call(session, called.name, args, kwargs, whole=self._reserialize)
        except DependencyFailedError as failed:
            return _follow(session, failed.future)
        leaves: tuple[Leaf, ...] = ()
        if beside is not None and (leaves := beside.leaves):
            session.upload(leaves)
        future = Future(session, next(session.numbers), called, options)
        if beside is not None:
            session.depends(future, beside.dependencies)
        if len(data) <= INLINE_BYTES and not leaves:
            future._call = text_of(data)
        else:
            future._large = LargeCall(data, args, kwargs, keep=bool(future._dependencies), leaves=leaves)
        return future


class View(Calls):
    """A client with other options; made by `Client.options`. It is open as long as its client is."""

    def __init__(self, calls: Calls, given: Mapping[str, Any]) -> None:
        self._session = calls._session
        self._client: Calls = calls._client if isinstance(calls, View) else calls  # it must not go before its view
        self._given = given
        self._options = task_options(**given)
        self._reserialize = bool(given.get("reserialize"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._session.client_id} {dict(self._given)}>"


class Client(Calls):
    """A program's way to its cluster. Many threads may use one client.

    Args:
        address: a Redis URL (`redis://`, `rediss://`, `unix://`, `redis+sentinel://`) or a `LocalCluster`. Without one:
            inside a task that of its worker, else the environment variable GRISTMILL_REDIS.
        namespace: which installation in that Redis; by default the cluster's, else GRISTMILL_NAMESPACE, else "default".
        name: shown on the status page.
        lease_seconds: after so long without a word from this process its tasks are cancelled.
        connect_timeout: seconds that connecting and registering may take.
        serializer: how arguments and values become bytes: a subclass of `gristmill.Serializer`. Inside a task that
            of the task's client, by default.
        stream_output: bring what tasks print and log to this process, line by line with the id of the task: on
            standard output and standard error (True), or by calling it with an `OutputLine`.
        when_full: while no new tasks are taken (Redis is nearly full, or too many tasks wait), `submit` raises
            QueueFullError ("raise"), or the tasks wait here ("wait").

    The constructor returns when a scheduler has registered the client. It raises ValueError when there is no address,
    and ConnectionLostError when Redis cannot be reached, or no scheduler is running, within `connect_timeout`.

        with Client("redis://localhost:6379/0") as client:
            print(client.submit(pow, 2, 10).result())
    """

    def __init__(
        self,
        address: str | Cluster | None = None,
        *,
        namespace: str | None = None,
        name: str = "",
        lease_seconds: float = LEASE_SECONDS,
        connect_timeout: float = CONNECT_SECONDS,
        serializer: Any = None,
        stream_output: bool | Callable[[OutputLine], object] = False,
        when_full: Literal["raise", "wait"] = "raise",
    ) -> None:
        if address is not None and not isinstance(address, str):
            if not hasattr(address, "address"):
                raise TypeError(
                    f"expected an address such as 'redis://localhost:6379/0' or a LocalCluster; got {address!r}"
                )
            namespace = namespace or address.namespace
            address = address.address
        self.address = address or os.environ.get("GRISTMILL_REDIS", "")
        """The Redis URL."""
        self.namespace = namespace or os.environ.get("GRISTMILL_NAMESPACE") or "default"
        """Which installation in that Redis."""
        if not self.address:
            raise SettingError(
                "expected the address of Redis; got none, and this is not inside a task: give Client an address such "
                "as 'redis://localhost:6379/0' or a LocalCluster, or set the environment variable GRISTMILL_REDIS"
            )
        if not 1 <= lease_seconds <= LONGEST_LEASE_SECONDS:
            raise SettingError(
                f"expected lease_seconds to be a finite number from 1 to {LONGEST_LEASE_SECONDS:,}; "
                f"got {lease_seconds!r}; give such a number, or leave it out"
            )
        if when_full not in ("raise", "wait"):
            raise SettingError(f"expected when_full to be 'raise' or 'wait'; got {when_full!r}")
        self._settings: dict[str, Any] = {
            "name": name,
            "lease_seconds": lease_seconds,
            "connect_timeout": connect_timeout,
            "when_full": when_full,
            "stream_output": stream_output,
            "serializer": serializer if serializer is not None else gristmill.client.current_serializer,
        }
        self._session = Session(
            self.address,
            self.namespace,
            name=name,
            lease_seconds=lease_seconds,
            connect_timeout=connect_timeout,
            wait_when_full=when_full == "wait",
            serializer=self._settings["serializer"],
            show_line=stream_output if callable(stream_output) else print_line,
            parent=gristmill.client.current,
        )

        if stream_output:
            self._given = {"stream_output": True}
            self._options = task_options(**self._given)

    @property
    def client_id(self) -> str:
        """The id under which Redis and the page know this client."""
        return self._session.client_id

    @property
    def closed(self) -> bool:
        """Whether nothing can be submitted any more."""
        return self._session.refusal is not None

    def disconnect(self) -> None:
        """Leave: unfinished tasks are cancelled, and what Redis keeps for this client is freed.

        Large values that were not yet looked at are gone then. Harmless when the client has left already.
        """
        self._session.disconnect()

    close = disconnect

    def shutdown(self, timeout: float | None = 30.0) -> None:
        """End the whole installation: unfinished tasks of this client are cancelled, workers leave, schedulers end.

        Raises ProtectedError, a ValueError, unless the schedulers were started with `protected` off, and
        ConnectionLostError when none answers within `timeout` seconds. Redis goes on.

            client.shutdown()
        """
        shut_down(self._session, timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.abandon()

    def __reduce__(self) -> Any:
        """A client that travels opens anew where it arrives, with the same settings."""
        return (_connect, (self.address, self.namespace, self._settings))

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._session.unfinished)} unfinished tasks"
        return f"<Client {self.client_id} {hide_password(self.address)} {self.namespace}: {state}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from gristmill.client.notebook import table

        unfinished = f"{len(self._session.unfinished):,}"
        rows = {"cluster": hide_password(self.address), "namespace": self.namespace, "unfinished tasks": unfinished}
        return table(f"Client {self.client_id}{' (closed)' if self.closed else ''}", rows)


def _connect(address: str, namespace: str, settings: dict[str, Any]) -> Client:
    return Client(address, namespace=namespace, **settings)


def _queue(session: Session, future: Future) -> None:
    """Hand a future over, unless it is done already."""
    if future._call is not None:
        session.enqueue(future)
    elif future._large is not None:
        session.enqueue_large(future)


def _follow(session: Session, dependency: Future) -> Future:
    """A task that is never sent, because a dependency has no value: it ends as that did."""
    future = Future(session, next(session.numbers))
    if dependency.cancelled():
        future._state = CANCELLED
    else:
        future._failed = True
        future._source = dependency._source or dependency
        future._state = FINISHED
    return future


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
