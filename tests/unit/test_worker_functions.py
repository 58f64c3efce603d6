"""Functions are shared between tasks only when no task can leave anything behind in them."""

from __future__ import annotations

import functools
import math
import os.path
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from gristmill_worker import functions
from gristmill_worker.functions import Function, Functions, MeanDuration
from support import tasks

LIMIT = 3
SEEN: list[int] = []


def sent(function: Any) -> Function:
    return Function(cloudpickle.dumps(function))


def by_value(name: str, source: str) -> Callable[..., Any]:
    """A function as it comes out of somebody's `__main__`."""
    namespace: dict[str, Any] = {"__name__": "__main__", "math": math, "LIMIT": LIMIT, "SEEN": SEEN}
    exec(source, namespace)
    found: Callable[..., Any] = namespace[name]
    return found


PLAIN = [
    by_value("f", "f = lambda x: x + 1"),
    by_value("f", "def f(x, y=(1, 'a', None)): return math.sqrt(x) + LIMIT"),
    by_value("f", "def helper(x): return x\ndef f(x): return helper(x)"),
    by_value("f", "def f(n): return n and f(n - 1)"),
    tasks.add,
    math.sqrt,
    len,
    os.path.join,
    dict,
]
NOT_PLAIN = [
    by_value("f", "def f(x, seen=[]): seen.append(x); return len(seen)"),
    by_value("f", "def f(x, *, seen={}): return seen"),
    by_value("f", "def f(x): SEEN.append(x); return len(SEEN)"),
    by_value("f", "def f(x):\n global LIMIT\n LIMIT += x\n return LIMIT"),
    by_value("f", "def f(x):\n def g():\n  global LIMIT\n  LIMIT += x\n return g()"),
    by_value("f", "def make(n):\n def inner(): return n\n return inner\nf = make([1])"),
    by_value("f", "def f(): pass\nf.calls = 0"),
    functools.partial(tasks.add, 1),
    tasks.Counter(1).plus,
    tasks.Counter(1),
    [].append,
]


@pytest.mark.parametrize("function", PLAIN)
def test_a_plain_function_is_loaded_once(function: Any) -> None:
    kept = sent(function)

    assert kept.load() is kept.load()


@pytest.mark.parametrize("function", NOT_PLAIN)
def test_every_other_is_loaded_for_each_task(function: Any) -> None:
    kept = sent(function)

    assert kept.load() is not kept.load()


def test_loading_raises_what_unpickling_raises() -> None:
    with pytest.raises(pickle.UnpicklingError):
        Function(b"\x80\x05X").load()


class TestKeeping:
    def test_the_longest_unused_is_forgotten_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(functions, "KEPT_FUNCTIONS", 2)
        kept = Functions()
        first = kept.add(b"a", b"1")
        kept.add(b"b", b"2")
        assert kept.get(b"a") is first
        kept.add(b"c", b"3")

        assert kept.get(b"b") is None
        assert kept.get(b"a") is first

    def test_large_ones_make_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(functions, "KEPT_BYTES", 100)
        kept = Functions()
        kept.add(b"a", b"x" * 60)
        kept.add(b"b", b"x" * 60)

        assert kept.get(b"a") is None
        assert kept.get(b"b") is not None


class TestMeanDuration:
    def test_the_first_one_counts_only_until_the_second(self) -> None:
        mean = MeanDuration()
        assert mean.mean_ns is None
        mean.add(50_000_000)
        assert mean.mean_ns == 50_000_000
        mean.add(1000)
        assert mean.mean_ns == 1000
        mean.add(2000)
        assert mean.mean_ns == 1250
