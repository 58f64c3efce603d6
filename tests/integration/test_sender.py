"""What the agent reports: a refusal for good is told and passed over, any other is tried again."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterator

import pytest

from gristmill.protocol.keys import Keys
from gristmill.store.connection import ReplyError, pack
from gristmill_worker.sender import Answer, Sender
from support.database import Database
from support.waiting import wait_until


@pytest.fixture
def sender(database: Database) -> Iterator[Sender]:
    sender = Sender(database.address, "test", lambda function: function())
    yield sender
    assert sender.finish(10)


def refused(keys: Keys, code: str) -> bytes:
    """A command that Redis answers with an error of that code until the key `stop` exists."""
    script = "if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end return redis.error_reply(ARGV[1])"
    return pack(("EVAL", script, 1, keys.prefix + "stop", f"{code} not now"))


@pytest.mark.parametrize("code", ["ERR", "WRONGTYPE", "NOGROUP"])
def test_a_refusal_for_good_holds_nothing_up_and_is_told_unless_it_is_expected(
    sender: Sender, keys: Keys, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    answers: queue.Queue[Answer] = queue.Queue()

    sender.post([refused(keys, code)], answers.put)

    assert isinstance(answers.get(timeout=10).replies[0], ReplyError)
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == (code != "NOGROUP")
    assert all(f"{code} not now" in record.__dict__["cause"] for record in told)


@pytest.mark.parametrize(("code", "level"), [("OOM", logging.WARNING), ("ODD", logging.ERROR)])
def test_any_other_refusal_is_told_once_and_tried_again(
    sender: Sender, database: Database, keys: Keys, caplog: pytest.LogCaptureFixture, code: str, level: int
) -> None:
    caplog.set_level(logging.INFO)
    answers: queue.Queue[Answer] = queue.Queue()

    sender.post([refused(keys, code)], answers.put)
    wait_until(lambda: caplog.records, "the refusal is told")
    assert answers.empty()
    database.run("SET", keys.prefix + "stop", "1")

    assert answers.get(timeout=10).replies == [1]
    assert [record.levelno for record in caplog.records] == [level, logging.INFO]
