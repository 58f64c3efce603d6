"""What nobody can understand goes to the quarantine with the reason, and the loop goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gristmill.protocol.kinds import STREAM_OF, Request
from support.driver import Driver, numbers

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


def test_of_a_batch_the_quarantine_keeps_the_row_that_is_odd(driver: Driver) -> None:
    client = driver.client()
    client.submit([1, 0, "AAAA", None], ["odd"], [2, 0, "AAAA", None])

    assert [entry["body"] for entry in driver.quarantine()] == ['["odd"]']
    assert numbers(driver.ready()) == [1, 2]


def test_what_cannot_be_written_down_alone_is_kept_with_its_message(driver: Driver) -> None:
    client = driver.client()
    body = json.dumps({"version": 1, **client.body([["odd", "infinite"]])}).replace('"infinite"', "1e999")
    driver.request(Request.TASKS, body.encode())
    (kept,) = driver.quarantine()

    assert kept["body"] == body


def test_bytes_that_are_no_characters_are_cut_where_they_must(driver: Driver) -> None:
    driver.request(Request.CANCEL, b"\x80" * 9000)
    (kept,) = driver.quarantine()

    assert len(kept["body"]) <= 4096


def test_an_id_may_have_200_characters_and_no_more(driver: Driver) -> None:
    assert driver.request(Request.CLIENT_BEAT, {"client": "x" * 200}) == "unknown"
    assert driver.request(Request.CLIENT_BEAT, {"client": "x" * 201}) == "malformed"


@pytest.mark.parametrize("chunks", ["0", "65537", "x"])
def test_an_object_has_from_1_to_65536_chunks(driver: Driver, chunks: str) -> None:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1)
    worker.read()
    worker.send_outcomes(worker.row(client.task(1), "success", {"object": f"{client.id}.r-{chunks}", "size": 1}))

    assert len(driver.quarantine()) == 1
    assert client.outcome(1).state == "failed"
