"""Every key is pinned here: a changed key is a changed protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from gristmill.protocol.keys import (
    ID_PATTERN,
    REQUEST_STREAMS,
    Keys,
    check_namespace,
    key_kinds,
    object_chunks,
)

PINNED = {
    "namespace_facts": "namespace",
    "submit": "submit",
    "results": "results",
    "cancels": "cancels",
    "heartbeats": "heartbeats",
    "continued": "continue",
    "intake": "intake",
    "task": "task:<task>",
    "payload": "payload:<task>",
    "value": "value:<task>",
    "dependents": "dependents:<task>",
    "delayed": "delayed",
    "lanes": "lanes",
    "ready": "ready:<lane>",
    "load": "load:<lane>",
    "alone": "alone",
    "workers": "workers",
    "worker": "worker:<worker>",
    "worker_tasks": "worker:<worker>:tasks",
    "worker_claimed": "worker:<worker>:claimed",
    "worker_control": "worker:<worker>:control",
    "clients": "clients",
    "client": "client:<client>",
    "client_tasks": "client:<client>:tasks",
    "client_objects": "client:<client>:objects",
    "client_batches": "client:<client>:batches",
    "client_inbox": "client:<client>:inbox",
    "object": "object:<object_id>",
    "object_chunk": "object:<object_id>:<chunk>",
    "holders": "holders:<object_id>",
    "objects": "objects",
    "schedulers": "schedulers",
    "scheduler": "scheduler:<scheduler>",
    "lease": "lease:<duty>",
    "clock": "clock",
    "quarantine": "quarantine",
    "audit": "audit",
    "counts": "counts",
    "events": "events",
    "failures": "failures",
}

REDIS_TYPES = ("string", "hash", "set", "sorted set", "stream")


@pytest.mark.parametrize(("name", "pattern"), PINNED.items())
def test_each_key_has_its_pattern(name: str, pattern: str) -> None:
    kinds = {kind.name: kind.pattern for kind in key_kinds()}

    assert pattern == kinds[name]


def test_no_key_is_missing_from_the_pinned_ones() -> None:
    assert list(PINNED) == [kind.name for kind in key_kinds()]


def test_each_key_says_its_redis_type_first_and_then_a_sentence() -> None:
    for kind in key_kinds():
        assert kind.redis_type.startswith(REDIS_TYPES), kind
        assert kind.sentence.endswith("."), kind


def test_a_key_carries_its_namespace_in_braces() -> None:
    assert Keys("prod").task("Ab12.0000001") == "gm:{prod}:task:Ab12.0000001"


def test_a_client_of_keys_for_another_namespace_shares_no_key() -> None:
    ours = {getattr(Keys("ours"), name)(*["x"] * pattern.count("<")) for name, pattern in PINNED.items()}
    theirs = {getattr(Keys("theirs"), name)(*["x"] * pattern.count("<")) for name, pattern in PINNED.items()}

    assert not ours & theirs


def test_all_request_streams_are_keys() -> None:
    assert {"submit", "results", "cancels", "heartbeats", "continue"} == {PINNED[name] for name in REQUEST_STREAMS}


@pytest.mark.parametrize("namespace", ["a", "default", "team-1.blue_2", "0", "x" * 64])
def test_ordinary_namespaces_are_accepted(namespace: str) -> None:
    assert check_namespace(namespace) == namespace


@pytest.mark.parametrize("namespace", ["", "-a", ".a", "a}b", "a{b", "a:b", "a b", "a\n", "ä", "x" * 65, "a*"])
def test_a_namespace_that_could_leave_its_place_in_the_key_is_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match="expected a namespace of 1 to 64 letters"):
        Keys(namespace)


@pytest.mark.parametrize("identity", ["Ab12cd34Ef.0000001", "host|12|name|ab", "Ab12cd34Ef.f1-2", "a" * 200])
def test_our_ids_match_the_id_pattern(identity: str) -> None:
    assert ID_PATTERN.match(identity)


@pytest.mark.parametrize("identity", ["", "a b", "a\n", "a:b", "a}b", "a*", "ä", "a" * 201, "\x00"])
def test_an_id_that_could_become_another_key_does_not_match(identity: str) -> None:
    assert not ID_PATTERN.match(identity)


@pytest.mark.parametrize(("identity", "chunks"), [("Ab.f1-1", 1), ("Ab.c12-64", 64), ("Ab.0000001.2-3", 3)])
def test_an_object_id_ends_in_its_number_of_chunks(identity: str, chunks: int) -> None:
    assert object_chunks(identity) == chunks


def test_nothing_but_keys_py_spells_a_key() -> None:
    root = Path(__file__).parents[2]
    sources = [path for folder in ("broker", "worker", "web") for path in (root / folder).rglob("*")]
    spelling = [
        path.relative_to(root).as_posix()
        for path in sources
        if path.suffix in {".py", ".lua", ".html", ".js"}
        and path.name != "keys.py"
        and any(f"{quote}gm:" in path.read_text(encoding="utf-8") for quote in "\"'`")
    ]

    assert spelling == []
