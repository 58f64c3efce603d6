"""Functions: each is serialised once, and again when it is no longer what it was.

A function travels as an object of its own, uploaded once per client. What may be kept:

- what pickle names instead of copying (functions and classes of modules that workers import too): for good;
- a function that cloudpickle copies (of `__main__`, a lambda, a local one) as long as all that it refers to cannot
  change: numbers, text, modules, named functions, other such functions. Each submit compares these by identity;
- anything else (a closure over a list, a global table, a bound method, a partial, a callable object) is serialised
  with every `submit`, because it may have changed, and once for a whole `map`. Equal bytes are uploaded once.

A function object lives as long as the function, or a task that uses it; then Redis is told to free it.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import pickle
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from gristmill.client.leaves import Leaf, Leaves
from gristmill.client.serializer import dump_function
from gristmill.errors import MissingObjectError, SerializationError
from gristmill.protocol import payloads

RECENT_FUNCTIONS = 32
RECENT_BYTES = 64 * 1024
"""The newest functions up to this size are kept although nobody holds them: bound methods are made anew each time."""
NAME_CHARACTERS = 64

CONSTANT_TYPES = frozenset({int, float, complex, bool, str, bytes, type(None), type(...), range})
_ABSENT = object()
_ROOT = object()
"""Stands for the function itself in what it refers to."""


class FunctionObject:
    """A serialised function and what the session knows about it."""

    __slots__ = (
        "__weakref__", "arity", "data", "last_batch", "least", "leaves", "most", "name", "object_id", "released",
        "uploaded",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        data: bytes,
        arity: Arity | None,
        released: deque[tuple[str, int, int]],
        leaves: tuple[Leaf, ...] = (),
    ) -> None:
        self.name = name
        self.data = data
        self.leaves = leaves
        """Large things that it carries, each an object of its own."""
        self.arity = arity
        self.least, self.most = arity.positional_call() if arity is not None else (0, sys.maxsize)
        """How many arguments a call without keywords may have, at least and at most."""
        self.released = released
        """Where ids go that Redis may free, with the last batch that named them and the registration."""
        self.object_id = ""
        self.uploaded = 0
        """The registration in which it was uploaded."""
        self.last_batch = 0

    def __del__(self) -> None:
        if self.object_id:
            self.released.append((self.object_id, self.last_batch, self.uploaded))


class Arity(NamedTuple):
    """Which arguments a plain Python function takes."""

    positional: tuple[str, ...]
    """Names of the parameters that can be given by position."""
    positional_only: int
    required: int
    """How many of them have no default."""
    any_positional: bool
    keyword_only: frozenset[str]
    required_keywords: frozenset[str]
    any_keyword: bool
    bound: int
    """1 for a method: its first parameter is there already."""

    def positional_call(self) -> tuple[int, int]:
        """How many arguments a call without keywords may have; an impossible range when it needs keywords."""
        if self.required_keywords:
            return (1, 0)
        return (
            max(0, self.required - self.bound),
            sys.maxsize if self.any_positional else len(self.positional) - self.bound,
        )

    def accepts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the call can be bound. A False is looked at again by `inspect`, which has the words for it."""
        given = len(args) + self.bound
        if given > len(self.positional) and not self.any_positional:
            return False
        if not kwargs:
            return given >= self.required and not self.required_keywords
        if any(name not in kwargs for name in self.positional[given : self.required]):
            return False
        if self.required_keywords and not self.required_keywords <= kwargs.keys():
            return False
        by_keyword = self.positional[max(given, self.positional_only) :]
        return all(name in by_keyword or name in self.keyword_only for name in kwargs) or (
            self.any_keyword and not any(name in kwargs for name in self.positional[self.positional_only : given])
        )


def arity_of(function: Callable[..., Any]) -> Arity | None:
    """The arity of a plain function or bound method; None for others, whose signature may not tell the truth."""
    bound = 0
    if isinstance(function, types.MethodType):
        function, bound = function.__func__, 1
    if not isinstance(function, types.FunctionType):
        return None
    code = function.__code__
    names = code.co_varnames
    count, keyword_only = code.co_argcount, names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return Arity(
        positional=names[:count],
        positional_only=code.co_posonlyargcount,
        required=count - len(function.__defaults__ or ()),
        any_positional=bool(code.co_flags & inspect.CO_VARARGS),
        keyword_only=frozenset(keyword_only),
        required_keywords=frozenset(keyword_only) - frozenset(function.__kwdefaults__ or ()),
        any_keyword=bool(code.co_flags & inspect.CO_VARKEYWORDS),
        bound=bound,
    )


