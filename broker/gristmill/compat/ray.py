"""The part of Ray's interface that is about functions: change `import ray` to `from gristmill.compat import ray`.

    @ray.remote
    def square(number): return number * number

    ray.init()  # a cluster of this machine; or ray.init("redis://...")
    ray.get([square.remote(number) for number in range(4)])  # [0, 1, 4, 9]

References are Gristmill's futures. As arguments they are waited for by the task, not by the caller. What a task raises
is raised by `get` as it is. There are no actors.
"""

from __future__ import annotations

import concurrent.futures
import functools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn, overload

import gristmill.client
from gristmill.client.calls import Calls
from gristmill.client.client import Client
from gristmill.client.future import Future
from gristmill.errors import ProcessorDiedError

__all__ = [
    "ObjectRef", "cancel", "exceptions", "get", "get_actor", "init", "is_initialized", "kill", "method", "put",
    "remote", "shutdown", "util", "wait",
]  # fmt: skip

ObjectRef = Future

NO_ACTORS = "expected a function; actors are not supported: keep state in the arguments and values of functions"

_lock = threading.RLock()
_cluster: Any = None
_client: Client | None = None
_nested: tuple[tuple[str, int], Client] | None = None
"""The client of the task that this process executes, and which attempt that is."""


def init(address: Any = None, *, num_cpus: int | None = None, namespace: str | None = None, **_: Any) -> None:
    """Connect to a cluster, or without an address start one of this machine with `num_cpus` workers.

    Inside a task, and when the environment variable GRISTMILL_REDIS says where the cluster is, nothing is started.
    Other arguments of Ray's are taken and mean nothing here.
    """
    global _client, _cluster
    with _lock:
        if _client is not None:
            raise RuntimeError("expected ray.init() once; call ray.shutdown() before calling it again")
        cluster: Any = None
        if address is None:
            import os

            from gristmill.cluster import LocalCluster

            if not os.environ.get("GRISTMILL_REDIS"):
                address = cluster = LocalCluster(workers=num_cpus, namespace=namespace or "default")
        try:
            _client = Client(address, namespace=namespace)
        except BaseException:
            if cluster is not None:
                cluster.close()
            raise
        _cluster = cluster


def shutdown() -> None:
    """Disconnect, and end the cluster that `init` has started. Harmless when there is nothing."""
    global _client, _cluster
    with _lock:
        client, cluster, _client, _cluster = _client, _cluster, None, None
    if client is not None:
        client.disconnect()
    if cluster is not None:
        cluster.close()


def is_initialized() -> bool:
    """Whether there is a cluster; the first `remote` makes one."""
    return _client is not None


def _current_client() -> Client:
    global _nested
    attempt = gristmill.client.current
    with _lock:
        if attempt is not None:
            if _nested is None or _nested[0] != attempt:
                _nested = (attempt, Client())
            return _nested[1]
        if _client is None:
            init()
        assert _client is not None
        return _client


class RemoteFunction:
    """A function whose `remote` submits it. Made by `remote`."""

    def __init__(self, function: Callable[..., Any], num_returns: int, given: dict[str, Any]) -> None:
        self._function = function
        self._num_returns = num_returns
        self._given = given
        functools.update_wrapper(self, function)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Submit a call: its reference, or a list of them when it has several returns."""
        client: Calls = _current_client()
        if self._given:
            client = client.options(**self._given)
        future = client.submit(self._function, *args, **kwargs)
        if self._num_returns == 1:
            return future
        return [client.submit(operator.getitem, future, at) for at in range(self._num_returns)]

    def options(self, **options: Any) -> RemoteFunction:
        """The same function with other options (see `remote`)."""
        num_returns = options.pop("num_returns", self._num_returns)
        return RemoteFunction(self._function, num_returns, {**self._given, **_options(options)})

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"expected {self.__name__}.remote(...); got {self.__name__}(...): it is a remote function")

    __name__: str

    def __reduce__(self) -> Any:
        return (RemoteFunction, (self._function, self._num_returns, self._given))


@overload
def remote(function: Callable[..., Any], /) -> RemoteFunction: ...
@overload
def remote(**options: Any) -> Callable[[Callable[..., Any]], RemoteFunction]: ...
def remote(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function remote: `@ray.remote`, or with options `@ray.remote(num_returns=2)`.

    Options: `num_returns`; `resources` (names that a worker must offer); `num_gpus` (asks for the capability gpu);
    `max_retries` with `retry_exceptions` (True, or a list of classes). `num_cpus` and `memory` mean nothing here.
    """
    if function is None:
        num_returns = options.pop("num_returns", 1)
        given = _options(options)
        return lambda decorated: _remote(decorated, num_returns, given)
    return _remote(function, 1, {})


