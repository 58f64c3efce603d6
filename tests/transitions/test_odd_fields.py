"""Of a sound message one field after the other is missing or of an odd kind: no script fails, and nothing breaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from gristmill.protocol.keys import GROUP_SCHEDULERS
from gristmill.protocol.kinds import STREAM_OF, VERSION, Request
from gristmill.transitions import SCRIPT_OF
from gristmill.transitions.loader import all_scripts
from support.driver import CALL, Driver
from transitions.test_duplicates import BODIES

MISSING = object()
ODD: tuple[Any, ...] = (MISSING, None, {}, {"a": 1}, [], [[]], [None], True, "", "a:b c}*", "x" * 300, -1, 0, 0.5, 1e18)
ODD += (float("nan"), float("inf"), "word")

RICH: dict[str, Any] = {
    "priority": 1, "lane": "python3.11", "retries": 1, "retry_delay_ms": 1, "max_deaths": 2, "run": {"timeout_ms": 5},
    "dependencies": [], "size": 5, "about": {"graph": "g", "key": "k", "tags": ["a"]},
}  # fmt: skip


def odd_versions(sound: Any) -> Iterator[Any]:
    """The value with one part of it, at any depth, replaced or missing."""
    if isinstance(sound, dict):
        for name in sound:
            for odd in ODD:
                changed = {key: value for key, value in sound.items() if key != name}
                yield changed if odd is MISSING else {**changed, name: odd}
            for inner in odd_versions(sound[name]):
                yield {**sound, name: inner}
    elif isinstance(sound, list):
        for index, part in enumerate(sound):
            for odd in ODD[1:]:
                yield [*sound[:index], odd, *sound[index + 1 :]]
            for inner in odd_versions(part):
                yield [*sound[:index], inner, *sound[index + 1 :]]


class Sound:
    """Sound messages of a kind, each about other tasks than the one before, so that each would be applied."""

    def __init__(self, driver: Driver, kind: Request) -> None:
        self.kind = kind
        self.client, self.worker = driver.client(), driver.worker(2)
        self.number = 0

    def held(self) -> list[str]:
        """Two new tasks that the worker holds, when all others are finished."""
        while queued := self.worker.queue():
            self.worker.read(100)
            self.worker.succeed(*queued)
        self.number += 2
        self.client.submit(self.number - 1, self.number)
        return [entry.fields["task"] for entry in self.worker.read(2)]

    def body(self) -> dict[str, Any]:
        client, worker = self.client, self.worker
        body = BODIES[self.kind](client, worker)
        if self.kind is Request.TASKS:
            self.number += 1
            body["tasks"] = [[self.number, 0, CALL, RICH]]
        elif self.kind is Request.OUTCOMES:
            large, reason = {"object": client.object(f"r{self.number}"), "size": 3}, {"error": "E", "message": "m"}
            one, two = self.held()
            body["outcomes"] = [worker.row(one, "success", large), worker.row(two, "died", reason)]
        elif self.kind is Request.CONFIRMS:
            one, _ = self.held()
            client.cancel(int(one.rpartition(".")[2]))
            body["confirms"] = [{"task": one, "attempt": 1, "request": 1, "answer": "canceled"}]
        elif self.kind is Request.RETURNED:
            body["tasks"] = [[task, 1] for task in self.held()]
        elif self.kind is Request.BEAT:
            body |= {"waiting": [client.task(1)], "oldest_running_ms": 5, "suspended": 1, "suspensions": 1}
        elif self.kind is Request.WORKER:
            self.number += 1
            body |= {"worker": f"w{self.number}", "capabilities": {"gpu": -1}}
        elif self.kind is Request.HELD:
            rows = [[task, 1, f"{worker.id}|1"] for task in self.held()]
            body |= {"number": self.number, "tasks": rows}
        elif self.kind in (Request.CANCEL, Request.CLAIM, Request.SUSPENDED, Request.RETRY):
            tasks = self.held()
            body.update({name: tasks for name in ("tasks", "waiting") if body.get(name)})
        return body


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", Request)
def test_an_odd_field_is_answered_by_a_word_and_what_is_set_aside_says_what_was_expected(
    driver: Driver, kind: Request
) -> None:
    sound = Sound(driver, kind)
    words = {*all_scripts()[SCRIPT_OF[kind]].returns}
    count = sum(1 for _ in odd_versions(sound.body()))
    for index in range(count):
        body = next(islice(odd_versions(sound.body()), index, None))
        text = json.dumps({"version": VERSION, **body}).encode()
        word = driver.request(kind, text)
        assert word in words, text
        for aside in driver.quarantine():
            assert aside["reason"].startswith("expected"), (text, aside["reason"])
        driver.database.run("DEL", driver.keys.quarantine())
        for entry in driver.pending(STREAM_OF[kind]) if word == "early" else ():
            stream = getattr(driver.keys, STREAM_OF[kind])()
            driver.database.run("XACK", stream, GROUP_SCHEDULERS, entry.id)
            driver.database.run("XDEL", stream, entry.id)


NO_IDS: tuple[Any, ...] = ("a:b c}*", "", "x" * 201, 5, None, {})


def with_odd_ids(sound: Any, ids: frozenset[str]) -> Iterator[Any]:
    """The value with one of the ids in it, at any depth, replaced by what is none."""
    if isinstance(sound, str) and sound in ids:
        yield from NO_IDS
    parts = sound.items() if isinstance(sound, dict) else enumerate(sound) if isinstance(sound, list) else ()
    for at, part in parts:
        for changed in with_odd_ids(part, ids):
            copy = sound.copy()
            copy[at] = changed
            yield copy


@pytest.mark.parametrize("kind", Request)
def test_what_stands_for_an_id_and_is_none_is_set_aside(driver: Driver, kind: Request) -> None:
    sound = Sound(driver, kind)
    known = {"another", "w2"} | {sound.client.id, sound.worker.id, f"{sound.worker.id}|1", sound.client.function}

    def versions() -> Iterator[Any]:
        body = sound.body()
        ids = known | {sound.client.task(number) for number in range(1, 1000)}
        return with_odd_ids(body, frozenset(ids))

    for index in range(sum(1 for _ in versions())):
        body = next(islice(versions(), index, None))
        if (kind, body.get("client")) in ((Request.CANCEL, ""), (Request.RELEASE, sound.client.id)):
            continue  # A person has no id; what is no object is passed over.
        word = driver.request(kind, json.dumps({"version": VERSION, **body}).encode())
        aside = driver.quarantine()
        assert (word, len(aside)) in (("malformed", 1), ("applied", 1)), (body, word, aside)
        driver.database.run("DEL", driver.keys.quarantine())
