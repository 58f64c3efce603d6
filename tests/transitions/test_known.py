"""known: a client that had to register anew is told which of its tasks there are not, behind every outcome."""

from __future__ import annotations

import pytest

from gristmill.protocol.kinds import Request
from support.driver import Driver, PlayedClient


@pytest.fixture
def client(driver: Driver) -> PlayedClient:
    return driver.client()


def ask(client: PlayedClient, *numbers: object, registration: int = 1) -> str:
    body = {"client": client.id, "registration": registration, "tasks": list(numbers)}
    return client.driver.request(Request.KNOWN, body)


def test_tasks_without_a_record_are_named(client: PlayedClient) -> None:
    client.submit(1, 3)
    assert ask(client, 1, 2, 3, 4) == "applied"

    assert client.told("lost") == [{"tasks": [2, 4], "of": [1, 2, 3, 4]}]


def test_what_ended_is_named_behind_its_outcome(driver: Driver, client: PlayedClient) -> None:
    worker = driver.worker(1)
    client.submit(1)
    worker.read()
    worker.succeed(client.task(1))
    ask(client, 1)

    kinds = [kind for kind, _ in client.inbox()]
    assert kinds.index("outcomes") < kinds.index("lost")
    assert client.told("lost")[0]["tasks"] == [1]


def test_one_of_an_earlier_registration_is_void(client: PlayedClient) -> None:
    client.register(registration=2)

    assert ask(client, 1, registration=1) == "unknown"
    assert client.told("lost") == []


def test_who_is_not_registered_is_told_nothing(driver: Driver) -> None:
    for registration in ({"registration": 1}, {}):
        body = {"client": "nobody", **registration, "tasks": [1]}
        assert driver.request(Request.KNOWN, body) == "unknown"


def test_a_client_that_has_ended_is_told_nothing(driver: Driver, client: PlayedClient) -> None:
    client.disconnect()
    driver.settle()

    assert ask(client, 1) == "unknown"
    assert client.inbox() == []


def test_a_list_without_form_is_set_aside(driver: Driver, client: PlayedClient) -> None:
    assert ask(client, *range(501)) == "malformed"
    assert ask(client, "one", 2.5, 3) == "applied"

    assert client.told("lost") == [{"tasks": [3], "of": [3]}]
    assert len(driver.quarantine()) == 3
