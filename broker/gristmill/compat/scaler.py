"""The names of opengris-scaler: change `from scaler import Client` to `from gristmill.compat.scaler import Client`.

    with SchedulerClusterCombo(n_workers=4) as cluster, Client(cluster.get_address()) as client:
        print(client.map(math.sqrt, range(100)))

What differs on purpose is listed in docs/coming-from-scaler.md. A keyword that means nothing here is taken, with a
warning when its value says that something was expected of it.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, InvalidStateError, TimeoutError  # noqa: A004 - the reference's name
from typing import Any

import gristmill
from gristmill.client.future import Future as ScalerFuture
from gristmill.client.references import ObjectReference
from gristmill.client.serializing import Serializer
from gristmill.cluster import LocalCluster
from gristmill.errors import (
    ClientClosedError,
    ConnectionLostError,
    DeserializationError,
    GristmillError,
    MissingObjectError,
    ProcessorDiedError,
    RemoteError,
    UnknownTaskError,
    WorkerDiedError,
)

__version__ = gristmill.__version__

DisconnectedError = ConnectionLostError
MissingObjects = MissingObjectError
DeserializeObjectError = DeserializationError
TaskNotFoundError = UnknownTaskError
TaskExceptionNotSerializableError = RemoteError
ClientQuitException = ClientShutdownException = ClientCancelledException = ClientClosedError
ObjectStorageException = ConnectionLostError
SchedulerError = GristmillError
NoWorkerError = GristmillError
"""Never raised: without a worker a task waits, and says so."""

NO_ADDRESS = (
    "No scheduler address was given, and this is not inside a worker: give the address of Redis, or of a "
    "SchedulerClusterCombo"
)

_CLIENT_IGNORES = {"heartbeat_interval_seconds": 2, "object_storage_address": None, "security_config": None}
_COMBO_IGNORES = {
    "object_storage_address": None,
    "storage_address": None,
    "monitor_address": None,
    "worker_io_threads": 1,
    "scheduler_io_threads": 1,
    "heartbeat_interval_seconds": 2,
    "client_timeout_seconds": 60,
    "object_retention_seconds": 60,
    "task_timeout_seconds": 0,
    "death_timeout_seconds": 300,
    "load_balance_seconds": 1,
    "load_balance_trigger_times": 2,
    "garbage_collect_interval_seconds": 30,
    "trim_memory_threshold_bytes": 1 << 30,
    "hard_processor_suspend": False,
    "event_loop": "builtin",
    "scaler_policy": None,
    "logging_paths": ("/dev/stdout",),
    "logging_config_file": None,
    "worker_manager_id": "combo",
    "security_config": None,
}
"""Keywords that mean nothing here, each with the value that expects nothing."""


def _ignore(given: Mapping[str, Any], known: Mapping[str, Any], of: str) -> None:
    """Take keywords that mean nothing; warn of those that expect something. Raises TypeError for unknown ones."""
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{of}() got an unexpected keyword argument {name!r}")
        if value is not None and value != known[name]:
            warnings.warn(f"{of}: {name}={value!r} means nothing here", stacklevel=3)


def redis_address(address: Any) -> Any:
    """The Redis URL of a `tcp://host:port`; other addresses as they are."""
    if isinstance(address, str) and address.startswith("tcp://"):
        return f"redis://{address.removeprefix('tcp://')}"
    return address


class Client(gristmill.Client):
    """`scaler.Client`. Without an address it is the own one of the worker; outside of one that is a ValueError."""

    def __init__(
        self,
        address: str | None = None,
        profiling: bool = False,
        timeout_seconds: int = 60,
        heartbeat_interval_seconds: int = 2,
        serializer: Any = None,
        stream_output: bool = False,
        **ignored: Any,
    ) -> None:
        _ignore({"heartbeat_interval_seconds": heartbeat_interval_seconds, **ignored}, _CLIENT_IGNORES, "Client")
        self._arguments = (address, profiling, timeout_seconds, heartbeat_interval_seconds, serializer, stream_output)
        given: dict[str, Any] = {}
        if serializer is not None:
            given["serializer"] = serializer
        if stream_output:
            given["stream_output"] = True
        try:
            super().__init__(redis_address(address), lease_seconds=timeout_seconds, **given)
        except gristmill.SettingError as error:
            if address is None and "address" in str(error):
                raise ValueError(NO_ADDRESS) from error
            raise

    def __enter__(self) -> Client:
        return self

    @property
    def identity(self) -> bytes:
        """The client's id."""
        return self.client_id.encode()

    def submit_verbose(  # type: ignore[override]
        self,
        fn: Callable[..., Any],
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, int] | None = None,
        reserialize: bool = False,
    ) -> ScalerFuture:
        """`submit`, with the arguments as values."""
        future: ScalerFuture = self._view(capabilities, reserialize).submit(fn, *args, **(kwargs or {}))
        return future

    def map(  # type: ignore[override]
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        capabilities: Mapping[str, int] | None = None,
        reserialize: bool = False,
    ) -> list[Any]:
        """The values of `fn` for the items of the iterables, in order."""
        return gristmill.Client.map(self._view(capabilities, reserialize), fn, *iterables)

    def starmap(  # type: ignore[override]
        self,
        fn: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        capabilities: Mapping[str, int] | None = None,
        reserialize: bool = False,
    ) -> list[Any]:
        """The values of `fn` for the tuples of arguments, in order."""
        return gristmill.Client.starmap(self._view(capabilities, reserialize), fn, iterable)

    def _view(self, capabilities: Mapping[str, int] | None, reserialize: bool) -> Any:
        given: dict[str, Any] = {}
        if capabilities:
            given["capabilities"] = capabilities
        if reserialize:
            given["reserialize"] = True
        return self.options(**given) if given else self

    def __reduce__(self) -> Any:
        address, *others = self._arguments
        return (Client, (self.address if address is not None else None, *others))


