"""What a task raises, its future raises."""

from __future__ import annotations

import traceback

import pytest

from gristmill import Client, RemoteError, ResultSerializationError, TaskError
from support import tasks


def printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_an_exception_comes_back_with_its_type_and_message(client: Client) -> None:
    with pytest.raises(ValueError, match="no such thing"):
        client.submit(tasks.raise_value_error, "no such thing").result()


def test_an_exception_can_be_asked_for(client: Client) -> None:
    error = client.submit(tasks.raise_value_error, "x").exception()

    assert type(error) is ValueError
    assert error.args == ("x",)


def test_the_remote_traceback_is_printed_with_it(client: Client) -> None:
    error = client.submit(tasks.raise_value_error, "x").exception()
    assert error is not None
    text = printed(error)

    assert "support/tasks.py" in text
    assert "in raise_value_error" in text
    assert "raise ValueError(message)" in text


def test_the_traceback_of_a_lambda_names_its_line(client: Client) -> None:
    error = client.submit(lambda: 1 / 0).exception()
    assert error is not None

    assert "<lambda>" in printed(error)


def test_the_exception_before_it_is_printed_too(client: Client) -> None:
    error = client.submit(tasks.raise_while_handling).exception()
    assert error is not None
    text = printed(error)

    assert "KeyError: 'first'" in text
    assert "ValueError: second" in text
    assert "direct cause" in text


def test_an_exception_of_a_class_of_the_script(client: Client) -> None:
    class OwnError(Exception):
        pass

    def fail() -> None:
        raise OwnError("mine")

    error = client.submit(fail).exception()

    assert type(error).__name__ == "OwnError"
    assert str(error) == "mine"


def test_an_exception_that_cannot_be_rebuilt_is_described(client: Client) -> None:
    error = client.submit(tasks.raise_two_arguments_error).exception()

    assert isinstance(error, RemoteError)
    assert "TwoArgumentsError" in str(error)
    assert "this and that" in str(error)


def test_an_exception_that_cannot_be_pickled_is_described(client: Client) -> None:
    error = client.submit(tasks.raise_lock_holding_error).exception()

    assert isinstance(error, RemoteError)
    assert "LockHoldingError" in str(error)
    assert "holds a lock" in str(error)


def test_a_task_that_exits_raises_an_ordinary_exception(client: Client) -> None:
    for function, arguments, name in (
        (tasks.raise_system_exit, (0,), "SystemExit"),
        (tasks.raise_system_exit, (1,), "SystemExit"),
        (tasks.raise_keyboard_interrupt, (), "KeyboardInterrupt"),
    ):
        error = client.submit(function, *arguments).exception()
        assert isinstance(error, Exception)
        assert name in str(error)
    assert client.submit(abs, -1).result() == 1


@pytest.mark.parametrize("function", [tasks.return_a_lock, lambda: (number for number in range(3))])
def test_a_result_that_cannot_be_pickled_says_so(client: Client, function: object) -> None:
    error = client.submit(function).exception()  # type: ignore[arg-type]

    assert isinstance(error, ResultSerializationError)
    assert "lock" in str(error) or "generator" in str(error)


def test_a_process_that_crashes_fails_its_task_and_nothing_else(client: Client) -> None:
    futures = [client.submit(abs, -number) for number in range(20)]
    error = client.submit(tasks.exit_at_once, 3).exception()

    assert isinstance(error, TaskError)
    assert type(error).__name__ == "ProcessorDiedError"
    assert client.gather(futures) == list(range(20))


def test_failing_tasks_leave_the_others_alone(client: Client) -> None:
    def fail_on_odd(number: int) -> int:
        if number % 2:
            raise ValueError(number)
        return number

    futures = [client.submit(fail_on_odd, number) for number in range(100)]

    assert [future.result() for future in futures[::2]] == list(range(0, 100, 2))
    assert all(isinstance(future.exception(), ValueError) for future in futures[1::2])