def _remote(function: Callable[..., Any], num_returns: int, given: dict[str, Any]) -> RemoteFunction:
    if isinstance(function, type):
        raise NotImplementedError(NO_ACTORS)
    return RemoteFunction(function, num_returns, given)


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """Ray's options as those of a client."""
    given: dict[str, Any] = {}
    capabilities = list(options.pop("resources", None) or ())
    if options.pop("num_gpus", 0):
        capabilities.append("gpu")
    if capabilities:
        given["capabilities"] = capabilities
    retries, kinds = options.pop("max_retries", None), options.pop("retry_exceptions", False)
    if kinds:  # otherwise Ray retries only what is lost, as Gristmill always does
        given["retries"] = 3 if retries is None else 1_000_000 if retries < 0 else retries
        if kinds is not True:
            given["retry_on"] = tuple(kinds)
    for ignored in ("num_cpus", "memory"):
        options.pop(ignored, None)
    if options:
        raise TypeError(f"expected an option of remote functions; got {', '.join(map(repr, options))}")
    return given


@overload
def get(refs: Future, *, timeout: float | None = None) -> Any: ...
@overload
def get(refs: Sequence[Future], *, timeout: float | None = None) -> list[Any]: ...
def get(refs: Any, *, timeout: float | None = None) -> Any:
    """The value of a reference, or the values of several in order; raises what the first that failed raised."""
    if isinstance(refs, Future):
        return refs.result(timeout)
    if not isinstance(refs, (list, tuple)) or not all(isinstance(ref, Future) for ref in refs):
        raise ValueError(f"expected a reference or a list of them; got {refs!r}")
    return _current_client().gather(refs, timeout=timeout)


def put(value: Any) -> Future:
    """A reference to a value, to be handed to many tasks."""
    if isinstance(value, Future):
        raise TypeError("expected a value; got a reference, which needs no put")
    return _current_client().submit(_same, value)


def _same(value: Any) -> Any:
    return value


def wait(
    refs: Sequence[Future], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[Future], list[Future]]:
    """Wait until `num_returns` are done, `timeout` seconds at most: (at most so many that are done, the others)."""
    if len({id(ref) for ref in refs}) != len(refs):
        raise ValueError("expected each reference once")
    if not 0 < num_returns <= len(refs):
        raise ValueError(f"expected num_returns from 1 to {len(refs)}; got {num_returns}")
    done: set[Future] = set()
    try:
        for future in concurrent.futures.as_completed(refs, timeout):
            done.add(future)  # type: ignore[arg-type]
            if len(done) == num_returns:
                break
    except concurrent.futures.TimeoutError:
        pass
    return [ref for ref in refs if ref in done], [ref for ref in refs if ref not in done]


def cancel(ref: Future, *, force: bool = False, recursive: bool = True) -> None:
    """Cancel a task, also while it executes; tasks that it has submitted end with it."""
    ref.cancel()


def _as_completed(refs: Iterable[Future]) -> Iterator[Any]:
    for future in concurrent.futures.as_completed(list(refs)):
        yield future.result()


def _map_unordered(function: RemoteFunction, items: Iterable[Any]) -> Iterator[Any]:
    return _as_completed([function.remote(item) for item in items])


util = SimpleNamespace(as_completed=_as_completed, map_unordered=_map_unordered)
"""`as_completed(refs)` and `map_unordered(remote_function, items)` give values as they come."""

exceptions = SimpleNamespace(
    GetTimeoutError=concurrent.futures.TimeoutError,
    TaskCancelledError=concurrent.futures.CancelledError,
    WorkerCrashedError=ProcessorDiedError,
)
"""What to catch, by Ray's names."""


def _no_actors(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(NO_ACTORS)


get_actor = kill = method = _no_actors
