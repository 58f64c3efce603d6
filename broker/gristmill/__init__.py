"""Gristmill: Python functions on many processes and machines, driven by Redis streams.

    from gristmill import Client, LocalCluster

    with LocalCluster() as cluster, Client(cluster) as client:
        print(client.submit(pow, 2, 10).result())

Everything named here is imported when it is first used, so that `import gristmill` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gristmill._version import __version__

if TYPE_CHECKING:
    from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, CancelledError, as_completed, wait

    from gristmill.client.asynchronous import AsyncClient
    from gristmill.client.client import Client
    from gristmill.client.future import Future
    from gristmill.client.gathering import gather
    from gristmill.client.loading import Profile
    from gristmill.client.printing import OutputLine
    from gristmill.client.references import ObjectReference
    from gristmill.client.serializing import Serializer
    from gristmill.cluster import LocalCluster
    from gristmill.errors import (
        AddressError,
        ClientClosedError,
        ConnectionLostError,
        DeserializationError,
        EmbeddedServerError,
        GristmillError,
        MessageError,
        MissingObjectError,
        ProcessorDiedError,
        ProtectedError,
        QueueFullError,
        RedisRefusedError,
        RemoteError,
        ResultSerializationError,
        SerializationError,
        SettingError,
        SignatureError,
        TaskError,
        TaskExpiredError,
        TaskLostError,
        TaskTimeoutError,
        UnknownTaskError,
        WorkerDiedError,
    )
    from gristmill.protocol.payloads import RemoteTraceback

__all__ = [
    "ALL_COMPLETED",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "AddressError",
    "AsyncClient",
    "CancelledError",
    "Client",
    "ClientClosedError",
    "ConnectionLostError",
    "DeserializationError",
    "EmbeddedServerError",
    "Future",
    "GristmillError",
    "LocalCluster",
    "MessageError",
    "MissingObjectError",
    "ObjectReference",
    "OutputLine",
    "ProcessorDiedError",
    "Profile",
    "ProtectedError",
    "QueueFullError",
    "RedisRefusedError",
    "RemoteError",
    "RemoteTraceback",
    "ResultSerializationError",
    "SerializationError",
    "Serializer",
    "SettingError",
    "SignatureError",
    "TaskError",
    "TaskExpiredError",
    "TaskLostError",
    "TaskTimeoutError",
    "UnknownTaskError",
    "WorkerDiedError",
    "__version__",
    "as_completed",
    "gather",
    "wait",
]

_HOMES = {
    "AsyncClient": "gristmill.client.asynchronous",
    "Client": "gristmill.client.client",
    "Future": "gristmill.client.future",
    "ObjectReference": "gristmill.client.references",
    "OutputLine": "gristmill.client.printing",
    "Profile": "gristmill.client.loading",
    "Serializer": "gristmill.client.serializing",
    "LocalCluster": "gristmill.cluster",
    "gather": "gristmill.client.gathering",
    "RemoteTraceback": "gristmill.protocol.payloads",
    **dict.fromkeys(
        ("ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION", "CancelledError", "as_completed", "wait"),
        "concurrent.futures",
    ),
}
"""Where each name lives; the errors live in `gristmill.errors`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES.get(name, "gristmill.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
