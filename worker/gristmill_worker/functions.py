"""The functions that a processor has met: as bytes, and loaded where no task can see what another did to them."""

from __future__ import annotations

import opcode
import pickle
import sys
from collections import OrderedDict
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from gristmill.protocol.buffers import Buffer, LeafUnpickler, split_objects
from gristmill_worker.files import Opened

KEPT_FUNCTIONS = 1000
KEPT_BYTES = 64 << 20
"""Functions beyond these, longest unused first, are forgotten and read from Redis again when needed."""

MEAN_WEIGHT = 0.25
"""Weight of the newest duration in a mean."""

_ATOMS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_CHANGES_GLOBALS = frozenset(opcode.opmap[name] for name in ("STORE_GLOBAL", "DELETE_GLOBAL"))


class MeanDuration:
    """The mean of the latest durations, in ns; None before the first."""

    __slots__ = ("_first", "mean_ns")

    def __init__(self) -> None:
        self.mean_ns: float | None = None
        self._first = True

    def add(self, duration_ns: int) -> None:
        """A task has taken so long. The first one, which may have imported modules, counts only until the second."""
        mean = self.mean_ns
        if mean is None:
            self.mean_ns = duration_ns
        elif self._first:
            self._first = False
            self.mean_ns = duration_ns
        else:
            self.mean_ns = mean + MEAN_WEIGHT * (duration_ns - mean)


class Function:
    """One function, by the object it came in."""

    __slots__ = ("_plain", "data", "duration", "objects", "opened")

    def __init__(self, data: Buffer) -> None:
        self.objects, self.data = split_objects(data)
        """The objects that it names, and its pickle."""
        self.opened: Opened | None = None
        """These objects, while a task executes."""
        self.duration = MeanDuration()
        """Of its tasks here."""
        self._plain: Any = None

    @property
    def shared(self) -> bool:
        """Whether all tasks share one callable; known once it has been loaded."""
        return self._plain is not None

    def load(self) -> Any:
        """The callable: the same for every task when it is plain, else one of its own; raises what loading raises."""
        if self._plain is not None:
            return self._plain
        if self.objects:  # not kept: what is large goes when no task uses it
            leaves = self.opened.leaves() if self.opened is not None else None
            return LeafUnpickler(self.data, _no_value, leaves).load()
        loaded = pickle.loads(self.data)
        if is_plain(loaded):
            self._plain = loaded
        return loaded


def _no_value(task: str) -> Any:
    raise pickle.UnpicklingError(f"expected a function; got one that stands for the value of task {task}")


class Functions:
    """The functions that were used last."""

    def __init__(self) -> None:
        self._functions: OrderedDict[bytes, Function] = OrderedDict()
        self._bytes = 0

    def get(self, object_id: bytes) -> Function | None:
        """The function that came in this object, or None when it must be read from Redis."""
        function = self._functions.get(object_id)
        if function is not None:
            self._functions.move_to_end(object_id)
        return function

    def add(self, object_id: bytes, data: Buffer) -> Function:
        """Keep a function that was read from Redis."""
        while self._functions and (len(self._functions) >= KEPT_FUNCTIONS or self._bytes + len(data) > KEPT_BYTES):
            _, former = self._functions.popitem(last=False)
            self._bytes -= len(former.data)
        self._bytes += len(data)
        function = self._functions[object_id] = Function(data)
        return function


def is_plain(value: object, _depth: int = 0) -> bool:
    """Whether calling it cannot leave anything behind in it: then all tasks may share one.

    Plain are builtins, classes and functions of modules that were imported by name (their state is the process's
    own), and functions sent by value without closure, attributes, mutable defaults or mutable globals.
    """
    if isinstance(value, BuiltinFunctionType):
        owner = value.__self__
        return owner is None or isinstance(owner, (ModuleType, type))
    if isinstance(value, (type, FunctionType)) and _is_imported(value):
        return True
    if not isinstance(value, FunctionType) or _depth > 4:
        return False
    defaults = (value.__defaults__ or ()) + tuple((value.__kwdefaults__ or {}).values())
    if value.__closure__ or value.__dict__ or not all(map(_is_atom, defaults)) or _changes_globals(value.__code__):
        return False
    return all(
        name.startswith("__") or other is value or isinstance(other, ModuleType) or _is_atom(other)
        or is_plain(other, _depth + 1)
        for name, other in value.__globals__.items()
    )  # fmt: skip


def _is_imported(value: Any) -> bool:
    """Whether the module that it names has it under its name, so that it was pickled by reference."""
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def _is_atom(value: object) -> bool:
    return isinstance(value, _ATOMS) or (isinstance(value, (tuple, frozenset)) and all(map(_is_atom, value)))


def _changes_globals(code: CodeType) -> bool:
    """Whether the code, or code inside it, assigns global names."""
    return not _CHANGES_GLOBALS.isdisjoint(code.co_code[::2]) or any(
        _changes_globals(constant) for constant in code.co_consts if isinstance(constant, CodeType)
    )
