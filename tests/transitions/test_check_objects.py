"""check_objects: what nobody holds gets a lifetime."""

from __future__ import annotations

import pytest

from gristmill.protocol.keys import Keys
from support.database import Database
from support.driver import Driver


def test_what_somebody_needs_stays(driver: Driver, database: Database, keys: Keys) -> None:
    client = driver.client()
    call = client.object("c1", b"a", b"b")
    client.submit(2, [1, 0, None, {"object": call, "size": 2}])
    fresh = client.object("f9")
    before = driver.snapshot()
    driver.duty("check_objects", f"{client.function} {call} {fresh} nonsense none.f1-1")

    assert driver.snapshot() == before
    assert database.lifetime_ms(keys.object(call)) == -1
    assert "repaired:object" not in driver.counts()


def test_a_holder_that_is_gone_holds_nothing(driver: Driver, database: Database, keys: Keys) -> None:
    client = driver.client()
    client.submit(1)
    database.run("SADD", keys.holders(client.function), "somebody.0000001", "somebody")
    driver.duty("check_objects", client.function)

    assert database.set(keys.holders(client.function)) == {client.id}
    assert driver.counts()["repaired:holder"] == 2


@pytest.mark.parametrize("name", ["c7", "r7", "f7"])
def test_an_object_without_a_holder_expires_with_all_its_parts(
    driver: Driver, database: Database, keys: Keys, name: str
) -> None:
    client = driver.client()
    orphan = client.object(name, b"a", b"b")
    for key in (keys.object(orphan), keys.object_chunk(orphan, "1")):
        database.run("PERSIST", key)
    database.run("ZADD", keys.objects(), 2, orphan)
    driver.duty("check_objects", orphan)

    assert database.lifetime_ms(keys.object(orphan)) > 0
    assert database.lifetime_ms(keys.object_chunk(orphan, "1")) > 0
    assert driver.counts()["repaired:object"] == 1
    assert orphan not in database.zset(keys.objects())
