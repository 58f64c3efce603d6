"""The timeline page: rows of workers, bars of what they did and do, and the charts below."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gristmill.protocol.keys import Keys
from support.database import Database
from support.markup import HOSTILE, Text
from support.seeding import Seeding
from support.waiting import wait_until

if TYPE_CHECKING:
    from flask.testing import FlaskClient

WORKER = "mill-1|100|w1|aaaa"


def read(page: FlaskClient, path: str = "/timeline") -> Text:
    response = page.get(path)
    assert response.status_code == 200
    return Text(response.text)


def show_workers(page: FlaskClient, text: str = "w1") -> str:
    """The page, once the fleet has been looked at."""

    def shown() -> str:
        html = page.get("/timeline").text
        return html if text in html else ""

    return wait_until(shown, "the worker has a row")


def test_a_bar_says_what_it_stands_for(page: FlaskClient, seeding: Seeding) -> None:
    seeding.worker(WORKER)
    seeding.changes(("c.0000001", "success", 1, WORKER, "shop.price", 30_000_000, 1, 1))
    seeding.changes(("c.0000002", "failed", 1, WORKER, "shop.tax", 20_000_000, 1, 1, "no"))
    html = show_workers(page)

    assert re.search(r'<rect class="bar-success"[^>]*><title>shop.price · 30 s · Success · c.0000001</title>', html)
    assert re.search(
        r'<rect class="bar-failed"[^>]*><title>shop.tax · 20 s · Failed · c.0000002</title></rect>\s*'
        r'<rect fill="url\(#cross\)"',
        html,
    )
    assert "The last 5 minutes of 1 worker: 1 succeeded, 1 failed, 0 canceled; 0 running now." in html


def test_what_executes_is_drawn_up_to_now_and_what_is_queued_is_not(page: FlaskClient, seeding: Seeding) -> None:
    row = {"task": "c.0000001", "function": "shop.price", "running_ms": 400_000}
    seeding.changes(("c.0000001", "running", 1, WORKER, "shop.price"), ("c.0000002", "running", 1, WORKER, "shop.tax"))
    seeding.worker(WORKER, seen_ms_ago=0, processors=[row])
    html = show_workers(page)

    titles = re.findall(r'class="bar-running"[^>]*><title>([^<]*)', html)
    assert len(titles) == 1
    assert re.fullmatch(r"shop.price · 6 min \d+ s · Running · c.0000001", titles[0])
    assert "1 running now" in html


def test_a_task_that_was_assigned_since_the_last_heartbeat_executes(page: FlaskClient, seeding: Seeding) -> None:
    seeding.worker(WORKER, seen_ms_ago=900, processors=[{}])
    seeding.changes(("c.0000001", "running", 1, WORKER, "shop.price"), ("c.0000002", "running", 1, WORKER, "shop.tax"))
    html = show_workers(page)

    assert re.findall(r'class="bar-running"[^>]*><title>(\S+)', html) == ["shop.price"]


def test_a_canceled_task_that_had_begun_is_black_with_slashes(page: FlaskClient, seeding: Seeding) -> None:
    seeding.worker(WORKER)
    seeding.changes(("c.0000001", "running", 1, WORKER, "f"), ("c.0000002", "running", 1, WORKER, "g"))
    seeding.changes(("c.0000001", "canceling", 1, WORKER, "f"))
    seeding.changes(("c.0000001", "canceled", 1, WORKER, "f", 0, 0, 0))
    seeding.changes(("c.0000002", "canceled", 1, WORKER, "g", 0, 0, 0))
    html = show_workers(page)

    assert "0 failed, 1 canceled" in html
    assert 'fill="url(#slash)"' in html


@pytest.mark.parametrize(("colour", "words"), [("function", ["shop.price", "shop.tax"]), ("capability", ["gpu"])])
def test_bars_are_coloured_by_function_or_capability(
    page: FlaskClient, seeding: Seeding, colour: str, words: list[str]
) -> None:
    seeding.worker(WORKER)
    about = [None] * 4 + [{"lane": "gpu"}]
    seeding.changes(("c.0000001", "inactive", 0, "", "shop.price", *about))
    for task, function in (("c.0000001", "shop.price"), ("c.0000002", "shop.tax")):
        seeding.changes((task, "running", 1, WORKER, function))
        seeding.changes((task, "success", 1, WORKER, function, 9_000_000, 1, 1))
    show_workers(page)

    html = page.get(f"/timeline?colour={colour}").text
    legend = html[html.index('class="legend"') :]
    assert len(set(re.findall(r'<rect class="bar-other" fill="(hsl[^"]+)" x=', html))) == 2
    for word in words:
        assert word in legend


def test_workers_that_have_gone_are_shown_as_long_as_the_viewer_wants(
    page: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.worker(WORKER)
    seeding.worker("mill-1|200|w2|bbbb")
    show_workers(page, "w2")
    database.run("ZREM", keys.workers(), WORKER)

    wait_until(lambda: 'class="row gone"' in page.get("/timeline").text, "the worker is shown as gone")
    page.post("/settings", data={"gone": "0"}, headers={"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"})
    assert 'class="row gone"' not in page.get("/timeline").text


def test_rows_come_by_name_fifty_a_page(page: FlaskClient, seeding: Seeding) -> None:
    for number in range(60):
        seeding.worker(f"mill-1|{number}|w{number}|r")
    show_workers(page, "w49")

    first, second = page.get("/timeline").text, page.get("/timeline?page=2").text

    names = [re.findall(r'class="row-name"[^>]*>(w\d+)', html) for html in (first, second)]
    assert names[0] + names[1] == [f"w{number}" for number in range(60)]
    assert len(names[0]) == 50
    assert read(page, "/timeline?page=999").text.count("Page 2 of 2") == 1


def test_a_timeline_in_which_nothing_happens_is_not_sent_again(page: FlaskClient, seeding: Seeding) -> None:
    seeding.worker(WORKER)
    seeding.changes(("c.0000001", "success", 1, "", "f", 1, 1, 1))
    show_workers(page)

    def unchanged() -> bool:
        tag = page.get("/fragments/timeline").headers["Page-Tag"]
        return page.get("/fragments/timeline", headers={"Page-Tag": tag}).status_code == 304

    wait_until(unchanged, "an idle timeline is answered without a body")


def test_it_can_be_exported_as_a_chrome_trace(page: FlaskClient, seeding: Seeding) -> None:
    seeding.worker(WORKER)
    seeding.changes(("c.0000001", "success", 1, WORKER, "shop.price", 2_000_000, 1, 1))
    html = show_workers(page)
    link = re.search(r'href="([^"]+)" download="gristmill-trace.json"', html)
    assert link is not None

    trace = page.get(link[1].replace("&amp;", "&")).get_json()

    assert [(event["ph"], event["name"]) for event in trace["traceEvents"]] == [
        ("M", "process_name"),
        ("X", "shop.price"),
    ]
    assert trace["traceEvents"][1]["dur"] == 2_000_000


def test_memory_and_cpu_are_drawn_below(page: FlaskClient, seeding: Seeding) -> None:
    seeding.worker(WORKER, processors=[{}])
    seeding.changes(("c.0000001", "success", 1, WORKER, "shop.price", 9_000_000, 1, 2 << 30))
    show_workers(page)

    text = read(page).text
    assert "added up (area): at most 2.0 GiB" in text
    assert "heartbeats (dashed): 100 MiB now" in text
    assert "100 % is one core: 52 % now" in text
    body = page.get("/api/v1/timeline").get_json()
    assert max(used for _, used in body["memory"]) == 2 << 30
    assert body["fleet"][-1]["cpu_percent"] == 52.5
    assert body["spans"][0]["task"] == "c.0000001"


@pytest.mark.parametrize("query", ["window=7", "colour=red", "scale=x", "page=-1", "worker=nobody", "store=1e9"])
def test_an_address_that_makes_no_sense_shows_the_timeline(page: FlaskClient, query: str) -> None:
    assert page.get(f"/timeline?{query}").status_code == 200


def test_without_workers_it_says_how_to_start_one(page: FlaskClient) -> None:
    assert "gristmill worker --redis ADDRESS" in read(page).text


def test_hostile_text_is_shown_and_does_nothing(page: FlaskClient, seeding: Seeding) -> None:
    worker = "mill|1|<b onclick=x>|<script>"
    about = [None] * 4 + [{"lane": HOSTILE}]
    seeding.changes(("c.0000001", "inactive", 0, "", HOSTILE, *about))
    seeding.changes(("c.0000001", "success", 1, worker, HOSTILE, 9_000_000, 1, 1))
    seeding.changes((HOSTILE, "failed", 1, worker, HOSTILE, 9_000_000, 1, 1, HOSTILE))

    for path in ("/timeline", "/timeline?colour=function", "/timeline?colour=capability", f"/timeline?worker={worker}"):
        seen = read(page, path)
        assert seen.tags.count("script") <= 2
        assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
    assert "<script>alert(1)</script>" in read(page, "/timeline?colour=function").text
