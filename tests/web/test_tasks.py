"""Tasks, one task, and events: what the history holds, page by page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from gristmill.protocol.keys import Keys
from support.database import Database
from support.markup import HOSTILE, Text
from support.seeding import Seeding
from support.waiting import wait_until

if TYPE_CHECKING:
    from flask.testing import FlaskClient

WORKER = "mill-1|100|w1|aaaa"
NONE = [None] * 4


def read(page: FlaskClient, path: str) -> Text:
    response = page.get(path)
    assert response.status_code == 200
    return Text(response.text)


def ids(html: str) -> list[str]:
    return re.findall(r'<tr id="task-([^"]+)"', html)


# --- tasks --------------------------------------------------------------------------------------------------


def test_every_task_stands_in_the_table_with_its_figures(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "inactive", 0, "", "shop.price", *NONE, {"tags": ["nightly"]}))
    seeding.changes(("c.0000001", "running", 2, WORKER, "shop.price"))
    seeding.changes(("c.0000001", "failed", 2, WORKER, "shop.price", 1_250_000, 900_000, 41 << 20, "ValueError: no"))
    seeding.changes(("c.0000002", "inactive", 0, "", "shop.tax"))

    text = read(page, "/tasks").text

    assert "c.0000001 shop.price nightly Failed w1 c 2" in text
    assert "1.25 s 900 ms 41 MiB ValueError: no" in text
    assert "c.0000002 shop.tax Inactive" in text
    assert "2 tasks shown, newest first. History holds 2 tasks and 4 changes" in text


def test_the_filter_lies_in_the_address_and_in_that_of_the_fragment(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(
        ("c.0000001", "failed", 1, WORKER, "shop.price", 1, 1, 1, "no"),
        ("c.0000002", "success", 1, WORKER, "shop.price", 1, 1, 1),
        ("c.0000003", "failed", 1, WORKER, "shop.tax", 1, 1, 1, "no"),
    )

    html = page.get("/tasks?state=failed&function=shop.price").text

    assert ids(html) == ["c.0000001"]
    assert 'hx-get="/fragments/tasks?state=failed&amp;function=shop.price"' in html
    # What is typed stands outside of what is polled.
    assert html.index("<form") < html.index('<main id="page"')
    assert '<option value="failed" selected>' in html
    assert ids(page.get("/fragments/tasks?state=failed&function=shop.price").text) == ["c.0000001"]


def test_pages_are_reached_by_links(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(*((f"c.{number:07}", "inactive", 0, "", "f") for number in range(120)))
    seen = []
    path = "/tasks"
    for _ in range(3):
        html = page.get(path).text
        seen += ids(html)
        older = re.search(r'<a rel="next" href="([^"]+)"', html)
        path = older[1].replace("&amp;", "&") if older else ""

    assert seen == [f"c.{number:07}" for number in range(119, -1, -1)]
    assert path == ""


def test_a_task_is_found_by_its_id_or_the_beginning_of_it(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(("k3Jx.0000001", "inactive", 0, "", "f"), ("zzzz.0000001", "inactive", 0, "", "f"))

    assert ids(page.get("/tasks?find=k3").text) == ["k3Jx.0000001"]
    text = read(page, "/tasks?find=k3Jx.0000042").text
    assert "No task of the history fits. Redis may still have its record" in text


@pytest.mark.parametrize(
    "query", ["before=x", "before=-5", "after=99999999999999999999", "from=yesterday", "limit=0", "state=lost", "to=9"]
)
def test_an_address_that_makes_no_sense_shows_the_tasks(page: FlaskClient, seeding: Seeding, query: str) -> None:
    seeding.changes(("c.0000001", "inactive", 0, "", "f"))

    assert ids(page.get(f"/tasks?{query}").text) == ["c.0000001"]


def test_programs_get_the_same_by_pages(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(*((f"c.{number:07}", "success", 1, WORKER, "f", 5, 4, 3) for number in range(5)))

    body = page.get("/api/v1/tasks?limit=3&state=success").get_json()
    rest = page.get(f"/api/v1/tasks?limit=3&state=success&before={body['older']}").get_json()

    assert [row["task"][-1] for row in body["tasks"] + rest["tasks"]] == ["4", "3", "2", "1", "0"]
    assert (body["newer"], rest["older"]) == (None, None)
    assert body["tasks"][0]["duration_us"] == 5
    assert (body["history"]["tasks"], body["history"]["behind"]) == (5, 0)


def test_what_is_new_comes_by_itself_and_what_is_not_new_is_not_sent(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "success", 1, WORKER, "f", 1, 1, 1))
    answer = page.get("/fragments/tasks")
    tag = answer.headers["Page-Tag"]
    assert page.get("/fragments/tasks", headers={"Page-Tag": tag}).status_code == 304

    seeding.changes(("c.0000002", "success", 1, WORKER, "f", 1, 1, 1))
    wait_until(
        lambda: ids(page.get("/fragments/tasks", headers={"Page-Tag": tag}).text) == ["c.0000002", "c.0000001"],
        "the new task is shown",
    )


def test_the_page_asks_redis_nothing_for_a_viewer(page: FlaskClient, seeding: Seeding, database: Database) -> None:
    """The one reader asks; viewers look at what it has read."""
    seeding.changes(("c.0000001", "success", 1, WORKER, "f", 1, 1, 1))
    page.get("/tasks")
    page.application.extensions["gristmill_history"].stop()

    def commands() -> int:
        return int(re.search(r"total_commands_processed:(\d+)", database.run("INFO", "stats").decode())[1])  # type: ignore[index]

    before = commands()
    for _ in range(5):
        page.get("/fragments/tasks")
        page.get("/fragments/events")
        page.get("/fragments/tasks?text=x&worker=y")
    assert commands() - before == 1  # the INFO that asks


# --- one task -----------------------------------------------------------------------------------------------


def test_the_page_of_a_task_tells_its_life(page: FlaskClient, seeding: Seeding, database: Database, keys: Keys) -> None:
    task = "Client0001.0000003"
    about = {"graph": "g1", "key": "sum", "needs": [1]}
    seeding.changes(("Client0001.0000001", "success", 1, WORKER, "shop.load", 1, 1, 1))
    seeding.changes((task, "inactive", 0, "", "shop.price", *NONE, about))
    seeding.changes((task, "running", 1, WORKER, "shop.price"))
    retry = {"event": "ResultFailedRetry"}
    seeding.changes((task, "inactive", 1, "", "shop.price", 250_000, 9, 9, "ValueError: once", retry))
    seeding.changes((task, "running", 2, WORKER, "shop.price"))
    seeding.changes(("Client0001.0000004", "inactive", 0, "", "shop.add", *NONE, {"needs": [3]}))
    seeding.task(task, state="running", worker=WORKER, attempt=2, call="gAWVAAAA", needs="Client0001.0000001")
    failed = ("task", task, "attempt", 1, "worker", WORKER, "traceback", "Traceback: <here>\nValueError: once")
    database.run("XADD", keys.failures(), "*", *failed)

    seen = read(page, f"/tasks/{task}")

    assert "Running shop.price" in seen.text
    assert "Graph g1 , node sum" in seen.text
    assert "Its client submitted it." in seen.text
    assert "It failed and has attempts left. ValueError: once" in seen.text
    assert "Traceback of attempt 1 Traceback: <here> ValueError: once" in seen.text
    assert "6 B, pickled, sha256" in seen.text
    assert re.search(r"It needs .*Client0001.0000001 shop.load Success", seen.text)
    assert re.search(r"It is needed by .*Client0001.0000004 shop.add Inactive", seen.text)
    assert f"HGETALL 'gm:{{{keys.namespace}}}:task:{task}'" in seen.text
    assert re.search(r"state running", seen.text)

    body = page.get(f"/api/v1/tasks/{task}").get_json()
    assert [(one["number"], one["state"], one["error"]) for one in body["attempts"]] == [
        (2, "", ""),
        (1, "inactive", "ValueError: once"),
    ]
    assert body["attempts"][1]["traceback"].startswith("Traceback")
    assert body["needs"] == [{"task": "Client0001.0000001", "state": "success"}]
    assert body["needed_by"] == [{"task": "Client0001.0000004", "state": "inactive"}]
    assert (body["call"]["size"], body["complete"]) == (6, True)


def test_a_task_that_only_redis_knows_is_shown_by_its_record(page: FlaskClient, seeding: Seeding) -> None:
    seeding.lane("python3.11", waiting=3)
    seeding.task("Client0001.0000001")

    text = read(page, "/tasks/Client0001.0000001").text

    assert "Inactive shop.price" in text
    assert "It waits for a worker: number 2 of 3 in lane python3.11." in text
    assert "History does not know how it came here." in text


def test_a_task_that_only_history_knows_is_shown_by_its_story(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "running", 1, WORKER, "f"), ("c.0000001", "success", 1, WORKER, "f", 9, 8, 7))

    text = read(page, "/tasks/c.0000001").text

    assert "Its client submitted it. A worker had room." in text
    assert "A processor sent its value." in text
    assert "There is none: it is deleted when a task has ended" in text


@pytest.mark.parametrize("task", ["c.0000099", "nonsense", "<script>", "a" * 500 + ".0000001"])
def test_an_unknown_task_is_a_404_that_says_so(page: FlaskClient, task: str) -> None:
    response = page.get(f"/tasks/{quote(task)}")

    assert response.status_code == 404
    assert "Unknown task" in response.text
    assert "<script>" not in response.text.replace("<script src", "")
    assert page.get(f"/api/v1/tasks/{quote(task)}").status_code == 404


def test_a_task_costs_at_most_twelve_commands(page: FlaskClient, seeding: Seeding, database: Database) -> None:
    seeding.task("Client0001.0000001", state="running", worker=WORKER)
    page.get("/tasks/Client0001.0000001")
    page.application.extensions["gristmill_history"].stop()

    def commands() -> int:
        return int(re.search(r"total_commands_processed:(\d+)", database.run("INFO", "stats").decode())[1])  # type: ignore[index]

    seeding.task("Client0001.0000002", state="running", worker=WORKER)
    before = commands()
    page.get("/fragments/tasks/Client0001.0000002")
    assert commands() - before - 1 <= 12


# --- events -------------------------------------------------------------------------------------------------


def test_every_change_is_an_event_with_who_and_why(page: FlaskClient, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "inactive", 0, "", "shop.price"))
    seeding.changes(("c.0000001", "running", 1, WORKER, "shop.price"))
    lost = {"event": "WorkerDisconnect", "deaths": 2}
    seeding.changes(("c.0000001", "inactive", 1, "", "shop.price", *NONE, lost))

    text = read(page, "/events").text

    assert re.search(
        r"c\.0000001 Running Inactive WorkerDisconnect 1 c w1 shop.price charged with 2 deaths .*"
        r"c\.0000001 Inactive Running HasCapacity 1 c w1 shop.price .*c\.0000001 \S Inactive Submitted",
        text,
    )


def test_events_are_filtered_and_paged(page: FlaskClient, seeding: Seeding) -> None:
    for number in range(150):
        seeding.changes((f"c.{number:07}", "running", 1, WORKER, "shop.price"))
        seeding.changes((f"c.{number:07}", "success", 1, WORKER, "shop.price", 1, 1, 1))

    html = page.get("/events?state=success").text
    older = re.search(r'<a rel="next" href="([^"]+)"', html)
    assert older is not None
    second = page.get(older[1].replace("&amp;", "&")).text

    assert [len(re.findall(r'<tr id="change-', one)) for one in (html, second)] == [100, 50]
    assert "c.0000149" in html
    assert "c.0000000" in second
    assert "HasCapacity</span>" not in html + second
    body = page.get("/api/v1/events?task=c.0000007").get_json()
    assert [(row["previous"], row["state"]) for row in body["events"]] == [("running", "success"), ("", "running")]


def test_gaps_are_shown_where_they_are(page: FlaskClient, seeding: Seeding, database: Database, keys: Keys) -> None:
    for number in range(5):
        seeding.changes((f"c.{number:07}", "inactive", 0, "", "f"))
    database.run("XTRIM", keys.events(), "MAXLEN", 2)

    seen = read(page, "/events")

    assert re.search(
        r"c\.0000004 .*c\.0000003 .*3 changes are older than what Redis kept when this page was started\.", seen.text
    )
    assert page.get("/api/v1/events").get_json()["gaps"][0]["changes"] == 3


# --- whatever they hold -------------------------------------------------------------------------------------


def test_hostile_text_is_shown_and_does_nothing(
    page: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    about = {"graph": HOSTILE, "key": HOSTILE, "tags": [HOSTILE], "lane": HOSTILE, "event": HOSTILE}
    seeding.changes((HOSTILE, "failed", 1, HOSTILE, HOSTILE, 1, 1, 1, HOSTILE, about))
    seeding.changes(("c.0000001", HOSTILE, 1, HOSTILE, HOSTILE, 1, 1, 1, HOSTILE, about))
    seeding.changes(("c.0000002", "failed", 1, HOSTILE, HOSTILE, 1, 1, 1, HOSTILE, about))
    seeding.task("c.0000002", state=HOSTILE, worker=HOSTILE, options=HOSTILE, name=HOSTILE)
    failed = ("task", "c.0000002", "attempt", 1, "worker", HOSTILE, "traceback", HOSTILE)
    database.run("XADD", keys.failures(), "*", *failed)

    attack = quote(HOSTILE)
    paths = ("/tasks", "/events", "/tasks/c.0000001", "/tasks/c.0000002")
    filters = ("find", "state", "function", "worker", "client", "graph", "tag", "text", "from", "to", "task", "event")
    attacks = [f"{path}?{'&'.join(f'{name}={attack}' for name in filters)}" for path in ("/tasks", "/events")]
    for path in (*paths, *attacks):
        seen = read(page, path)
        assert seen.tags.count("script") <= 2
        assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
        assert "b" not in seen.tags
    for path in (*paths[:2], paths[3]):
        assert "<script>alert(1)</script>" in read(page, path).text


def test_a_megabyte_of_text_is_shown_in_a_page_of_ordinary_size(
    page: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    large = "x" * 1_000_000
    about = {"graph": large, "tags": [large]}
    for number in range(3):
        seeding.changes((f"c.{number:07}", "failed", 1, large, large, 1, 1, 1, large, about))
    failed = ("task", "c.0000001", "attempt", 1, "worker", WORKER, "traceback", large)
    database.run("XADD", keys.failures(), "*", *failed)

    for path in ("/tasks", "/events", "/tasks/c.0000001"):
        assert len(page.get(path).data) < 100_000
