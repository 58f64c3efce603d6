"""What the agent reports: a refusal for good is told and passed over, any other is tried again; so is all trouble."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterator

import hiredis
import pytest

from gristmill.errors import AddressError
from gristmill.protocol.keys import Keys
from gristmill.store.connection import Connection, ReplyError, pack
from gristmill_worker.control import ControlReader
from gristmill_worker.sender import Answer, Sender
from support.database import Database
from support.waiting import wait_until


@pytest.fixture
def sender(database: Database) -> Iterator[Sender]:
    sender = Sender(database.address, "test", lambda function: function())
    yield sender
    assert sender.finish(60)


def said(caplog: pytest.LogCaptureFixture, module: str = "sender") -> list[logging.LogRecord]:
    """What this module has logged; threads that an earlier test has left may log as well."""
    return [record for record in caplog.records if record.name == f"gristmill_worker.{module}"]


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

    assert isinstance(answers.get(timeout=60).replies[0], ReplyError)
    told = [record for record in said(caplog) if record.levelno == logging.ERROR]
    assert len(told) == (code != "NOGROUP")
    assert all(f"{code} not now" in record.__dict__["cause"] for record in told)


@pytest.mark.parametrize(("code", "level"), [("OOM", logging.WARNING), ("ODD", logging.ERROR)])
def test_any_other_refusal_is_told_once_and_tried_again(
    sender: Sender, database: Database, keys: Keys, caplog: pytest.LogCaptureFixture, code: str, level: int
) -> None:
    caplog.set_level(logging.INFO)
    answers: queue.Queue[Answer] = queue.Queue()

    sender.post([refused(keys, code)], answers.put)
    wait_until(lambda: said(caplog), "the refusal is told")
    assert answers.empty()
    database.run("SET", keys.prefix + "stop", "1")

    assert answers.get(timeout=60).replies == [1]
    assert [record.levelno for record in said(caplog)] == [level, logging.INFO]


def trouble_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The next connection ends in this error."""
    connect = Connection.connect

    def trouble(connection: Connection) -> None:
        monkeypatch.setattr(Connection, "connect", connect)
        raise error

    monkeypatch.setattr(Connection, "connect", trouble)


TROUBLES = [AddressError("a node of a cluster"), hiredis.ProtocolError("nonsense")]


@pytest.mark.parametrize("error", TROUBLES, ids=lambda error: type(error).__name__)
def test_whatever_goes_wrong_with_the_connection_is_told_and_tried_again(
    sender: Sender, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    trouble_once(monkeypatch, error)
    answers: queue.Queue[Answer] = queue.Queue()

    sender.post([pack(("PING",))], answers.put)

    assert len(answers.get(timeout=60).replies) == 1
    assert [(record.levelno, record.__dict__["cause"]) for record in said(caplog)] == [(logging.ERROR, str(error))]


@pytest.mark.parametrize("error", TROUBLES, ids=lambda error: type(error).__name__)
def test_whatever_goes_wrong_with_its_connection_a_worker_is_still_told_things(
    database: Database,
    keys: Keys,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    trouble_once(monkeypatch, error)
    heard: queue.Queue[str] = queue.Queue()

    reader = ControlReader(database.address, keys, "w", lambda kind, body: heard.put(kind))
    database.run("XADD", keys.worker_control("w"), "*", "drain", "{}")
    try:
        assert heard.get(timeout=60) == "drain"
        assert said(caplog, "control")[0].__dict__["cause"] == str(error)
    finally:
        reader.stop()
        # One more message ends its read: what its thread says later would be in the log of another test.
        database.run("XADD", keys.worker_control("w"), "*", "drain", "{}")
        wait_until(lambda: not reader._thread.is_alive(), "the thread has ended")
