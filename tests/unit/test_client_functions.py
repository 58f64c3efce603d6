"""Functions: serialised once while they cannot have changed, and refused in words when they cannot be tasks."""

from __future__ import annotations

import functools
import gc
import math
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from gristmill.client.functions import Functions, arity_of, check_arguments, is_named, name_of
from gristmill.client.future import Future
from gristmill.errors import SerializationError


@pytest.fixture
def functions() -> Functions:
    return Functions()


def of_main(source: str, **names: Any) -> Callable[..., Any]:
    """A function as a script defines it: of `__main__`, with globals of its own."""
    space: dict[str, Any] = {"__name__": "__main__", **names}
    exec(source, space)  # the way to get a function whose globals the test can change
    found: Callable[..., Any] = space["task"]
    return found


def value(data: bytes, *args: Any) -> Any:
    return cloudpickle.loads(data)(*args)


def test_a_named_function_is_serialised_once(functions: Functions) -> None:
    assert functions.get(math.sqrt) is functions.get(math.sqrt)
    assert value(functions.get(math.sqrt).data, 4) == 2
    assert is_named(math.sqrt)
    assert is_named(functools.reduce)


def test_a_function_of_main_is_copied_once_while_nothing_it_refers_to_changes(functions: Functions) -> None:
    task = of_main("def task(x): return x * factor", factor=2)
    first = functions.get(task)

    assert functions.get(task) is first
    assert value(first.data, 4) == 8


def test_a_function_is_copied_again_when_a_global_that_it_uses_has_changed(functions: Functions) -> None:
    task = of_main("def task(x): return x * factor", factor=2)
    functions.get(task)
    task.__globals__["factor"] = 3

    assert value(functions.get(task).data, 4) == 12


def test_a_function_is_copied_again_when_one_that_it_calls_has_changed(functions: Functions) -> None:
    task = of_main("def part(x): return x + step\ndef task(x): return part(x)", step=1)
    assert value(functions.get(task).data, 1) == 2
    task.__globals__["step"] = 10

    assert value(functions.get(task).data, 1) == 11


def test_a_mutable_global_is_looked_at_with_every_call(functions: Functions) -> None:
    table = {"factor": 2}
    task = of_main("def task(x): return x * table['factor']", table=table)
    functions.get(task)
    table["factor"] = 5

    assert value(functions.get(task).data, 4) == 20


def test_a_closure_over_a_list_is_looked_at_with_every_call(functions: Functions) -> None:
    seen = [1]

    def task() -> list[int]:
        return seen

    assert value(functions.get(task).data) == [1]
    seen.append(2)
    assert value(functions.get(task).data) == [1, 2]


def test_a_closure_over_a_number_is_copied_once_until_it_is_rebound(functions: Functions) -> None:
    number = 1

    def task() -> int:
        return number

    first = functions.get(task)
    assert functions.get(task) is first
    number = 2
    assert value(functions.get(task).data) == 2


def test_changed_defaults_are_seen(functions: Functions) -> None:
    task: Any = of_main("def task(x=1): return x")
    assert value(functions.get(task).data) == 1
    task.__defaults__ = (7,)

    assert value(functions.get(task).data) == 7


def test_equal_bytes_are_one_object(functions: Functions) -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self, number: int) -> int:
            return self.count + number

    counter = Counter()
    first = functions.get(counter.add)
    assert functions.get(counter.add) is first
    counter.count = 5
    assert functions.get(counter.add) is not first


def test_two_lambdas_are_two_functions(functions: Functions) -> None:
    assert functions.get(lambda: 1) is not functions.get(lambda: 2)


def test_an_object_is_released_when_the_function_and_its_tasks_are_gone(functions: Functions) -> None:
    functions._recent = functions._recent.__class__(maxlen=0)
    big = b"x" * 100_000

    def make() -> Callable[[], int]:
        return lambda: len(big)

    task = make()
    found = functions.get(task)
    found.object_id, found.uploaded, found.last_batch = "abc.f1-1", 1, 4
    del found
    gc.collect()
    assert not functions.released
    del task
    gc.collect()
    assert list(functions.released) == [("abc.f1-1", 4, 1)]


