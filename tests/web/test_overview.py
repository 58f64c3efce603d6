"""The overview shows what lies in Redis, whole and as the fragment that is polled."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from flask import Flask

from gristmill.protocol.keys import Keys
from gristmill.snapshot import SHOWN_STATES
from support.database import Database
from support.markup import HOSTILE, Text
from support.seeding import Seeding
from support.waiting import wait_until

if TYPE_CHECKING:
    from flask.testing import FlaskClient

MakeApp = Callable[..., Flask]
WORKER = "mill-1|100|w1|aaaa"


def read(page: FlaskClient, path: str = "/") -> Text:
    response = page.get(path)
    assert response.status_code == 200
    return Text(response.text)


def test_counts_workers_schedulers_and_the_newest_tasks_are_on_one_page(page: FlaskClient, seeding: Seeding) -> None:
    seeding.count(state__inactive=12345, state__success=7)
    row = {"task": "c.0000009", "function": "shop.price", "running_ms": 95_000}
    seeding.worker(WORKER, assigned=5, held=2, room=8, processors=[row, {}])
    seeding.scheduler("s1")
    seeding.changes(("c.0000001", "failed", 1, WORKER, "shop.tax", 1200, 900, 1 << 20, "ValueError: no"))

    text = read(page).text

    assert "12,345 Inactive" in text
    assert re.search(
        r"w1 mill-1 :100 shop\.price 1 min 35 s 2 % 40 MiB 100 % 120 MiB 42 % 3 5 3 0 400 µs 111 \d\d:\d\d:\d\d", text
    )
    assert (
        "s1 mill-1:4711 CPU 12 % Memory 33 MiB Memory free 5.0 GiB Loop lag 800 µs Requests 310 /s Scripts 306 /s"
        in text
    )
    assert "Requests applied tasks 5,000 · outcomes 4,900" in text
    assert re.search(r"c\.0000001 shop\.tax Failed w1 c 1 .*1\.2 ms 900 µs 1\.0 MiB ValueError: no", text)


def test_the_fragment_and_the_whole_page_show_the_same_regions(page: FlaskClient, seeding: Seeding) -> None:
    seeding.worker(WORKER)
    seeding.scheduler("s1")
    seeding.changes(("c.0000001", "running", 1, WORKER, "shop.tax"))

    def regions(html: str) -> list[str]:
        return re.findall(r'<section id="(\w+)"', html)

    whole, fragment = page.get("/").text, page.get("/fragments/overview").text

    assert regions(fragment) == regions(whole) == ["alerts", "strip", "schedulers", "workers", "tasks"]
    assert "<html" in whole
    assert "<html" not in fragment


def test_alerts_appear_only_when_they_are_true(
    page: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    assert "No scheduler is running" in read(page).text

    seeding.scheduler("s1")
    seeding.worker(WORKER)
    wait_until(lambda: "No scheduler is running" not in read(page).text, "the alert has gone")

    seeding.lane("gpu,python3.11", waiting=3)
    database.run("SET", keys.intake(), "10 tasks wait")
    wait_until(lambda: "no worker has gpu" in read(page).text, "the missing capability is named")
    assert "New tasks are refused: 10 tasks wait." in read(page).text


def test_the_title_says_the_news_in_the_page_and_in_the_fragment(page: FlaskClient, seeding: Seeding) -> None:
    assert "<title>1 error · Gristmill" in page.get("/").text

    seeding.scheduler("s1")
    seeding.worker(WORKER)
    seeding.count(state__running=1234)
    wait_until(lambda: "<title>1,234 running" in page.get("/fragments/overview").text, "the title has the news")


def test_what_is_empty_says_what_to_do(page: FlaskClient) -> None:
    text = read(page).text

    assert "gristmill worker --redis ADDRESS" in text
    assert "gristmill scheduler --redis ADDRESS" in text
    assert "No task has been submitted." in text


def test_it_can_be_read_without_javascript(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "running", 1, WORKER, "shop.tax"))
    html = page.get("/").text

    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in html
    assert "c.0000001" in html
    assert 'content="5"' not in _with_cookie(page, "paused=1")
    # Everything that leads somewhere is a link, every button sends a form.
    assert not re.search(r'<button[^>]*type="button"', html)


def _with_cookie(page: FlaskClient, cookie: str) -> str:
    page.set_cookie("gristmill_settings", cookie)
    return page.get("/").text


def test_hostile_text_is_shown_and_does_nothing(
    page: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    row = {"task": HOSTILE, "function": HOSTILE, "running_ms": 1}
    seeding.worker(WORKER, processors=[row], name=HOSTILE, host=HOSTILE)
    seeding.scheduler(HOSTILE)
    seeding.changes((HOSTILE, "failed", 1, HOSTILE, HOSTILE, 1, 1, 1, HOSTILE))
    seeding.changes(("c.0000002", HOSTILE, 1, HOSTILE, HOSTILE, 1, 1, 1, HOSTILE))
    seeding.lane(HOSTILE, waiting=1)
    database.run("SET", keys.intake(), HOSTILE)

    for path in ("/", "/fragments/overview", "/?function=%3Cscript%3E&state=%3Cscript%3E&sort=%22%3E%3Cscript%3E"):
        html = page.get(path).text
        seen = Text(html)
        assert "<script>alert" not in html
        assert seen.tags.count("script") <= 2
        assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
    assert "<script>alert(1)</script>" in read(page).text


def test_a_megabyte_of_text_is_shown_in_a_page_of_ordinary_size(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "failed", 1, WORKER, "f" * 1_000_000, 1, 1, 1, "e" * 1_000_000))

    assert len(page.get("/").data) < 100_000


def test_a_page_past_the_end_shows_the_last_one(page: FlaskClient, seeding: Seeding) -> None:
    for number in range(60):
        seeding.worker(f"mill-1|{number}|w{number}|r")

    text = read(page, "/?page=999").text

    assert "Page 2 of 2" in text
    assert "w59" in text
    assert "w10 " not in text


@pytest.mark.parametrize("query", ["page=-1", "page=x", "page=9999999999", "sort=password", "order=up", "state=lost"])
def test_an_address_that_makes_no_sense_shows_the_ordinary_page(page: FlaskClient, query: str) -> None:
    assert page.get(f"/?{query}").status_code == 200


def test_sorting_lies_in_the_address_and_in_that_of_the_fragment(page: FlaskClient, seeding: Seeding) -> None:
    seeding.worker("mill-1|1|w1|r", assigned=1)
    seeding.worker("mill-1|2|w2|r", assigned=7)

    html = page.get("/?sort=queued&order=down").text

    assert html.index("w2</a>") < html.index("w1</a>")
    assert 'hx-get="/fragments/overview?sort=queued&amp;order=down"' in html
    assert 'aria-sort="descending"' in html


def test_a_count_leads_to_the_tasks_in_that_state(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "failed", 1, WORKER, "shop.tax"), ("c.0000002", "success", 1, WORKER, "shop.price"))

    link = re.search(r'id="count-failed"[^>]* href="([^"]+)"', page.get("/").text)

    assert link is not None
    assert "c.0000001" in page.get(link[1]).text
    assert "c.0000002" not in page.get(link[1]).text


def test_a_worker_that_was_met_is_shown_for_a_while_when_it_has_gone(
    page: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.worker(WORKER)
    assert "expired" not in read(page).text

    database.run("ZREM", keys.workers(), WORKER)
    database.run("HSET", keys.worker(WORKER), "gone", "expired")

    wait_until(lambda: re.search(r"w1 expired mill-1", read(page).text), "the worker is shown as expired")


def test_the_json_has_what_the_page_shows(page: FlaskClient, seeding: Seeding) -> None:
    seeding.count(state__running=3)
    seeding.worker(WORKER, assigned=5, held=2, room=8)
    seeding.changes(("c.0000001", "success", 1, WORKER, "shop.tax", 10, 10, 10))

    response = page.get("/api/v1/overview")

    assert response.mimetype == "application/json"
    body = response.get_json()
    assert (body["version"], body["problem"]) == (1, "")
    overview = body["overview"]
    assert set(overview["counts"]["states"]) == set(SHOWN_STATES)
    assert overview["counts"]["states"]["running"] == 3
    assert [(row["name"], row["queued"], row["free"]) for row in overview["workers"]["rows"]] == [("w1", 3, 3)]
    assert [row["task"] for row in body["tasks"]] == ["c.0000001"]


@pytest.mark.usefixtures("still_known")
def test_many_who_look_at_the_same_cost_one_reading_a_tick(
    make_app: MakeApp, database: Database, seeding: Seeding
) -> None:
    page = make_app(refresh_seconds=600).test_client()
    seeding.scheduler("s1")

    def readings() -> int:
        info = database.run("INFO", "commandstats").decode()
        return int(re.search(r"cmdstat_hmget:calls=(\d+)", info)[1])  # type: ignore[index]

    page.get("/")
    page.application.extensions["gristmill_history"].stop()  # it looks at the fleet by itself, too
    before = readings()
    for _ in range(5):
        page.get("/fragments/overview")
    assert readings() - before <= 2


def test_what_is_sent_is_compressed_for_those_who_can_read_it(page: FlaskClient, seeding: Seeding) -> None:
    for number in range(50):
        seeding.worker(f"mill-1|{number}|w{number}|r")

    plain = page.get("/fragments/overview")
    packed = page.get("/fragments/overview", headers={"Accept-Encoding": "br, gzip"})

    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.headers["Vary"] == "Accept-Encoding"
    assert len(packed.data) < len(plain.data) / 8
    assert "Content-Encoding" not in plain.headers
    assert b"w49" in gzip.decompress(packed.data)
