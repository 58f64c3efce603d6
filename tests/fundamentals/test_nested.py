"""Tasks that submit tasks."""

from __future__ import annotations

from gristmill import Client


def test_a_task_may_submit_tasks_and_wait_for_them(client: Client) -> None:
    def outer(number: int) -> int:
        from gristmill import Client

        with Client() as inner:
            return int(inner.submit(pow, number, 2).result()) + 1

    assert client.submit(outer, 5).result(timeout=60) == 26


def test_a_task_may_map(client: Client) -> None:
    def outer() -> int:
        from gristmill import Client

        with Client() as inner:
            return sum(inner.map(abs, range(-50, 0)))

    assert client.submit(outer).result(timeout=60) == 1275


def test_a_client_that_was_passed_in_works_inside_the_task(client: Client) -> None:
    def outer(given: Client) -> int:
        return int(given.submit(abs, -7).result())

    assert client.submit(outer, client).result(timeout=60) == 7


def test_what_a_nested_client_leaves_unfinished_ends_with_its_task(client: Client) -> None:
    def outer() -> str:
        import time

        from gristmill import Client

        inner = Client()
        inner.submit(time.sleep, 600)
        return inner.client_id

    assert len(client.submit(outer).result(timeout=60)) == 10
