"""`gristmill status`, `tasks`, `task` and `cancel` over a Redis with a picture in it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest

from gristmill import cli
from gristmill.cli import exits
from gristmill.protocol.keys import Keys
from support.database import Database
from support.seeding import Seeding
from support.server import RedisServer
from support.waiting import wait_until

WORKER = "mill-1|100|w1|aaaa"


class Result(NamedTuple):
    code: int
    out: str
    err: str


Gristmill = Callable[..., Result]


@pytest.fixture
def gristmill(server: RedisServer, namespace: str, capsys: pytest.CaptureFixture[str]) -> Gristmill:
    """Runs a command against the test's namespace."""

    def run(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as end:
            cli.run(cli.gristmill, [arguments[0], "--redis", server.address, "--namespace", namespace, *arguments[1:]])
        out, err = capsys.readouterr()
        return Result(int(end.value.code or 0), out, err)

    return run


@pytest.fixture
def seeding(database: Database, keys: Keys) -> Seeding:
    return Seeding(database, keys)


def test_status_shows_counts_alerts_workers_and_schedulers(gristmill: Gristmill, seeding: Seeding) -> None:
    seeding.count(state__running=12345)
    seeding.worker(WORKER, assigned=3, held=1, processors=[{"task": "c.0000001", "function": "shop.price"}])
    seeding.scheduler("s1", seen_ms_ago=20_000)

    code, out, _ = gristmill("status")

    assert code == exits.OK
    assert "12,345" in out
    assert "error: No scheduler is running" in out
    assert "shop.price" in out
    assert "silent" in out


def test_status_as_json_can_be_read_by_programs(gristmill: Gristmill, seeding: Seeding) -> None:
    seeding.count(state__running=3)

    body = json.loads(gristmill("status", "--json").out)

    assert body["overview"]["counts"]["states"]["running"] == 3
    assert "no-scheduler" in {alert["code"] for alert in body["overview"]["alerts"]}


def test_tasks_lists_the_newest_first_and_filters(gristmill: Gristmill, seeding: Seeding) -> None:
    seeding.changes(("c.0000001", "failed", 1, WORKER, "shop.price", 10, 10, 10, "ValueError: no\x1b[31m"))
    seeding.changes(("c.0000002", "success", 1, WORKER, "shop.tax", 10, 10, 10))

    listed = gristmill("tasks").out
    assert listed.index("c.0000002") < listed.index("c.0000001")
    assert "\x1b" not in listed

    rows = json.loads(gristmill("tasks", "--state", "failed", "--json").out)["rows"]
    assert [row["task"] for row in rows] == ["c.0000001"]
    assert "none among the newest 2 changes" in gristmill("tasks", "--function", "nothing").err


def test_task_shows_record_story_and_recipes(gristmill: Gristmill, seeding: Seeding) -> None:
    seeding.lane("python3.11", waiting=1)
    seeding.task("c.0000001", call="gAWVAAAA", order=1)
    seeding.changes(("c.0000001", "inactive", 0, "", "shop.price"))

    code, out, _ = gristmill("task", "c.0000001")

    assert code == exits.OK
    assert "inactive: shop.price c.0000001" in out
    assert "6 B, pickled" in out
    assert "redis-cli" in out
    assert json.loads(gristmill("task", "c.0000001", "--json").out)["state"] == "inactive"


def test_a_task_that_nobody_knows_has_an_exit_code_of_its_own(gristmill: Gristmill) -> None:
    code, out, err = gristmill("task", "c.0000001")

    assert (code, out) == (exits.NOT_FOUND, "")
    assert "nobody knows task c.0000001" in err


@pytest.mark.parametrize("command", ["task", "cancel"])
@pytest.mark.parametrize("wrong", ["c", "c.x", "../c.1", "c.1;", "*.1"])
def test_what_is_no_task_id_is_refused_in_one_line(gristmill: Gristmill, command: str, wrong: str) -> None:
    code, _, err = gristmill(command, wrong)

    assert code == exits.USAGE
    assert err.count("\n") == 1
    assert "expected the id of a task" in err


def test_cancel_waits_until_the_schedulers_have_canceled(
    gristmill: Gristmill, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.scheduler("s1")
    seeding.task("c.0000001")
    seeding.task("c.0000002", state="running", worker=WORKER)

    def schedule() -> None:
        wait_until(lambda: database.length(keys.cancels()), "the cancel lies in the stream")
        seeding.changes(("c.0000001", "canceled", 0, "", "f"), ("c.0000002", "canceling", 1, WORKER, "f"))
        seeding.changes(("c.0000002", "success", 1, WORKER, "f"))

    scheduling = threading.Thread(target=schedule)
    scheduling.start()
    code, out, err = gristmill("cancel", "c.0000001", "c.0000002", "--reason", "wrong input", "--wait", "60")
    scheduling.join()

    assert (code, err) == (exits.OK, "")
    assert "c.0000001  canceled" in out
    assert "c.0000002  success: it had ended before the cancel reached it" in out
    (entry,) = database.stream(keys.cancels())
    body = json.loads(entry.fields["cancel"])
    assert (body["tasks"], body["client"], body["reason"]) == (["c.0000001", "c.0000002"], "", "wrong input")


def test_cancel_says_what_goes_on_when_nobody_schedules(gristmill: Gristmill, seeding: Seeding) -> None:
    seeding.task("c.0000001")

    code, out, err = gristmill("cancel", "c.0000001", "--wait", "0.05")

    assert code == exits.FAILED
    assert "c.0000001  inactive: the cancel is on its way" in out
    assert "no scheduler is running" in err


def test_cancel_of_what_has_ended_or_was_never_there_asks_nobody(
    gristmill: Gristmill, seeding: Seeding, database: Database, keys: Keys
) -> None:
    seeding.changes(("c.0000001", "success", 1, WORKER, "f"))

    code, out, _ = gristmill("cancel", "c.0000001", "c.0000002")

    assert code == exits.NOT_FOUND
    assert "c.0000001  success" in out
    assert "c.0000002  unknown" in out
    assert not database.exists(keys.cancels())


@pytest.mark.parametrize("command", ["status", "tasks", "task", "cancel"])
def test_help_ends_in_worked_examples(gristmill: Gristmill, command: str) -> None:
    code, out, _ = gristmill(command, "--help")

    assert code == exits.OK
    assert f"gristmill {command}" in out.partition("Examples:")[2]


def test_redis_away_is_one_line_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.run(cli.gristmill, ["status", "--redis", "unix:///nowhere/redis.sock"])

    assert end.value.code == exits.CONNECT
    assert capsys.readouterr().err.count("\n") == 1
