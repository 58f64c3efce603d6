"""The page in a real browser: what people rely on while it is polled five times a second."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from gristmill.protocol.keys import Keys
from gristmill_web.pages import PAGES
from support.browser import Browser, BrowserError, Tab
from support.database import Database
from support.pageprogram import PageProgram
from support.seeding import Seeding
from support.server import RedisServer, free_port
from support.waiting import wait_until

NAMESPACE = "browser"
WORKER = "mill-1|100|w1|aaaa"
HOSTILE = "<script>alert(1)</script>\"'\n\u202egnp &amp;"
PATHS = [one.path for one in PAGES if "<" not in one.path]
PATHS += ["/settings", "/tasks/Client0001.0000001", "/tasks/Client0001.0000002", "/graphs/g1"]
POLLS = 20


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(shared_server: RedisServer) -> Iterator[PageProgram]:
    """The page with actions, over the shared Redis."""
    program = PageProgram(shared_server.address, NAMESPACE, "--actions")
    yield program
    program.stop()


@pytest.fixture
def keys() -> Keys:
    return Keys(NAMESPACE)


@pytest.fixture
def seeding(database: Database, keys: Keys) -> Seeding:
    return Seeding(database, keys)


@pytest.fixture
def busy(seeding: Seeding, database: Database, keys: Keys, site: PageProgram) -> Seeding:
    """An installation with something on every page, hostile names among it; the page has seen it."""
    row = {"task": "Client0001.0000001", "function": "shop.price", "processor": "p1", "running_ms": 1500}
    for number in range(1, 13):
        seeding.worker(f"mill-{number % 3}|{number}|w{number}|r", assigned=2, held=1, processors=[row])
    seeding.worker(WORKER, name=HOSTILE, host=HOSTILE, processors=[{"task": HOSTILE, "function": HOSTILE}])
    seeding.worker("mill-9|9|late|r", seen_ms_ago=60_000)
    seeding.scheduler("s1")
    seeding.client("Client0001", tasks=2)
    seeding.task("Client0001.0000001", state="running", worker=WORKER)
    seeding.lane("gpu,python3.11", waiting=3)
    seeding.count(state__running=4100, state__success=7, state__failed=1)
    graph = {"graph": "g1", "key": HOSTILE, "needs": [2], "tags": [HOSTILE]}
    seeding.changes(("Client0001.0000001", "inactive", 0, "", "shop.price", *[None] * 4, graph))
    seeding.changes(("Client0001.0000001", "running", 1, WORKER, "shop.price"))
    seeding.changes(
        ("Client0001.0000002", "failed", 1, WORKER, HOSTILE, 1200, 900, 1 << 20, HOSTILE),
        ("Client0001.0000003", "success", 1, WORKER, "shop.price", 1200, 900, 1 << 20),
    )
    database.run("ZADD", keys.objects(), 3 << 20, "Client0001.c1-3", 500, "Client0001.f1-1")
    orders = ("action", "cancel", "target", HOSTILE, "by", "ada", "reason", HOSTILE, "answer", "running")
    database.run("XADD", keys.audit(), "*", *orders)
    for page, part, rows in (
        ("processors", "total", 14),
        ("clients", "total", 1),
        ("objects", "total", 2),
        ("graphs", "total", 1),
    ):
        wait_until(lambda page=page, part=part, rows=rows: _json(site, page).get(part) == rows, f"{page} are shown")  # type: ignore[misc]
    # The last of what has happened: who knows one graph may not have read the rest.
    wait_until(lambda: _json(site, "tasks?find=Client0001.0000003").get("tasks"), "all that has happened is known")
    return seeding


def _json(site: PageProgram, page: str) -> dict[str, Any]:
    try:
        answer = urllib.request.urlopen(f"{site.address}/api/v1/{page}", timeout=60)
    except urllib.error.HTTPError as error:
        if error.code != 503:  # which says that it has not read everything yet
            raise
        answer = error
    with answer:
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    tab = browser.open(width=1280)
    yield tab
    tab.close()


def polls(tab: Tab) -> int:
    return tab.requests("/fragments/")


def poll(tab: Tab, seeding: Seeding, times: int = POLLS) -> None:
    """Let so many polls pass, each of which brings another page."""
    for number in range(times):
        seeding.count(state__running=1)
        if number < 5:
            seeding.worker(f"mill-8|{number}|before{number}|r")
        before = polls(tab)
        wait_until(lambda before=before: polls(tab) > before, "the page is polled")  # type: ignore[misc]


def test_what_is_typed_focus_scroll_and_open_details_survive_polling(
    tab: Tab, site: PageProgram, busy: Seeding
) -> None:
    tab.view(height=500)
    tab.go(f"{site.address}/processors")
    tab.run("document.querySelectorAll('details.action')[12].open = true")
    tab.run("document.querySelectorAll('details.action')[12].querySelector('input[name=reason]').focus()")
    tab.type("a new disk")
    tab.run("window.scrollTo(0, document.activeElement.getBoundingClientRect().top + window.scrollY - 200)")
    opened = tab.run("document.querySelector('details[open]').id")

    poll(tab, busy)

    # The fleet is read anew every two seconds only.
    tab.wait(f"document.querySelectorAll('section[id^=worker-]').length === {14 + 5}", "the new workers are shown")
    assert tab.run("document.activeElement.name") == "reason"
    assert tab.run("document.activeElement.value") == "a new disk"
    assert tab.run("document.activeElement.closest('details').id") == opened
    assert tab.run("document.querySelectorAll('details[open]').length") == 1
    # Rows have come above it, so it is the place on the screen that must be the same, not the figure.
    tab.wait("Math.abs(document.activeElement.getBoundingClientRect().top - 200) < 3", "it stands where it stood")
    assert tab.complaints() == []


def test_a_selection_survives_polling_while_figures_change_around_it(
    tab: Tab, site: PageProgram, busy: Seeding
) -> None:
    tab.go(f"{site.address}/")
    tab.run(
        "(() => { const cell = document.querySelector('#workers tbody tr:nth-child(3) th a');"
        "getSelection().selectAllChildren(cell); })()"
    )
    selected = tab.run("getSelection().toString()")
    before = tab.run("document.querySelector('#count-running .figure').textContent")
    assert selected

    poll(tab, busy)

    tab.wait(f"document.querySelector('#count-running .figure').textContent !== {before!r}", "the count has changed")
    assert tab.run("getSelection().toString()") == selected


def test_what_is_typed_into_a_form_above_survives_polling(tab: Tab, site: PageProgram, busy: Seeding) -> None:
    tab.go(f"{site.address}/tasks")
    tab.run("document.querySelector('form input:not([type=hidden])').focus()")
    tab.type("shop")

    poll(tab, busy, 5)

    assert tab.run("document.activeElement.value") == "shop"


def test_a_hidden_tab_does_not_poll_and_a_visible_one_does_at_once(
    browser: Browser, tab: Tab, site: PageProgram, busy: Seeding
) -> None:
    tab.go(f"{site.address}/")
    wait_until(lambda: polls(tab) >= 2, "the page is polled")
    other = browser.open(f"{site.address}/machines", beside=tab)
    other.to_front()
    tab.wait("document.hidden", "the tab is hidden")
    settled = polls(tab)

    wait_until(lambda: polls(other) >= 10, "the visible tab is polled")
    assert polls(tab) <= settled + 1  # one may have been on its way
    settled = polls(tab)

    other.close()
    tab.to_front()
    tab.wait("!document.hidden", "the tab is visible")
    wait_until(lambda: polls(tab) > settled, "it is polled again")


def test_paused_it_stands_still_also_after_a_reload(tab: Tab, site: PageProgram, busy: Seeding) -> None:
    tab.go(f"{site.address}/")
    tab.press("p")
    tab.wait("document.querySelector('#pause').textContent === 'Paused'", "it says that it is paused")
    wait_until(lambda: tab.requests("/settings") > 0, f"the choice is sent {tab.complaints()}")
    kept = "then(answer => answer.text()).then(text => text.includes('aria-pressed=\"true\"'))"
    tab.wait(f"fetch('{site.address}/machines').{kept}", "the choice is kept")

    tab.go(f"{site.address}/machines")
    assert tab.run("document.querySelector('#pause').getAttribute('aria-pressed')") == "true"
    tab.wait("new Promise(done => setTimeout(() => done(true), 1500))", "several ticks have passed")
    assert polls(tab) == 0

    tab.press("p")
    wait_until(lambda: polls(tab) >= 2, "it is polled again")
    tab.wait("document.querySelector('#pause').textContent === 'Pause'", "it says so")
    wait_until(lambda: tab.requests("/settings") > 0, "the choice is sent")


def test_an_unchanged_page_is_not_sent_again(tab: Tab, site: PageProgram, seeding: Seeding) -> None:
    tab.go(f"{site.address}/audit")
    wait_until(lambda: statuses(tab).count(304) >= 3, "unchanged answers")
    assert tab.complaints() == []


def statuses(tab: Tab) -> list[int]:
    tab.run("1")
    return [
        event["params"]["response"]["status"]
        for event in tab.events
        if event["method"] == "Network.responseReceived" and "/fragments/" in event["params"]["response"]["url"]
    ]


@pytest.mark.parametrize("path", PATHS)
def test_a_page_keeps_the_policy_can_be_read_by_all_and_fits_a_phone(
    tab: Tab, site: PageProgram, busy: Seeding, axe: str, path: str
) -> None:
    tab.go(f"{site.address}{path}")
    if path != "/settings":
        wait_until(lambda: polls(tab) >= 1, "the page is polled")
    assert axe_finds(tab, axe, "{}") == []
    assert tab.complaints() == []

    tab.view(dark=True)
    tab.wait("document.getAnimations().length === 0", "the colours have changed")
    assert axe_finds(tab, axe, "{runOnly: ['color-contrast']}") == [], "in the dark"

    tab.view(width=320, height=640)
    assert tab.run("document.documentElement.scrollWidth") <= 320
    assert tab.run(SMALL) == []
    assert tab.complaints() == []


def axe_finds(tab: Tab, axe: str, rules: str) -> list[tuple[str, list[str]]]:
    """What axe finds, by rule, with the first elements of each."""
    options = f"Object.assign({{resultTypes: ['violations']}}, {rules})"
    if not tab.run("'axe' in window"):
        tab.run(f"{axe}; true")
    found = tab.run(f"axe.run(document, {options}).then(answer => answer.violations)")
    return [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found]


SMALL = (
    "[...document.querySelectorAll('button, summary')].filter(e => {"
    "const b = e.getBoundingClientRect(); return b.width > 0 && b.height < 24; }).map(e => e.outerHTML.slice(0, 100))"
)
"""Buttons that are too small for a finger."""


@pytest.fixture(scope="module")
def axe(request: pytest.FixtureRequest) -> str:
    return (request.path.parent / "vendor" / "axe-4.14.1.min.js").read_text(encoding="utf-8")


def test_times_are_those_of_the_browser_with_utc_on_hover(tab: Tab, site: PageProgram, busy: Seeding) -> None:
    tab.command("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    tab.go(f"{site.address}/audit")
    tab.go(f"{site.address}/")

    shown, utc = tab.run(
        "(() => { const t = document.querySelector('time[data-form=clock]'); return [t.textContent, t.title]; })()"
    )

    hours, minutes = (int(part) for part in re.search(r"T(\d\d):(\d\d)", utc).groups())  # type: ignore[union-attr]
    local = (hours * 60 + minutes + 330) % 1440
    assert shown.startswith(f"{local // 60:02}:{local % 60:02}:")
    ages = tab.run("[...document.querySelectorAll('#workers time[data-form=ago]')].map(t => t.textContent)")
    assert set(ages) - {"now"}, "the one that was heard a minute ago"
    assert all(re.fullmatch(r"now|\d+ min \d+ s ago", age) for age in ages)


def test_the_keyboard_reaches_the_figures_the_pages_and_what_can_be_done(
    tab: Tab, site: PageProgram, busy: Seeding
) -> None:
    tab.go(f"{site.address}/")
    tab.press("Tab")
    assert tab.run("document.activeElement.className") == "skip"
    tab.press("Enter")
    tab.wait("document.activeElement.id === 'page'", "the focus is with the figures")

    tab.go(f"{site.address}/")
    reached = set()
    for _ in range(60):
        tab.press("Tab")
        reached.add(tab.run("document.activeElement.textContent.trim()"))
        assert (
            tab.run("document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle")
            != "none"
        )
    assert {"Overview", "Tasks", "Processors", "Settings", "Pause", "Pause dispatch", "CPU"} <= reached


def test_without_javascript_it_is_read_sorted_and_acted_upon(
    tab: Tab, site: PageProgram, busy: Seeding, database: Database, keys: Keys
) -> None:
    tab.view(script=False)
    tab.go(f"{site.address}/")
    # It loads itself anew every few seconds: what is looked for may just not be there, and a click may go astray.
    tab.wait("document.querySelector('#workers')?.textContent.includes('w1')", "the workers are shown")
    tab.wait(
        "document.querySelector('noscript meta') !== null || document.querySelector('meta[http-equiv]') !== null",
        "it loads itself anew",
    )

    def paused() -> bool:
        with contextlib.suppress(BrowserError):
            if tab.run("document.querySelector('#pause').textContent") == "Paused":
                return True
            follow(tab, "#pause")
        return False

    # Paused, it no longer does so while it is acted upon.
    wait_until(paused, "it is paused")

    follow(tab, "#workers thead th:nth-child(12) a")
    assert "sort=queued" in tab.run("location.search")
    assert tab.run("document.querySelector('[aria-sort]').textContent.trim()").startswith("Que")

    tab.go(f"{site.address}/processors?worker=w2")
    tab.run("document.querySelector('details.action').open = true")
    follow(tab, "details.action[open] button")
    assert "The worker is told to leave" in tab.run("document.querySelector('.note').textContent")
    assert database.length(keys.cancels()) == 1
    follow(tab, "#pause")
    tab.wait("document.querySelector('#pause').textContent === 'Pause'", "it goes on")


def follow(tab: Tab, selector: str) -> None:
    """Click on it with the mouse, and wait for the page to which it leads."""
    tab.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
    box = tab.run(f"(() => {{ const b = document.querySelector({selector!r}).getBoundingClientRect();"
                  "return [b.x + b.width / 2, b.y + b.height / 2]; })()")  # fmt: skip
    tab.run("window.leaving = true")
    place = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
    tab.command("Input.dispatchMouseEvent", type="mousePressed", **place)
    tab.command("Input.dispatchMouseEvent", type="mouseReleased", **place)
    tab.wait("!window.leaving && document.readyState === 'complete'", f"{selector} leads on")


def test_below_a_prefix_every_page_every_poll_and_every_form_works(
    tab: Tab, shared_server: RedisServer, busy: Seeding
) -> None:
    program = PageProgram(shared_server.address, NAMESPACE, "--prefix", "/tools/mill", "--actions")
    try:
        for path in PATHS:
            tab.go(f"{program.address}{path}")
            if path != "/settings":
                wait_until(lambda: polls(tab) >= 1, "the page is polled")
            assert tab.complaints() == []
            outside = tab.run(
                "[...document.querySelectorAll('a, form')].map(e => e.getAttribute('href') || e.getAttribute('action'))"
                ".filter(address => !address.startsWith('/tools/mill/') && !address.startsWith('#'))"
            )
            assert outside == []
        tab.go(f"{program.address}/settings")
        tab.run("document.querySelector('input[value=dark]').click()")
        follow(tab, ".settings button")
        assert tab.run("location.pathname") == "/tools/mill/settings"
        assert tab.run("document.documentElement.dataset.theme") == "dark"
    finally:
        program.stop()


def test_when_redis_stops_it_says_so_and_recovers_by_itself(tab: Tab, own_server: RedisServer) -> None:
    own_server.command("HSET", Keys(NAMESPACE).counts(), "state:running", "4321")
    program = PageProgram(own_server.address, NAMESPACE)
    try:
        tab.go(f"{program.address}/")
        tab.wait("document.body.textContent.includes('4,321')", "the figures are shown")

        own_server.kill()
        tab.wait("document.querySelector('#redis-away') !== null", "the banner is shown")
        assert "4,321" in tab.run("document.body.textContent")
        strip = "document.querySelector('#strip').parentElement"
        tab.wait(f"getComputedStyle({strip}).opacity !== '1'", "the figures are shown as old")

        own_server.start()
        tab.wait("document.querySelector('#redis-away') === null", "the banner has gone")
    finally:
        program.stop()


def test_when_the_page_itself_stops_it_says_so_and_recovers_by_itself(
    tab: Tab, shared_server: RedisServer, busy: Seeding
) -> None:
    program = PageProgram(shared_server.address, NAMESPACE, port=free_port())
    try:
        tab.go(f"{program.address}/")
        wait_until(lambda: polls(tab) >= 1, "the page is polled")
        program.stop()
        tab.wait("!document.querySelector('#away').hidden", "the banner is shown")
        assert "4,1" in tab.run("document.querySelector('#count-running').textContent")

        program.start()
        tab.wait("document.querySelector('#away').hidden", "the banner has gone", 120)  # it asks every 30 s at last
    finally:
        program.stop()


def test_another_host_name_is_refused_in_the_browser_too(tab: Tab, site: PageProgram) -> None:
    port = site.address.rpartition(":")[2]
    tab.go(f"http://rebound.test:{port}/")

    assert "does not answer under this host name" in tab.run("document.body.textContent")


def test_hostile_names_are_shown_and_do_nothing(tab: Tab, site: PageProgram, busy: Seeding) -> None:
    tab.command("Page.addScriptToEvaluateOnNewDocument", source="window.alert = () => { window.attacked = true; };")
    for path in PATHS:
        tab.go(f"{site.address}{path}")
        tab.wait("document.readyState === 'complete'", "it is there")
        assert tab.run("window.attacked === undefined && document.querySelectorAll('script').length === 2"), path
    tab.go(f"{site.address}/processors")
    assert "<script>alert(1)</script>" in tab.run("document.body.textContent")
