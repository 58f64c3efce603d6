"""The client: a program's way to its cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, Protocol

import gristmill.client
from gristmill.client.calls import Calls
from gristmill.client.options import task_options
from gristmill.client.printing import OutputLine, print_line
from gristmill.client.session import Session
from gristmill.client.shutdown import shut_down
from gristmill.errors import SettingError
from gristmill.store.connection import hide_password

CONNECT_SECONDS = 30.0
LEASE_SECONDS = 120.0
LONGEST_LEASE_SECONDS = 10_000_000
"""What the schedulers take at most: a registration with more would never be answered."""


class Cluster(Protocol):
    """What a client needs of a cluster (`gristmill.LocalCluster` is one)."""

    address: str
    namespace: str


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
