"""What nobody can understand goes to the quarantine with the reason, and the loop goes on."""

from __future__ import annotations

from typing import Any

import pytest

from gristmill.protocol.kinds import STREAM_OF, Request
from support.driver import Driver

RUBBISH: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "binary": bytes(range(1, 256)).replace(b"\r", b"").replace(b"\n", b""),
    "a number": b"5",
    "null": b"null",
    "text": b'"text"',
    "a list": b"[]",
    "an empty object": b"{}",
    "no version": b'{"client":"a"}',
    "text for a version": b'{"version":"1"}',
    "only a version": b'{"version":1}',
    "nested without end": b'{"version":1,"client":' + b"[" * 2000 + b"]" * 2000 + b"}",
    "a huge version": b'{"version":-1e999}',
    "null in every field": b'{"version":1,"client":null,"worker":null,"task":null,"tasks":null,"objects":null,'
    b'"outcomes":null,"confirms":null,"batch":null,"registration":null,"processors_ready":null}',
    "objects in every field": b'{"version":1,"client":{},"worker":{},"task":{},"tasks":{"a":1},"objects":{"a":1},'
    b'"outcomes":{"a":1},"confirms":{"a":1},"batch":{},"registration":{},"processors_ready":{}}',
    "numbers in every field": b'{"version":1,"client":1,"worker":1,"task":1,"tasks":1,"objects":1,"outcomes":1,'
    b'"confirms":1,"batch":1,"registration":1,"processors_ready":1}',
}

MALICIOUS = "a:b c}*"


@pytest.mark.parametrize("kind", Request)
@pytest.mark.parametrize("body", RUBBISH.values(), ids=RUBBISH)
def test_rubbish_is_taken_off_and_changes_nothing(driver: Driver, kind: Request, body: bytes) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    before = driver.snapshot()
    word = driver.request(kind, body)
    after = driver.snapshot()
    set_aside = after.pop(driver.keys.quarantine(), None)

    assert word in ("malformed", "applied", "unknown")
    assert after == before
    assert (set_aside is not None) or word != "malformed"
    assert driver.database.length(getattr(driver.keys, STREAM_OF[kind])()) == 0
    assert driver.state(client.task(1)) == "running"
    assert worker.queue() == [client.task(1)]


def test_the_quarantine_says_what_where_and_why(driver: Driver) -> None:
    entry = driver.send(Request.TASKS, b"{")
    driver.settle()
    (kept,) = driver.quarantine()

    assert kept["entry"] == entry
    assert kept["request"] == driver.keys.submit()
    assert kept["body"] == "{"
    assert "expected a JSON object with a version" in kept["reason"]


def test_the_quarantine_is_bounded_in_entries_and_in_size(driver: Driver) -> None:
    for _ in range(30):
        driver.request(Request.CANCEL, {"tasks": ["a b" + "x" * 10_000] * 100, "client": "", "after": 0})
    kept = driver.quarantine()

    assert len(kept) <= 1200
    assert max(len(entry["body"]) for entry in kept) <= 4096


@pytest.mark.requests_stay
@pytest.mark.parametrize("kind", Request)
def test_a_message_of_a_newer_version_stays_for_a_newer_scheduler(driver: Driver, kind: Request) -> None:
    body = b'{"version":2,"client":"a","worker":"b","tasks":[],"anything":true}'
    driver.send(kind, body)
    (entry,) = driver.read(STREAM_OF[kind])
    before = driver.snapshot()

    assert driver.apply_entry(STREAM_OF[kind], entry) == "newer"
    assert driver.snapshot() == before
    assert driver.pending(STREAM_OF[kind]) == [entry]


@pytest.mark.parametrize("kind", [Request.DISCONNECT, Request.CLIENT_BEAT, Request.RELEASE, Request.END_CLIENT])
def test_an_id_that_could_become_another_key_is_refused(driver: Driver, kind: Request) -> None:
    body: dict[str, Any] = {"client": MALICIOUS, "objects": [], "after": 0}

    assert driver.request(kind, body) == "malformed"


@pytest.mark.parametrize("kind", [Request.BEAT, Request.DRAIN, Request.LEAVE, Request.END_WORKER])
def test_a_worker_id_that_could_become_another_key_is_refused(driver: Driver, kind: Request) -> None:
    body: dict[str, Any] = {"worker": MALICIOUS, "processors_ready": 1}

    assert driver.request(kind, body) == "malformed"