class SchedulerClusterCombo:
    """`scaler.SchedulerClusterCombo`: Redis, a scheduler and workers of this machine.

    An `address` such as tcp://127.0.0.1:2345 says on which port of this machine Redis listens. `n_workers=0` is legal.
    `per_worker_queue_size` is what `per_worker_task_queue_size` was called once.
    """

    def __init__(
        self,
        n_workers: int,
        address: str | None = None,
        per_worker_capabilities: Mapping[str, int] | None = None,
        max_number_of_tasks_waiting: int = -1,
        worker_timeout_seconds: int = 60,
        per_worker_task_queue_size: int = 1000,
        per_worker_queue_size: int | None = None,
        protected: bool = True,
        allocate_policy: Any = None,
        logging_level: str = "INFO",
        **ignored: Any,
    ) -> None:
        _ignore(ignored, _COMBO_IGNORES, "SchedulerClusterCombo")
        port = int(address.rpartition(":")[2]) if address else None
        policy = str(getattr(allocate_policy, "name", allocate_policy) or "capability").lower()
        worker_options: dict[str, Any] = {
            "worker_lease_seconds": worker_timeout_seconds,
            "queue_size": per_worker_queue_size or per_worker_task_queue_size,
        }
        if sys.modules.get("scaler") is sys.modules[__name__]:
            worker_options["preload"] = f"{__name__}:install()"
        if per_worker_capabilities:
            worker_options["capabilities"] = dict(per_worker_capabilities)
        self._address = address
        self._cluster = LocalCluster(
            workers=n_workers,
            redis_port=port,
            log_level=logging_level.lower() if logging_level.upper() != "INFO" else "warning",
            worker_options=worker_options,
            scheduler_options={
                "protected": protected,
                "allocation": "even_load" if policy.startswith("even") else "capability",
                "max_tasks_waiting": max(0, max_number_of_tasks_waiting),
            },
        )

    def get_address(self) -> str:
        """What `Client` takes."""
        return self._address or self._cluster.address

    def shutdown(self) -> None:
        """End all of it; harmless when it has ended."""
        self._cluster.close()

    def __enter__(self) -> SchedulerClusterCombo:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __del__(self) -> None:
        if hasattr(self, "_cluster"):
            self.shutdown()


_MODULES = (
    "client", "client.client", "client.future", "client.object_reference", "client.serializer", "cluster",
    "cluster.combo",
)  # fmt: skip


def install() -> None:
    """Let other libraries find this module under the name `scaler`, such as parfun's backends; workers of a
    SchedulerClusterCombo that is made afterwards find it too.

    Raises RuntimeError when opengris-scaler has been imported already.

        import gristmill.compat.scaler
        gristmill.compat.scaler.install()
        import parfun
    """
    here = sys.modules[__name__]
    found = sys.modules.get("scaler")
    if found is not None and found is not here:
        raise RuntimeError("expected that nobody has imported scaler; got opengris-scaler: call install() earlier")
    sys.modules["scaler"] = here
    for path in _MODULES:
        module = types.ModuleType(f"scaler.{path}")
        module.__dict__.update({name: value for name, value in vars(here).items() if not name.startswith("__")})
        module.__path__ = []
        sys.modules[module.__name__] = module


__all__ = [
    "CancelledError", "Client", "ClientCancelledException", "ClientQuitException", "ClientShutdownException",
    "DeserializeObjectError", "DisconnectedError", "InvalidStateError", "MissingObjects", "NoWorkerError",
    "ObjectReference", "ObjectStorageException", "ProcessorDiedError", "ScalerFuture", "SchedulerClusterCombo",
    "SchedulerError", "Serializer",
    "TaskExceptionNotSerializableError", "TaskNotFoundError", "TimeoutError", "WorkerDiedError", "__version__",
    "install",
]  # fmt: skip
