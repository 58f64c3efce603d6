"""What may be called: anything that can be pickled, and what cloudpickle adds to it."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest

from gristmill import Client, SerializationError
from support import tasks


def test_a_function_of_a_module(client: Client) -> None:
    assert client.submit(tasks.add, 1, 2).result() == 3


def test_a_builtin(client: Client) -> None:
    assert client.submit(sum, [1, 2, 3]).result() == 6


def test_a_function_written_in_c(client: Client) -> None:
    assert client.submit(math.hypot, 3, 4).result() == 5


def test_a_class(client: Client) -> None:
    assert client.submit(complex, 1, 2).result() == 1 + 2j


def test_a_lambda(client: Client) -> None:
    assert client.submit(lambda number: number + 1, 1).result() == 2


def test_a_closure_brings_what_it_has_caught(client: Client) -> None:
    offset = 40

    def plus_offset(number: int) -> int:
        return number + offset

    assert client.submit(plus_offset, 2).result() == 42


def test_a_closure_brings_what_it_has_caught_at_the_time_of_its_submit(client: Client) -> None:
    caught = [1]
    first = client.submit(lambda: caught[0])
    first.result()
    caught[0] = 2

    assert client.submit(lambda: caught[0]).result() == 2


def test_a_closure_that_was_changed_is_another_function(client: Client) -> None:
    caught = [1]

    def read() -> int:
        return caught[0]

    assert client.submit(read).result() == 1
    caught[0] = 2
    assert client.submit(read).result() in (1, 2)


def test_two_lambdas_of_one_line_are_two_functions(client: Client) -> None:
    first, second = (lambda: "first"), (lambda: "second")

    assert (client.submit(first).result(), client.submit(second).result()) == ("first", "second")


def test_a_partial(client: Client) -> None:
    assert client.submit(functools.partial(pow, 2), 5).result() == 32


def test_a_partial_with_keywords(client: Client) -> None:
    assert client.submit(functools.partial(int, base=2), "101").result() == 5


def test_a_bound_method_brings_its_object(client: Client) -> None:
    assert client.submit(tasks.Counter(10).plus, 5).result() == 15


def test_a_method_of_a_builtin_object(client: Client) -> None:
    assert client.submit("a-b".split, "-").result() == ["a", "b"]


def test_an_object_that_can_be_called(client: Client) -> None:
    assert client.submit(tasks.Counter(10), 5).result() == 50


def test_an_operator_object(client: Client) -> None:
    assert client.submit(operator.itemgetter(1), "abc").result() == "b"


def test_keyword_only_arguments(client: Client) -> None:
    def only(*, left: int, right: int = 1) -> int:
        return left - right

    assert client.submit(only, left=5).result() == 4
    assert client.submit(only, left=5, right=2).result() == 3


def test_a_function_that_calls_itself(client: Client) -> None:
    def factorial(number: int) -> int:
        return 1 if number < 2 else number * factorial(number - 1)

    assert client.submit(factorial, 10).result() == 3628800


def test_a_decorated_function(client: Client) -> None:
    def twice(function: Callable[[int], int]) -> Callable[[int], int]:
        @functools.wraps(function)
        def wrapper(number: int) -> int:
            return function(function(number))

        return wrapper

    @twice
    def plus_one(number: int) -> int:
        return number + 1

    assert client.submit(plus_one, 1).result() == 3


def test_a_function_over_a_class_of_the_script(client: Client) -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    def move(point: Point) -> Point:
        return Point(point.x + 1)

    assert client.submit(move, Point(1)).result().x == 2


# --- what belongs to the caller is raised at once -----------------------------------------------------------


def test_what_cannot_be_called_is_refused_at_once(client: Client) -> None:
    with pytest.raises(TypeError, match="expected a function to call; got int"):
        client.submit(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, 2, 3), {}), ((1,), {"third": 2}), ((), {})],
    ids=["few", "many", "odd", "none"],
)
def test_arguments_that_the_function_does_not_take_are_refused_at_once(
    client: Client, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match="add"):
        client.submit(tasks.add, *args, **kwargs)


def test_an_argument_that_cannot_be_pickled_is_named(client: Client) -> None:
    with pytest.raises(SerializationError, match="second"):
        client.submit(tasks.add, 1, second=tasks.return_a_lock())


def test_a_positional_argument_that_cannot_be_pickled_is_named(client: Client) -> None:
    with pytest.raises(SerializationError, match="positional argument 2 of add"):
        client.submit(tasks.add, 1, tasks.return_a_lock())


def test_a_function_that_cannot_be_pickled_is_refused_at_once(client: Client) -> None:
    lock = tasks.return_a_lock()

    with pytest.raises(SerializationError):
        client.submit(lambda: lock)


def test_the_item_of_a_map_that_cannot_be_pickled_is_named(client: Client) -> None:
    items: list[object] = [*range(500), tasks.return_a_lock(), *range(500)]

    with pytest.raises(SerializationError, match="item 500"):
        client.map(tasks.echo, items)


def test_a_coroutine_function_is_refused_with_its_kind(client: Client) -> None:
    async def coroutine() -> None: ...

    with pytest.raises(TypeError, match=r"coroutine|async"):
        client.submit(coroutine)


def test_a_generator_function_is_refused_with_its_kind(client: Client) -> None:
    with pytest.raises(TypeError, match="generator"):
        client.submit(tasks.return_a_generator)
