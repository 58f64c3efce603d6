"""H80 to H85: the page and those who look at it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from gristmill import Client, LocalCluster
from gristmill.protocol.keys import Keys
from gristmill.settings import WorkerSettings
from gristmill.snapshot import Snapshot
from gristmill.snapshot.reading import Reader
from gristmill_web import board
from gristmill_web.app import create_app, wrap
from gristmill_web.settings import PageSettings
from support.database import Database
from support.programs import Programs
from support.seeding import Seeding
from support.server import RedisServer
from support.waiting import wait_until

if TYPE_CHECKING:
    from flask import Flask
    from flask.testing import FlaskClient

MakePage = Callable[..., "FlaskClient"]

PATIENCE_SECONDS = 60.0

HOSTILE = "<script>alert(1)</script>'\"{{7*7}}<img src=x onerror=alert(2) hx-get=/health>"
BARE = ("<script>alert", "<img src=x", "{{7*7}}</script", "7*7}}<img")


@pytest.fixture
def make_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePage]:
    """Makes browsers without JavaScript, each on a page of its own over the Redis at an address, which is there, so it
    is waited for, also on a machine that stalls."""
    monkeypatch.setattr("gristmill_web.history.reader.FIRST_READ_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("gristmill_web.app.REDIS_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("gristmill_web.board.PATIENCE_SECONDS", PATIENCE_SECONDS)
    made: list[Flask] = []

    def make(address: str, namespace: str, **settings: object) -> FlaskClient:
        given = {"redis": address, "namespace": namespace, "refresh_seconds": 0.2, **settings}
        page_settings = PageSettings.model_validate(given)
        app = wrap(create_app(page_settings), page_settings)
        app.testing = True
        made.append(app)
        return app.test_client()

    yield make
    wait_until(
        lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("read-")],
        "no page is being read behind",
        timeout=30,
    )
    for app in made:
        app.extensions["gristmill_history"].close()
        app.extensions["gristmill_board"].snapshot.close()


def addresses(page: FlaskClient, **values: str) -> list[str]:
    """Every address that can be looked at, with the values where it has parts to fill in."""
    found = []
    for rule in page.application.url_map.iter_rules():
        if "GET" not in (rule.methods or ()) or rule.endpoint == "static":
            continue
        filled = re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", lambda part: values.get(part[1], "x"), rule.rule)
        found.append(filled)
    assert len(found) > 20
    return found


def test_h80_hostile_text_is_shown_and_does_nothing(
    client: Client, shared_cluster: LocalCluster, make_page: MakePage
) -> None:
    """Tags, quotes, template braces and htmx attributes in function names, exception texts and query strings, on every
    page, partial update and answer for programs: shown literally, under a strict content security policy. Names of
    workers and capabilities cannot hold such text in the first place."""

    def hostile(text: str) -> None:
        raise ValueError(text)

    hostile.__name__ = hostile.__qualname__ = HOSTILE
    future = client.submit(hostile, HOSTILE)
    assert HOSTILE in str(future.exception(timeout=30))
    with pytest.raises(ValueError, match="expected capability names"):
        client.options(capabilities=[HOSTILE])
    with pytest.raises(ValueError, match="expected a name"):
        WorkerSettings(name=HOSTILE)

    page = make_page(shared_cluster.address, shared_cluster.namespace)
    wait_until(lambda: future.task_id in page.get("/tasks").text, "the page knows the task", timeout=30)
    shown = 0
    values = {"task": future.task_id, "worker": future.worker, "client": client.client_id}
    for address in addresses(page, **values):
        for query in ({}, dict.fromkeys(("function", "state", "text", "sort", "worker", "window", "page"), HOSTILE)):
            answer = page.get(address, query_string=query)
            assert answer.status_code < 500, address
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            if answer.mimetype == "text/html":
                assert not [text for text in BARE if text in answer.text], address
                shown += "&lt;script&gt;alert" in answer.text
            else:
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert shown >= 2, "the hostile text is shown"


def test_h81_nothing_is_done_by_an_image_tag_or_by_another_site(
    client: Client, shared_cluster: LocalCluster, shared_snapshot: Snapshot, make_page: MakePage
) -> None:
    """Every action by GET, by POST without a proof of its origin, from a foreign origin, for a foreign host: refused,
    without effect. The page listens to this machine only, and no other page may frame it."""
    future = client.options(capabilities=["nowhere"]).submit(abs, -1)
    wait_until(lambda: shared_snapshot.task(future.task_id).state == "inactive", "the task waits")
    page = make_page(shared_cluster.address, shared_cluster.namespace, actions=True)
    rules = [rule for rule in page.application.url_map.iter_rules() if rule.endpoint.startswith("actions.")]
    assert len(rules) >= 14
    same = {"Sec-Fetch-Site": "same-origin"}
    form = {"expected": "inactive"}
    for rule in rules:
        address = re.sub(r"<[a-z_]+>", future.task_id, rule.rule)
        assert page.get(address).status_code in (404, 405)
        for headers in ({}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert page.post(address, data=form, headers=headers).status_code == 403
        assert page.post(address, data=form, headers={**same, "Host": "evil.example"}).status_code == 400
    assert shared_snapshot.task(future.task_id).state == "inactive"
    assert "frame-ancestors 'none'" in page.get("/").headers["Content-Security-Policy"]
    assert PageSettings(redis=shared_cluster.address).host == "127.0.0.1"
    # The proof that these addresses do something when they are asked properly.
    answer = page.post(f"/actions/tasks/{future.task_id}/cancel", data=form, headers=same)
    assert answer.status_code in (200, 302, 303)
    wait_until(future.cancelled, "the cancel of a page of ours counts", timeout=30)


def test_h82_a_page_costs_the_same_whatever_the_number_of_workers_and_tasks(
    server: RedisServer, database: Database, keys: Keys, make_page: MakePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand workers, twenty thousand queued tasks: each page takes fewer than ten round trips, scans nothing,
    and fetches no whole payload."""
    seeding = Seeding(database, keys)
    script = (
        "for n = 1, 1000 do local w = 'mill-' .. n .. '|' .. n .. '|w' .. n .. '|aaaa' "
        "redis.call('ZADD', KEYS[1], 15000 + n, w) "
        "redis.call('HSET', ARGV[1] .. 'worker:' .. w, 'name', 'w' .. n, 'host', 'mill-' .. n, 'pid', n, "
        "'python', '3.11', 'lanes', 'python3.11', 'processors', 1, 'room', 8, 'seen', ARGV[2], 'heartbeat', ARGV[3]) "
        "redis.call('XGROUP', 'CREATE', ARGV[1] .. 'worker:' .. w .. ':tasks', 'processors', '0', 'MKSTREAM') end "
        "for n = 1, 20000 do redis.call('ZADD', KEYS[2], n, string.format('Client0001.%07d', n)) end"
    )
    beat = '{"version":1,"processors":[]}'
    names = (keys.workers(), keys.ready("python3.11"))
    database.run("EVAL", script, 2, *names, keys.prefix, seeding.now(), beat)
    database.run("HSET", keys.lanes(), "python3.11", 1)
    seeding.count(state__inactive=20_000)
    seeding.task("Client0001.0000001", state="inactive")
    seeding.client("Client0001", tasks=100)
    trips: list[list[Any]] = []
    read = Reader.round_trip

    def counted(self: Reader, commands: Any) -> Any:
        asked = list(commands)
        if threading.current_thread() is threading.main_thread():  # not the history's, which reads on and on
            trips.append(asked)
        return read(self, asked)

    monkeypatch.setattr(Reader, "round_trip", counted)
    # What the first look has brought serves the second, however long that takes to come.
    monkeypatch.setattr(board, "GLANCE_SECONDS", 60.0)
    database.run("CONFIG", "RESETSTAT")
    values = {"task": "Client0001.0000001", "worker": "mill-1|1|w1|aaaa", "client": "Client0001"}
    wholes = [one for one in addresses(make_page(server.address, keys.namespace), **values) if is_whole(one)]
    assert len(wholes) >= 8
    for address in wholes:
        page = make_page(server.address, keys.namespace)
        for most in (20, 10):  # the first look also reads what is kept for the next ones
            trips.clear()
            assert page.get(address).status_code in (200, 404), address
            assert len(trips) < most, address
        fetched = [command for one in trips for command in one if command[0] in ("GET", "MGET")]
        assert not [command for command in fetched if ":payload:" in str(command) or ":object:" in str(command)]
    used = {line.partition(":")[0].removeprefix("cmdstat_").lower() for line in database.info("commandstats")}
    assert not used & {"keys", "scan", "zscan", "sscan"}, "a bounded HSCAN of the lanes is all there is"


