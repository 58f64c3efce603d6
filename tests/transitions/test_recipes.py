"""Every line for redis-cli in docs/redis-keys.md shows what the text above it says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gristmill.protocol.kinds import Request
from support.driver import LANE, Driver, PlayedClient, PlayedWorker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "redis-keys.md"
LINES = re.findall(r"^redis-cli (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


class Scene(NamedTuple):
    """A small namespace in which something of everything lies."""

    driver: Driver
    client: PlayedClient
    worker: PlayedWorker
    held: str
    """A task that a processor executes."""

    def show(self, line: str) -> Any:
        """What the line shows here, its examples replaced by what there is; `| grep` leaves out what does not match."""
        command, _, search = line.replace("CLIENT.0000042", self.held).partition(" | grep ")
        words = [
            word.replace("gm:{default}:", self.driver.keys.prefix).replace("WORKER", self.worker.id)
            for word in shlex.split(command)
        ]
        reply = readable(self.driver.database.run(*words))
        return [item for item in reply if search in json.dumps(item)] if search else reply

    def shows(self, start: str) -> Any:
        """What the one line of the page that begins like this shows."""
        (line,) = [line for line in LINES if line.startswith(start)]
        return self.show(line)


def readable(reply: Any) -> Any:
    if isinstance(reply, list):
        return [readable(item) for item in reply]
    return reply.decode() if isinstance(reply, bytes) else reply


@pytest.fixture
def scene(driver: Driver) -> Scene:
    client, worker = driver.client(), driver.worker(1)
    client.submit(1, 2, 3, 4)
    worker.read()
    driver.scripts.apply(driver.connection, driver.scripts.duty("set_intake", "3 tasks wait"))
    driver.request(Request.TASKS, b"{")
    driver.send(Request.TASKS, client.body([5]))
    driver.send(Request.OUTCOMES, {"worker": worker.id, "outcomes": [worker.row(client.task(1))]})
    return Scene(driver, client, worker, client.task(1))


def pairs(flat: list[Any]) -> dict[str, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


@pytest.mark.parametrize("line", LINES)
def test_every_line_can_be_run_and_shows_something(scene: Scene, line: str) -> None:
    assert scene.show(line)


def test_the_page_has_lines() -> None:
    assert len(LINES) >= 14


def test_the_counts_say_what_goes_on(scene: Scene) -> None:
    counts = pairs(scene.shows("HGETALL 'gm:{default}:counts'"))

    assert (counts["state:running"], counts["state:inactive"]) == ("2", "2")


def test_the_queue_is_shown_by_number_by_first_and_by_lane(scene: Scene) -> None:
    assert scene.shows("HKEYS") == [LANE]
    assert scene.shows("ZCARD") == 2
    assert scene.shows("ZRANGE 'gm:{default}:ready:") == [scene.client.task(3), scene.client.task(4)]


def test_a_task_is_followed_by_its_record_and_its_changes(scene: Scene) -> None:
    record = pairs(scene.shows("HGETALL 'gm:{default}:task:"))
    changes = scene.shows("XREVRANGE 'gm:{default}:events'")

    assert record["state"] == "running"
    assert record["place"].split()[0] == LANE
    assert len(changes) == 1
    assert json.loads(pairs(changes[0][1])["changes"])[0][:2] == [scene.held, "running"]


def test_the_record_says_who_holds_the_task(scene: Scene) -> None:
    ((assignment,), length) = scene.shows("HMGET"), scene.shows("XLEN 'gm:{default}:worker:")
    attempt, entry, worker = assignment.split(" ")

    assert (attempt, worker) == ("1", scene.worker.id)
    assert entry == scene.worker.entries()[0].id
    assert length == 2


def test_entries_that_a_processor_has_read_are_pending_with_its_name(scene: Scene) -> None:
    ((entry, processor, _, _),) = scene.shows("XPENDING")

    assert entry == scene.worker.entries()[0].id
    assert processor == f"{scene.worker.id}|1"


def test_the_workers_that_are_alive_and_what_one_said_last(scene: Scene) -> None:
    assert scene.shows("ZRANGE 'gm:{default}:workers'") == [scene.worker.id]
    assert json.loads(scene.shows("HGET '"))["processors_ready"] == 1


def test_requests_that_wait_and_requests_that_nobody_could_understand(scene: Scene) -> None:
    assert scene.shows("XLEN 'gm:{default}:submit'") == 1
    assert scene.shows("XLEN 'gm:{default}:results'") == 1
    ((_, fields),) = scene.shows("XREVRANGE 'gm:{default}:quarantine'")
    assert pairs(fields)["body"] == "{"
    assert "JSON" in pairs(fields)["reason"]


def test_the_intake_says_why_new_tasks_are_refused(scene: Scene) -> None:
    assert scene.shows("GET '") == "3 tasks wait"
