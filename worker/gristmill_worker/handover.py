"""What an agent tells a processor when it starts it: by environment, because command lines can be read by everyone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import orjson

from gristmill.errors import SettingError

if TYPE_CHECKING:
    from gristmill.settings import WorkerSettings

VARIABLE = "GRISTMILL_PROCESSOR"
ADDRESS_VARIABLE = "GRISTMILL_REDIS"
NAMESPACE_VARIABLE = "GRISTMILL_NAMESPACE"


class Handover(NamedTuple):
    """The facts."""

    worker: str
    processor: str
    """The name under which it reads the worker's stream."""
    host: str
    board: int
    """Descriptor of the shared memory."""
    wake: int
    """Descriptor: a byte wakes the agent."""
    leash: int
    """Descriptor that ends when the agent does."""
    stack: int
    """Descriptor of the file for the Python stack of a crash."""
    bell: int
    """Descriptor: a byte ends the standing by."""
    out: int = -1
    """Descriptor of the file for the standard output of tasks whose client wants to see it."""
    error: int = -1
    """The same for standard error."""
    objects: str = ""
    """The folder for files of large objects, which the first who needs it makes."""
    object_cache_bytes: int = 0
    """What the files may take together."""
    preload: str = ""
    log_level: str = "info"
    log_format: str = "plain"
    address: str = ""
    namespace: str = "default"


def handover(worker: str, host: str, address: str, settings: WorkerSettings, objects: Path) -> Handover:
    """What all processors of a worker are told; who starts one adds its name and descriptors."""
    return Handover(
        worker=worker,
        processor="",
        host=host,
        board=-1,
        wake=-1,
        leash=-1,
        stack=-1,
        bell=-1,
        objects=str(objects),
        object_cache_bytes=settings.object_cache_mib << 20,
        preload=settings.preload,
        log_level=settings.log_level,
        log_format=settings.log_format,
        address=address,
        namespace=settings.namespace,
    )


def environment(handover: Handover) -> dict[str, str]:
    """The environment of the processor. Nested clients find address and namespace in it."""
    facts = {name: value for name, value in handover._asdict().items() if name not in ("address", "namespace")}
    return {
        **os.environ,
        VARIABLE: orjson.dumps(facts).decode(),
        ADDRESS_VARIABLE: handover.address,
        NAMESPACE_VARIABLE: handover.namespace,
    }


def take_handover() -> Handover:
    """The processor's side; what its own children need not know is removed from the environment."""
    text = os.environ.pop(VARIABLE, "")
    if not text:
        raise SettingError("expected to be started by a worker's agent; start `gristmill worker` instead")
    handover = Handover(
        **orjson.loads(text), address=os.environ[ADDRESS_VARIABLE], namespace=os.environ[NAMESPACE_VARIABLE]
    )
    for descriptor in (
        handover.board,
        handover.wake,
        handover.leash,
        handover.stack,
        handover.bell,
        handover.out,
        handover.error,
    ):
        os.set_inheritable(descriptor, False)
    return handover
