"""check_clients: a client whose inbox has vanished is made to register anew."""

from __future__ import annotations

from gristmill.protocol.keys import Keys
from support.database import Database
from support.driver import Driver, PlayedClient


def test_only_the_record_of_a_client_without_an_inbox_goes(driver: Driver, database: Database, keys: Keys) -> None:
    deaf, other, ended = (driver.client() for _ in range(3))
    for client in (deaf, other, ended):
        client.submit(1)
    ended.disconnect()
    driver.settle()
    database.run("XTRIM", keys.client_inbox(other.id), "MAXLEN", 0)
    database.run("DEL", keys.client_inbox(deaf.id))
    driver.duty("check_clients", f"{deaf.id} {other.id} {ended.id} nobody")

    assert deaf.record() == {}
    assert other.record()
    assert "ended" in ended.record()
    assert driver.counts()["repaired:inbox"] == 1
    assert again(driver, deaf) == [1]


def again(driver: Driver, client: PlayedClient) -> list[int]:
    """It registers anew and asks: what is there is not named."""
    client.register(registration=2)
    body = {"client": client.id, "registration": 2, "tasks": [1, 2]}
    driver.request("known", body, "cancels")
    (told,) = client.told("lost")
    return [number for number in told["of"] if number not in told["tasks"]]