def is_whole(address: str) -> bool:
    """Whether it is a page for people, and not a part of one or an answer for programs."""
    parts = ("/api/", "/fragments/", "/metrics", "/health", "/login", "/ready", "/alive", ".json")
    return not any(part in address for part in parts)


class Links(HTMLParser):
    """What a page leads to, and what it loads and asks for by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src", "action", "formaction", "hx-get", "hx-post") and value:
                self.found.add(value)


class Polling(HTMLParser):
    """The elements that ask for news by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if "every " in (given.get("hx-trigger") or ""):
            self.found.append(given)


def test_h83_an_element_that_waits_for_its_answer_does_not_ask_again(
    client: Client, shared_cluster: LocalCluster, make_page: MakePage
) -> None:
    """On every page whatever polls is told to drop a request while one of its own is in flight. (What a browser makes
    of that is tried in a browser.)"""
    page = make_page(shared_cluster.address, shared_cluster.namespace)
    polling = 0
    for address in filter(is_whole, addresses(page, client=client.client_id)):
        parser = Polling()
        parser.feed(page.get(address).text)
        polling += len(parser.found)
        assert all(element.get("hx-sync") == "this:drop" for element in parser.found), address
    assert polling >= 5


@pytest.mark.parametrize("strips", [False, True], ids=["not stripped", "stripped by the proxy"])
def test_h84_below_a_sub_path_every_address_stays_below_it(
    client: Client, shared_cluster: LocalCluster, make_page: MakePage, strips: bool
) -> None:
    """All links, files, partial updates, forms and redirects below /mill, whether the proxy takes the path off or not:
    each stays below it, works, and none goes to another host."""
    future = client.submit(abs, -1)
    assert future.result(timeout=30) == 1
    settings: dict[str, object] = {"proxies": 1} if strips else {"prefix": "/mill"}
    page = make_page(shared_cluster.address, shared_cluster.namespace, **settings)
    headers = {"X-Forwarded-Prefix": "/mill"} if strips else {}
    known = f"{'' if strips else '/mill'}/tasks/{future.task_id}"
    wait_until(lambda: page.get(known).status_code == 200, "the history knows the task", timeout=30)
    waiting, seen = ["/mill/", f"/mill/tasks/{future.task_id}"], set()
    while waiting:
        address = waiting.pop()
        plain = urlsplit(address).path
        if plain in seen:
            continue
        seen.add(plain)
        links = Links()
        with page.get(address.removeprefix("/mill") if strips else address, headers=headers) as answer:
            assert answer.status_code < 400, address
            if answer.mimetype == "text/html":
                links.feed(answer.get_data(as_text=True))
            if "Location" in answer.headers:
                links.found.add(answer.headers["Location"])
        for link in links.found:
            parts = urlsplit(link)
            assert parts.netloc in ("", "localhost"), link
            if not link.startswith(("#", "?")):
                assert parts.path.startswith("/mill/"), (address, link)
                if "/actions/" not in parts.path:
                    waiting.append(f"{parts.path}?{parts.query}" if parts.query else parts.path)
    assert len(seen) > 10


