"""Each page shows what lies in Redis, says what to do when there is nothing, and has the same as JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gristmill.protocol.keys import Keys
from gristmill_web.pages import PAGES
from support.database import Database
from support.seeding import Seeding

if TYPE_CHECKING:
    from flask.testing import FlaskClient

WORKER = "mill-1|100|w1|aaaa"
OURS = ("processors", "machines", "clients", "objects", "schedulers", "redis", "audit")
HOSTILE = "<script>alert(1)</script>\"'\n\u202egnp &amp;"


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


@pytest.mark.parametrize("name", OURS)
def test_every_page_says_of_when_its_figures_are(page: FlaskClient, seeding: Seeding, name: str) -> None:
    seeding.worker(WORKER)
    seeding.scheduler("s1")

    assert abs(page.get(f"/api/v1/{name}").get_json()["now"] - seeding.now()) < 60_000


def test_processors_are_shown_per_worker(page: FlaskClient, seeding: Seeding) -> None:
    busy = {"processor": "p1", "pid": 41, "task": "c.0000009", "function": "shop.price", "running_ms": 95_000}
    idle = {"processor": "p2", "pid": 42, "ready": False, "waiting": True, "tasks_done": 1234}
    seeding.worker(WORKER, processors=[busy, idle])
    seeding.worker("mill-2|7|w2|bbbb")

    text = words(page.get("/processors").text)
    assert re.search(r"p1 41 50 % 60 MiB yes yes no shop\.price c\.0000009 1 min 35 s", text)
    assert re.search(r"p2 42 50 % 60 MiB no no yes . . 1,234", text)
    assert "w2" in text

    alone = words(page.get("/processors", query_string={"worker": WORKER}).text)
    assert "p1" in alone
    assert "w2" not in alone
    (row,) = page.get("/api/v1/processors", query_string={"worker": "w1"}).get_json()["workers"]
    assert [one["suspended"] for one in row["processors"]] == [False, True]


def test_machines_add_up_their_workers(page: FlaskClient, seeding: Seeding) -> None:
    seeding.worker(WORKER, assigned=3, held=1, processors=[{"task": "c.0000001", "function": "f"}])
    seeding.worker("mill-1|101|w2|bbbb", assigned=2)
    seeding.worker("mill-2|7|w3|cccc")

    rows = {row["host"]: row for row in page.get("/api/v1/machines?sort=workers&order=down").get_json()["machines"]}

    assert list(rows) == ["mill-1", "mill-2"]
    assert (rows["mill-1"]["workers"], rows["mill-1"]["busy"], rows["mill-1"]["outstanding"]) == (2, 1, 5)
    assert rows["mill-1"]["queued"] == 4
    assert "mill-1" in page.get("/machines").text


def test_clients_say_how_much_is_theirs(page: FlaskClient, seeding: Seeding) -> None:
    seeding.client("Client0001", tasks=3)
    seeding.client("Client0002")
    seeding.database.run("HSET", seeding.keys.client("Client0001"), "last", 9)  # numbers begin with 0
    seeding.changes(("Client0001.0000004", "inactive", 0, "", "f"))
    seeding.changes(
        ("Client0001.0000004", "running", 1, WORKER, "f"), ("Client0001.0000004", "failed", 1, WORKER, "f", 1)
    )

    body = page.get("/api/v1/clients?sort=tasks&order=down").get_json()

    assert [(row["client"], row["unfinished"]) for row in body["clients"]] == [("Client0001", 3), ("Client0002", 0)]
    first = body["clients"][0]
    assert (first["submitted"], first["finished"], first["failed"]) == (10, 7, 1)
    assert [(row["cpu_percent"], row["rss_bytes"]) for row in body["clients"]] == [(None, None)] * 2, "no beat so far"
    assert "Client0002" in page.get("/clients").text


def test_objects_are_shown_by_size(page: FlaskClient, database: Database, keys: Keys) -> None:
    for size, identity in ((500, "Client0001.f1-1"), (3_000_000, "Client0001.c2-3"), (9_000, "Client0002.0000007.1-1")):
        database.run("ZADD", keys.objects(), size, identity)
    database.run("SADD", keys.holders("Client0001.f1-1"), "Client0001", "Client0001.0000001")

    rows = page.get("/api/v1/objects").get_json()["objects"]

    assert [(row["kind"], row["size_bytes"]) for row in rows] == [
        ("call", 3_000_000), ("result", 9_000), ("function", 500)
    ]  # fmt: skip
    assert rows[2]["holders"] == 2
    assert [row["client"] for row in page.get("/api/v1/objects?client=Client0002").get_json()["objects"]] == [
        "Client0002"
    ]
    assert "2.9 MiB" in page.get("/objects").text


def test_schedulers_show_requests_by_kind_and_what_was_refused(page: FlaskClient, seeding: Seeding) -> None:
    seeding.scheduler("s1")
    seeding.scheduler("s2", requests='{"cancel":7}')
    seeding.count(refused__success__TaskCancel=2, repaired__entry_gone=3)

    text = words(page.get("/schedulers").text)

    assert re.search(r"s1 .* 5,000", text)
    assert "success:TaskCancel 2" in text
    assert "entry_gone 3" in text
    assert page.get("/api/v1/schedulers").get_json()["refused"] == {"success:TaskCancel": 2}


def test_redis_shows_streams_with_what_is_pending(page: FlaskClient, database: Database, keys: Keys) -> None:
    database.run("XGROUP", "CREATE", keys.results(), "schedulers", "0", "MKSTREAM")
    for _ in range(3):
        database.run("XADD", keys.results(), "*", "outcomes", "{}")
    database.run("XREADGROUP", "GROUP", "schedulers", "s1", "COUNT", 2, "STREAMS", keys.results(), ">")

    body = page.get("/api/v1/redis").get_json()["redis"]

    lengths = {stream["name"]: (stream["length"], stream["pending"]) for stream in body["streams"]}
    assert lengths["results"] == (3, 2)
    assert lengths["events"] == (0, None)
    assert body["info"]["Memory"]["used_memory"]
    assert "used_memory" in page.get("/redis").text


@pytest.mark.parametrize("name", OURS)
def test_an_empty_page_says_what_to_do(page: FlaskClient, name: str) -> None:
    html = page.get(f"/{name}").text

    assert name == "redis" or 'class="empty"' in html
    assert f"<h1>{name.capitalize()}" in html


def test_hostile_text_is_inert_on_every_page(
    page: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    row = {"task": HOSTILE, "function": HOSTILE, "processor": HOSTILE, "running_ms": 1}
    seeding.worker(WORKER, processors=[row], name=HOSTILE, host=HOSTILE, python=HOSTILE, release=HOSTILE)
    seeding.scheduler(HOSTILE, name=HOSTILE, requests='{"<script>alert(1)</script>":1}')
    seeding.client("Client0001")
    database.run("HSET", keys.client("Client0001"), "name", HOSTILE, "host", HOSTILE, "parent", HOSTILE)
    database.run("ZADD", keys.objects(), 5, HOSTILE)
    orders = ("action", HOSTILE, "target", HOSTILE, "by", HOSTILE, "reason", HOSTILE, "answer", HOSTILE)
    database.run("XADD", keys.audit(), "*", *orders)

    for one in PAGES:
        if "<" in one.path:
            continue
        html = page.get(one.path, query_string={"worker": "", "client": "", "sort": HOSTILE}).text
        assert "<script>alert" not in html
        assert not re.search(r"\s(on\w+|style)=", html)
        assert len(html) < 200_000


@pytest.mark.usefixtures("still_known")
@pytest.mark.parametrize("name", OURS)
def test_a_page_costs_one_short_pipeline_once_the_fleet_is_known(
    page: FlaskClient, seeding: Seeding, database: Database, name: str
) -> None:
    seeding.worker(WORKER)
    seeding.scheduler("s1")
    page.get("/")
    page.application.extensions["gristmill_history"].stop()  # it asks by itself, too

    def commands() -> int:
        return int(database.run("INFO", "stats").decode().partition("total_commands_processed:")[2].split()[0])

    before = commands()
    page.get(f"/fragments/{name}")

    assert commands() - before <= 12 + 2  # HELLO of a new connection, and the INFO that counts
