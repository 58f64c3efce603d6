"""What is polled: unchanged fragments are answered without a body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill_web.pages import PAGES
from support.database import Database
from support.seeding import Seeding
from support.waiting import wait_until

if TYPE_CHECKING:
    from flask.testing import FlaskClient


def test_an_unchanged_fragment_is_answered_without_a_body(
    page: FlaskClient, seeding: Seeding, database: Database
) -> None:
    seeding.scheduler("s1")
    seeding.worker("mill-1|100|w1|aaaa")
    answer = page.get("/fragments/overview")

    def unchanged() -> bool:
        nonlocal answer
        before, read = answer.headers["Page-Tag"], answer.headers["Page-Time"]
        answer = page.get("/fragments/overview", headers={"Page-Tag": before})
        return answer.status_code == 304 and answer.headers["Page-Time"] != read

    wait_until(unchanged, "another reading shows the same")
    assert answer.data == b""
    tag = answer.headers["Page-Tag"]

    seeding.count(state__running=1)
    wait_until(
        lambda: page.get("/fragments/overview", headers={"Page-Tag": tag}).status_code == 200, "a change is sent"
    )


def test_every_page_has_its_fragment_and_its_json(page: FlaskClient) -> None:
    for one in PAGES:
        path = one.path if one.path != "/" else "/overview"
        if "<" not in path:
            assert page.get(one.path).status_code == 200
            assert page.get(f"/fragments{path}").headers["Page-Tag"]
            body = page.get(f"/api/v1{path}").get_json()
            assert (body["version"], body["problem"]) == (1, "")