def test_h85_text_that_is_not_ascii_passes_under_the_c_locale(programs: Programs, snapshot: Snapshot) -> None:
    """Worker and scheduler under LC_ALL=C: non-ASCII function names, emoji, a lone surrogate, and an object whose repr
    raises: all run, and what is shown is readable or escaped; nobody logs an encoding error."""
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    started = [programs.scheduler(**locale), programs.worker(**locale)]

    def größe(text: str) -> int:
        print("größe", text, "\U0001f600")
        return len(text)

    def unshowable() -> object:
        class Unshowable:
            def __repr__(self) -> str:
                raise RuntimeError("no")

        return Unshowable()

    def fail(text: str) -> None:
        raise ValueError(text)

    with programs.client() as client:
        futures = [client.submit(größe, "\U0001f600\u00e4"), client.submit(größe, "\ud800"), client.submit(unshowable)]
        assert [futures[0].result(timeout=60), futures[1].result(timeout=60)] == [2, 1]
        assert type(futures[2].result(timeout=60)).__name__ == "Unshowable"
        failed = client.submit(fail, "\ud800 \u00e4")
        assert "\u00e4" in str(failed.exception(timeout=60))
        assert snapshot.task(futures[0].task_id).function.endswith("größe")
        assert snapshot.task(failed.task_id).story[-1].error
    for program in started:
        assert "UnicodeEncodeError" not in program.log
        assert "UnicodeDecodeError" not in program.log
