"""end_client: one slice of clearing a client that has gone."""

from __future__ import annotations

from gristmill.protocol.kinds import Request
from support.driver import Driver, write_object


def test_nothing_of_it_is_left_but_a_record_that_expires(driver: Driver) -> None:
    client = driver.client()
    client.submit(1)
    client.submit(2, batch=5)
    client.disconnect()
    driver.settle()

    left = [key for key in driver.database.keys(driver.keys.prefix) if client.id in key]
    assert left == [driver.keys.client(client.id)]
    assert driver.database.lifetime_ms(driver.keys.client(client.id)) > 0
    assert driver.database.zset(driver.keys.clients()) == {}


def test_a_held_task_is_asked_for_and_ends_without_a_trace(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2)
    worker.read()
    client.disconnect()
    driver.settle()
    assert driver.state(client.task(1)) == "canceling"
    assert driver.state(client.task(2)) == ""

    worker.confirm(client.task(1), "canceled")
    assert driver.record(client.task(1)) == {}


def test_a_held_task_that_ran_on_ends_without_a_trace(driver: Driver) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    client.disconnect()
    driver.settle()
    worker.confirm(client.task(1), "failed")
    worker.succeed(client.task(1))

    assert driver.record(client.task(1)) == {}
    assert not driver.database.exists(driver.keys.client_inbox(client.id))


def test_a_client_whose_lease_ends_is_cleared_likewise(driver: Driver) -> None:
    client = driver.client(lease_ms=1_000)
    client.submit(1)
    driver.database.run("ZADD", driver.keys.clients(), -1, client.id)
    driver.duty("sweep", 1000)
    driver.settle()

    assert driver.state(client.task(1)) == ""
    assert "ended" in client.record()


def test_many_tasks_and_objects_are_cleared_in_slices(driver: Driver) -> None:
    client = driver.client()
    functions = [[write_object(driver, f"{client.id}.g{number}", b"x"), "f"] for number in range(250)]
    for start in range(1, 1001, 100):
        client.submit(*range(start, start + 100), functions=[[client.function, "f"], *functions])
    client.disconnect()
    words = driver.settle()

    slices = [word for kind, word in words if kind == "end_client"]
    assert len(slices) >= 10
    assert set(slices) == {"applied"}
    assert driver.database.keys(driver.keys.object("")) == []


def test_what_it_sends_later_is_dropped(driver: Driver) -> None:
    client = driver.client()
    client.disconnect()
    driver.settle()
    before = driver.snapshot()

    assert client.submit(1) == "unknown"
    assert driver.snapshot() == before


def test_the_tasks_of_others_go_on(driver: Driver) -> None:
    client, other = driver.client(), driver.client()
    client.submit(1, 2)
    other.submit(1, 2)
    client.disconnect()
    driver.settle()

    assert driver.ready() == [other.task(1), other.task(2)]


def test_a_client_that_nobody_knows_is_no_trouble(driver: Driver) -> None:
    assert driver.request(Request.END_CLIENT, {"client": "nobody"}) == "applied"
    assert driver.record("nobody") == {}


def test_a_client_without_a_record_gets_none(driver: Driver) -> None:
    driver.request(Request.END_CLIENT, {"client": "nobody"})

    assert not driver.database.exists(driver.keys.client("nobody"))


def test_tasks_that_need_much_are_cleared_in_slices(driver: Driver) -> None:
    client = driver.client()
    needed = [client.task(number) for number in range(1, 21)]
    client.submit(*range(1, 21))
    client.submit(*([100 + n, 0, "AAAA", {"dependencies": needed}] for n in range(70)), after=client.batch)
    driver.send(Request.END_CLIENT, {"client": client.id})
    (entry,) = driver.read("continued")
    driver.apply_entry("continued", entry)
    assert driver.database.keys(driver.keys.task("")) != [], "one slice does not do all of it"
    driver.settle()

    assert driver.database.keys(driver.keys.task("")) == []
