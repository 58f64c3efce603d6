"""What can be called on a client: one task, many, graphs; and the view of a client with other options."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gristmill.client.functions import FunctionObject, check_call
from gristmill.client.future import CANCEL_SECONDS, CANCELLED, FINISHED, RUNNING, Future
from gristmill.client.gathering import gather
from gristmill.client.leaves import Leaf
from gristmill.client.many import ManyCalls
from gristmill.client.options import check_names, task_options
from gristmill.client.outbox import OPEN
from gristmill.client.references import ObjectReference
from gristmill.client.serializer import LargeCall, dump_call
from gristmill.client.serializing import DependencyFailedError, send_object
from gristmill.client.session import Session
from gristmill.protocol.kinds import INLINE_BYTES
from gristmill.protocol.payloads import text_of

if TYPE_CHECKING:
    from gristmill.client.executor import Executor


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