def check_arguments(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise TypeError when the call cannot be bound to the function's own parameters, not those it was wrapped for."""
    try:
        inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}(): {error}") from None
    except ValueError:  # no signature after all
        pass


def check_call(
    function: Callable[..., Any], called: FunctionObject, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise TypeError when a function whose parameters are known does not take these arguments."""
    if (kwargs or not called.least <= len(args) <= called.most) and (
        called.arity is not None and not called.arity.accepts(args, kwargs)
    ):
        check_arguments(function, called.name, args, kwargs)


def name_of(function: Callable[..., Any]) -> str:
    """The name that people see: without the place where a local function was made."""
    if isinstance(function, functools.partial):
        return f"partial({name_of(function.func)})"[:NAME_CHARACTERS]
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return payloads.escaped(str(name).rpartition("<locals>.")[2][-NAME_CHARACTERS:])


def refuse_unsuitable(function: Any) -> None:
    """Raise TypeError for what cannot be a task: not callable, a coroutine function, a generator function."""
    if not callable(function):
        raise TypeError(f"expected a function to call; got {type(function).__qualname__}: {str(function)[:100]!r}")
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = getattr(type(inner), "__call__", inner)  # noqa: B004 - not whether, but which
    name = name_of(function)
    if inspect.iscoroutinefunction(inner):
        raise TypeError(
            f"expected a plain function; got the coroutine function {name}, whose call only makes a coroutine; "
            "submit a function that runs it with asyncio.run"
        )
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise TypeError(
            f"expected a plain function; got the generator function {name}, whose call only makes a generator; "
            "submit a function that returns list(...) of it"
        )


# --- what may be kept -------------------------------------------------------------------------------------


class Unchanged(NamedTuple):
    """What a copied function refers to, to be compared by identity; without itself, so that it can go."""

    names: list[tuple[dict[str, Any], str, Any]]
    functions: list[tuple[Any, Any, Any, Any, tuple[Any, ...]]]
    """Function, code, defaults, defaults of keywords, what its cells hold."""

    def holds(self, root: Any) -> bool:
        """Whether all that `root` refers to is still the same."""
        for namespace, name, value in self.names:
            if namespace.get(name, _ABSENT) is not (root if value is _ROOT else value):
                return False
        for function, code, defaults, keyword_defaults, contents in self.functions:
            looked_at = root if function is _ROOT else function
            if (
                looked_at.__code__ is not code
                or looked_at.__defaults__ is not defaults
                or looked_at.__kwdefaults__ is not keyword_defaults
            ):
                return False
            if contents and not self._hold(looked_at.__closure__, contents, root):
                return False
        return True

    @staticmethod
    def _hold(cells: tuple[Any, ...], contents: tuple[Any, ...], root: Any) -> bool:
        try:
            return all(
                cell.cell_contents is (root if value is _ROOT else value)
                for cell, value in zip(cells, contents, strict=True)
            )
        except ValueError:  # emptied
            return False


def is_named(function: Any) -> bool:
    """Whether pickle names it instead of copying it."""
    if getattr(function, "__module__", None) in ("__main__", None):
        return False
    if isinstance(function, types.BuiltinFunctionType) and not isinstance(function.__self__, types.ModuleType):
        return False  # a bound method of a built-in object
    cloudpickle = sys.modules.get("cloudpickle")
    if cloudpickle is not None and function.__module__.partition(".")[0] in {
        name.partition(".")[0] for name in cloudpickle.list_registry_pickle_by_value()
    }:
        return False
    try:
        found: Any = sys.modules[function.__module__]
        for part in function.__qualname__.split("."):
            found = getattr(found, part)
    except (AttributeError, KeyError):
        return False
    return found is function


def unchanging(function: types.FunctionType) -> Unchanged | None:
    """What to compare before the copy of a function is used again; None when part of it can change unseen."""
    look = _Look(function)
    return look.found if look.at(function) else None


class _Look:
    """A walk over everything that a function refers to."""

    def __init__(self, root: types.FunctionType) -> None:
        self.root = root
        self.found = Unchanged([], [])
        self._seen: set[int] = set()

    def at(self, function: types.FunctionType) -> bool:
        """Note what a function refers to. Answers False when part of it can change unseen."""
        if id(function) in self._seen:
            return True
        self._seen.add(id(function))
        if function.__dict__:
            return False
        try:
            contents = [cell.cell_contents for cell in function.__closure__ or ()]
        except ValueError:  # not yet bound: it will be
            return False
        self.found.functions.append(
            (
                self._named(function),
                function.__code__,
                function.__defaults__,
                function.__kwdefaults__,
                tuple(map(self._named, contents)),
            )
        )
        values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *contents]
        for name in _names_in(function.__code__):
            value = function.__globals__.get(name, _ABSENT)
            self.found.names.append((function.__globals__, name, self._named(value)))
            if value is not _ABSENT:
                values.append(value)
        return all(self._is_constant(value) for value in values)

    def _named(self, value: Any) -> Any:
        return _ROOT if value is self.root else value

    def _is_constant(self, value: Any) -> bool:
        kind = type(value)
        if kind in CONSTANT_TYPES or kind is types.ModuleType:
            return True
        if kind is tuple or kind is frozenset:
            return all(self._is_constant(item) for item in value)
        if (inspect.isroutine(value) or inspect.isclass(value)) and is_named(value):
            return True
        return kind is types.FunctionType and self.at(value)


def _names_in(code: types.CodeType) -> set[str]:
    """Every global name that the code may use, and names of attributes with them: one too many does no harm."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


# --- the functions of one client --------------------------------------------------------------------------


class Functions:
    """The functions of one client, by identity and by content."""

    def __init__(self) -> None:
        self.released: deque[tuple[str, int, int]] = deque()
        self.leaves = Leaves(self.released)
        self.upload: Callable[[Leaf], object] = lambda leaf: True
        """Uploads a leaf, unless it is there already."""
        self._kept: dict[int, tuple[weakref.ref[Any], FunctionObject, Unchanged | None]] = {}
        """By id of the function; what is here may be used again, if its `Unchanged` holds."""
        self._alive: dict[int, tuple[weakref.ref[Any], FunctionObject]] = {}
        """By id of a function that is serialised each time: keeps its object alive as long as it lives itself."""
        self._contents: weakref.WeakValueDictionary[tuple[Any, ...], FunctionObject] = weakref.WeakValueDictionary()
        self._recent: deque[FunctionObject] = deque(maxlen=RECENT_FUNCTIONS)

    def get(self, function: Callable[..., Any]) -> FunctionObject:
        """The function's object; serialises it when it must. Raises SerializationError or TypeError."""
        kept = self._kept.get(id(function))
        if kept is not None and (kept[2] is None or kept[2].holds(function)):
            return kept[1]
        return self._add(function)

    def get_whole(self, function: Callable[..., Any]) -> FunctionObject:
        """The same; large things that it carries are looked at whole, since they may have changed."""
        return self._add(function, whole=True)

    def clear(self) -> None:
        """Keep no function that no task uses."""
        self._kept.clear()
        self._alive.clear()
        self._recent.clear()
        self.leaves.clear()

    def _add(self, function: Callable[..., Any], *, whole: bool = False) -> FunctionObject:
        refuse_unsuitable(function)
        name = name_of(function)
        data, leaves = _dump(function, name, self.leaves, whole=whole)
        for leaf in leaves:
            self.upload(leaf)
        key = (name, data if len(data) < 256 else hashlib.sha256(data).digest(), leaves)
        found = self._contents.get(key)
        if found is None:
            found = FunctionObject(name, data, arity_of(function), self.released, leaves)
            self._contents[key] = found
            if len(data) <= RECENT_BYTES and not leaves:  # large things go when nobody holds them any more
                self._recent.append(found)
        named = is_named(function)
        unchanged = unchanging(function) if not named and isinstance(function, types.FunctionType) else None
        identity = id(function)
        try:
            if named or unchanged is not None:
                kept = self._kept
                kept[identity] = (weakref.ref(function, lambda _: kept.pop(identity, None)), found, unchanged)
            else:
                self._kept.pop(identity, None)
                alive = self._alive
                alive[identity] = (weakref.ref(function, lambda _: alive.pop(identity, None)), found)
        except TypeError:  # cannot be referred to weakly: it is serialised each time
            pass
        return found


def _dump(function: Callable[..., Any], name: str, leaves: Leaves, *, whole: bool) -> tuple[bytes, tuple[Leaf, ...]]:
    if is_named(function):
        try:
            return pickle.dumps(function, payloads.PICKLE_PROTOCOL), ()
        except Exception:  # cloudpickle may know a way
            pass
    try:
        return dump_function(leaves, function, whole=whole)
    except (SerializationError, MissingObjectError):
        raise
    except Exception as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else payloads.text_of_exception(error)
        raise SerializationError(
            f"the function {name} cannot be serialised: {type(error).__name__}: {reason}; "
            "what it closes over, or refers to, must be something that pickle can take"
        ) from error