def test_a_function_that_refers_to_itself_can_go(functions: Functions) -> None:
    functions._recent = functions._recent.__class__(maxlen=0)

    def make() -> Callable[[int], int]:
        def count(number: int) -> int:
            return 0 if number == 0 else 1 + count(number - 1)

        return count

    task = make()
    first = functions.get(task)
    assert functions.get(task) is first
    first.object_id = "abc.f1-1"
    del first, task
    gc.collect()
    assert [name for name, *_ in functions.released] == ["abc.f1-1"]


def test_functions_that_only_make_coroutines_or_generators_are_refused(functions: Functions) -> None:
    async def coroutine() -> None:
        pass

    def generator() -> Any:
        yield 1

    class Awaiting:
        async def __call__(self) -> None:
            pass

    for refused, word in (
        (coroutine, "coroutine"),
        (functools.partial(coroutine), "coroutine"),
        (Awaiting(), "coroutine"),
        (generator, "generator"),
    ):
        with pytest.raises(TypeError, match=f"expected a plain function; got the {word} function"):
            functions.get(refused)


def test_what_cannot_be_called_is_refused(functions: Functions) -> None:
    with pytest.raises(TypeError, match="expected a function to call; got int"):
        functions.get(3)  # type: ignore[arg-type]


def test_a_function_that_cannot_be_serialised_says_why(functions: Functions) -> None:
    lock = threading.Lock()

    def holds_a_lock() -> object:
        return lock

    with pytest.raises(SerializationError, match=r"holds_a_lock cannot be serialised.*lock"):
        functions.get(holds_a_lock)


def test_an_unfinished_future_in_a_closure_is_refused_with_advice(functions: Functions) -> None:
    future = Future()

    with pytest.raises(SerializationError, match="pass it to the task as an argument"):
        functions.get(lambda: future)


def test_names_are_those_that_people_know() -> None:
    def inner() -> None:
        pass

    assert name_of(inner) == "inner"
    assert name_of(math.sqrt) == "sqrt"
    assert name_of(functools.partial(math.pow, 2)) == "partial(pow)"
    assert name_of("x".join) == "str.join"


def signature_cases() -> list[Callable[..., Any]]:
    def plain(a, b=1): ...  # type: ignore[no-untyped-def]
    def many(a, *rest): ...  # type: ignore[no-untyped-def]
    def keywords(a, *, b, c=1): ...  # type: ignore[no-untyped-def]
    def positional(a, /, b, **rest): ...  # type: ignore[no-untyped-def]
    def nothing(): ...  # type: ignore[no-untyped-def]

    class Holder:
        def method(self, a, b=2): ...  # type: ignore[no-untyped-def]

    return [plain, many, keywords, positional, nothing, Holder().method]


@pytest.mark.parametrize("function", signature_cases(), ids=lambda function: function.__name__)
def test_the_arity_agrees_with_what_python_says(function: Callable[..., Any]) -> None:
    arity = arity_of(function)
    assert arity is not None
    for count in range(4):
        for kwargs in ({}, {"a": 1}, {"b": 1}, {"c": 1}, {"z": 1}, {"b": 1, "c": 1}, {"a": 1, "b": 2}):
            args = tuple(range(count))
            try:
                function(*args, **kwargs)
            except TypeError:
                possible = False
            else:
                possible = True
            if possible:
                assert arity.accepts(args, kwargs), (args, kwargs)
            if not kwargs:
                assert (arity.positional_call()[0] <= count <= arity.positional_call()[1]) == possible
            if not arity.accepts(args, kwargs):
                with pytest.raises(TypeError):
                    check_arguments(function, "it", args, kwargs)


def test_a_wrapper_is_asked_what_it_takes_itself() -> None:
    def wrapped(connection: object, number: int) -> int:
        return number

    @functools.wraps(wrapped)
    def wrapper(*args: Any) -> int:
        return wrapped(None, *args)

    arity = arity_of(wrapper)
    assert arity is not None
    assert arity.accepts((1,), {})
