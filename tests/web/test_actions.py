"""What operators may do: off unless asked for, only from the page, only as seen, and written down."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gristmill import Client
from gristmill.protocol.keys import Keys
from gristmill.snapshot import Snapshot
from support.database import Database
from support.seeding import Seeding
from support.server import RedisServer
from support.waiting import wait_until

if TYPE_CHECKING:
    from flask.testing import FlaskClient

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
WORKER = "mill-1|100|w1|aaaa"
TASK = "Client0001.0000001"
OPERATOR = {"Authorization": "Bearer operator-token-0123456789"}
VIEWER = {"Authorization": "Bearer viewer-token-0123456789"}


@pytest.fixture
def acting(make_app: Any) -> FlaskClient:
    """The page with actions, on this machine."""
    return make_app(actions=True).test_client()  # type: ignore[no-any-return]


@pytest.fixture
def with_tokens(make_app: Any, tmp_path: Path) -> FlaskClient:
    path = tmp_path / "tokens"
    path.write_text("viewer viewer-token-0123456789\noperator operator-token-0123456789\n")
    path.chmod(0o600)
    return make_app(actions=True, token_file=str(path)).test_client()  # type: ignore[no-any-return]


def unsafe(page: FlaskClient) -> list[str]:
    """Every address that changes something for all."""
    rules = [rule for rule in page.application.url_map.iter_rules() if "POST" in (rule.methods or ())]
    found = [re.sub(r"<[^>]*>", "x", rule.rule) for rule in rules if rule.endpoint.startswith("actions.")]
    assert len(found) >= 14
    return found


def sent(database: Database, keys: Keys) -> list[dict[str, str]]:
    return [entry.fields for entry in database.stream(keys.cancels())]


def test_without_actions_everything_is_refused_and_no_form_is_shown(
    page: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.worker(WORKER)
    for path in unsafe(page):
        response = page.post(path, headers=SAME_ORIGIN)
        assert response.status_code == 403
        assert "without --actions" in response.text
    for path in ("/", "/processors"):
        assert "/actions/" not in page.get(path).text
    assert sent(database, keys) == []


def test_another_site_cannot_act(acting: FlaskClient, database: Database, keys: Keys) -> None:
    for path in unsafe(acting):
        for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "null"}):
            assert acting.post(path, headers=headers).status_code == 403
    assert sent(database, keys) == []


def test_nothing_is_done_by_looking(acting: FlaskClient, database: Database, keys: Keys) -> None:
    for path in unsafe(acting):
        assert acting.get(path).status_code == 405
    assert sent(database, keys) == []


def test_a_viewer_may_not_act_and_sees_no_form(
    with_tokens: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.worker(WORKER)
    for path in unsafe(with_tokens):
        assert with_tokens.post(path).status_code == 401
        assert with_tokens.post(path, headers=VIEWER).status_code == 403
    assert "/actions/" not in with_tokens.get("/processors", headers=VIEWER).text
    assert "/actions/" in with_tokens.get("/processors", headers=OPERATOR).text
    assert sent(database, keys) == []


def test_an_action_names_the_state_that_was_seen(
    acting: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.task(TASK, state="inactive")

    moved = acting.post(f"/actions/tasks/{TASK}/cancel", data={"expected": "running"}, headers=SAME_ORIGIN)
    assert moved.status_code == 409
    assert "it is <strong>inactive</strong> now" in moved.text
    program = acting.post(f"/api/v1/actions/tasks/{TASK}/cancel", data={"expected": "running"}, headers=SAME_ORIGIN)
    assert (program.status_code, program.get_json()["current_state"]) == (409, "inactive")
    assert sent(database, keys) == []

    data = {"expected": "inactive", "reason": "wrong input", "back": "/processors?worker=w1"}
    done = acting.post(f"/actions/tasks/{TASK}/cancel", data=data, headers=SAME_ORIGIN)
    assert (done.status_code, done.headers["Location"]) == (303, "/processors?worker=w1&done=cancel")
    (request,) = sent(database, keys)
    assert '"reason":"wrong input"' in request["cancel"]
    assert '"by":"somebody on this machine"' in request["cancel"]
    assert "The cancel is on its way." in acting.get(done.headers["Location"]).text


def test_every_form_on_the_page_can_be_sent_as_it_is(
    acting: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.worker(WORKER)
    seeding.client("Client0001", tasks=2)
    seeding.scheduler("s1")
    posted = []
    for path in ("/", "/processors", "/clients"):
        html = acting.get(path).text
        for address, body in re.findall(r'<form method="post" action="(/actions/[^"]+)">(.*?)</form>', html, re.DOTALL):
            data = dict(re.findall(r'name="(\w+)" value="([^"]*)"', body))
            assert acting.post(address, data=data, headers=SAME_ORIGIN).status_code == 303, address
            posted.append(address.rpartition("/")[2])

    assert sorted(posted) == ["cancel-all", "drain", "pause", "stop"]
    assert len(sent(database, keys)) == 4


@pytest.mark.parametrize(
    "path",
    ["tasks/nonsense/cancel", "tasks/a%20b/retry", "clients/nobody/cancel-all", "workers/nobody/drain",
     "workers/a%3Ab/stop"],
)  # fmt: skip
def test_what_is_not_there_is_not_acted_upon(acting: FlaskClient, database: Database, keys: Keys, path: str) -> None:
    assert acting.post(f"/actions/{path}", data={"expected": "live"}, headers=SAME_ORIGIN).status_code == 404
    assert sent(database, keys) == []


def test_orders_reach_a_real_cluster(start_cluster: Any, make_app: Any, server: RedisServer, namespace: str) -> None:
    cluster = start_cluster(workers=1, worker_options={"concurrency": 1, "worker_lease_seconds": 15.0})
    page = make_app(actions=True).test_client()

    def act(path: str, expected: str) -> int:
        data = {"expected": expected, "reason": "a test"}
        status: int = page.post(f"/api/v1/actions/{path}", data=data, headers=SAME_ORIGIN).status_code
        return status

    with Client(cluster.address, namespace=namespace) as client, Snapshot(cluster.address, namespace) as snapshot:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        assert act("dispatch/pause", "running") == 202
        wait_until(snapshot.paused, "dispatch is paused")
        assert act("dispatch/pause", "running") == 409
        waiting = client.submit(sum, [3, 4])
        client.flush()
        wait_until(lambda: snapshot.counts().states["inactive"] == 1, "the task waits")
        (alert,) = [alert for alert in snapshot.alerts() if alert.code == "paused"]
        assert alert.level == "warning"
        (known,) = snapshot.clients()
        assert act(f"clients/{known.client}/cancel-all", "live") == 202
        wait_until(waiting.cancelled, "the task is canceled")
        assert act("dispatch/resume", "paused") == 202
        assert client.submit(sum, [5, 6]).result(timeout=60) == 11
        (worker,) = snapshot.workers().rows
        # A worker that has not been heard for a while is live again with its next heartbeat.
        wait_until(lambda: act(f"workers/{worker.worker}/drain", "live") == 202, "the worker is told to leave")
        wait_until(lambda: snapshot.workers().total == 0, "the worker has left")
        orders = [(order.action, order.reason, order.answer) for order in snapshot.audit()]
    assert orders[::-1] == [(action, "a test", "applied") for action in ("pause", "cancel_client", "resume", "drain")]
    assert "cancel_client" in page.get("/audit").text
