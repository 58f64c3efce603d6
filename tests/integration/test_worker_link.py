"""What a processor says to Redis survives lost replies: nothing is read twice, nothing is left unread."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gristmill.client.nested import Pause
from gristmill.errors import ConnectionLostError, MissingObjectError
from gristmill.protocol.keys import GROUP_PROCESSORS, Keys
from gristmill_worker.board import CANCEL, CONNECTION, WAITING, AgentBoard, ProcessorBoard, row_text
from gristmill_worker.interrupts import Interrupts, TaskCancelled
from gristmill_worker.link import GroupLostError, Link
from gristmill_worker.pauses import Pauses
from support.database import Database
from support.server import RedisServer
from support.waiting import wait_until

WORKER = "host|1|worker|abcd"


@pytest.fixture
def boards() -> Iterator[tuple[AgentBoard, ProcessorBoard]]:
    agent = AgentBoard()
    processor = ProcessorBoard(os.dup(agent.descriptor))
    yield agent, processor
    processor.close()
    agent.close()


@pytest.fixture
def board(boards: tuple[AgentBoard, ProcessorBoard]) -> ProcessorBoard:
    return boards[1]


@pytest.fixture
def link(database: Database, keys: Keys, board: ProcessorBoard) -> Iterator[Link]:
    """A connected link of a worker that has a stream."""
    database.run("XGROUP", "CREATE", keys.worker_tasks(WORKER), GROUP_PROCESSORS, "0", "MKSTREAM")
    link = Link(database.address, keys, WORKER, "p1", board, lambda: None)
    link.connect()
    yield link
    link.close()


def give(database: Database, keys: Keys, *tasks: str) -> None:
    for task in tasks:
        database.run("XADD", keys.worker_tasks(WORKER), "*", "task", f"{task} 1 - AbCdEfGhIj.f1-1 name")


def read(link: Link, count: int = 100) -> list[str]:
    return [fields[b"task"].decode() for _, fields in link.exchange(count, lambda: None)]


def lose_replies(link: Link, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """From the reply after `after` more on, one is lost with the connection; then all is well again."""
    connection, left = link._connection, [after]
    original = connection.read

    def read_or_lose() -> object:
        reply = original()
        left[0] -= 1
        if left[0] == -1:
            connection.close()
            raise ConnectionLostError("lost by the test")
        return reply

    monkeypatch.setattr(connection, "read", read_or_lose)


def finish(board: ProcessorBoard, *tasks: str) -> None:
    """Put outcomes into the board."""
    board.hold([row_text(task.encode(), b"1", b"1-1", b'"f"') for task in tasks])
    for index, task in enumerate(tasks):
        board.start(index, 1)
        board.finish(orjson.dumps([task, 1, "success", "gAVOLg==", 1, 1, 1, None]))


def sent(database: Database, keys: Keys) -> list[list[str]]:
    """Tasks of every entry of outcomes."""
    return [
        [row[0] for row in orjson.loads(entry.fields["outcomes"])["outcomes"]]
        for entry in database.stream(keys.results())
    ]


class TestReading:
    def test_tasks_are_read_in_order_up_to_the_count(self, link: Link, database: Database, keys: Keys) -> None:
        give(database, keys, "a", "b", "c")

        assert read(link, 2) == ["a", "b"]
        assert read(link, 2) == ["c"]

    def test_tasks_whose_reply_was_lost_are_read_again_and_no_others(
        self, link: Link, database: Database, keys: Keys, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        give(database, keys, "a", "b")
        assert read(link) == ["a", "b"]
        give(database, keys, "c", "d")
        lose_replies(link, monkeypatch, after=0)

        assert read(link) == []
        assert not link.caught_up, "they are still to come"
        give(database, keys, "e")

        assert read(link) == ["c", "d"]
        assert not link.caught_up, "who knows whether these were all"
        assert read(link) == []
        assert link.caught_up
        assert read(link) == ["e"]
        assert link.caught_up

    def test_a_task_that_was_deleted_meanwhile_is_passed_over(
        self, link: Link, database: Database, keys: Keys, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        give(database, keys, "a", "b")
        lose_replies(link, monkeypatch, after=0)
        assert read(link) == []
        database.run("XDEL", keys.worker_tasks(WORKER), database.stream(keys.worker_tasks(WORKER))[0].id)

        assert read(link) == ["b"]

    def test_the_former_connection_is_closed_for_good(
        self, link: Link, database: Database, board: ProcessorBoard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        former = board.words[CONNECTION]
        link.connect()

        listed = database.run("CLIENT", "LIST").decode()
        assert f"id={former} " not in listed
        assert f"id={board.words[CONNECTION]} " in listed

    def test_a_missing_group_is_told(self, link: Link, database: Database, keys: Keys) -> None:
        database.run("XGROUP", "DESTROY", keys.worker_tasks(WORKER), GROUP_PROCESSORS)

        with pytest.raises(GroupLostError):
            link.exchange(1, lambda: None)


class TestOutcomes:
    def test_they_go_with_the_next_read_in_one_entry(
        self, link: Link, database: Database, keys: Keys, board: ProcessorBoard
    ) -> None:
        finish(board, "a", "b")
        give(database, keys, "c")

        assert read(link) == ["c"]
        assert sent(database, keys) == [["a", "b"]]
        assert board.unsent() == b""

    def test_a_lost_reply_sends_them_again(
        self, link: Link, database: Database, keys: Keys, board: ProcessorBoard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        finish(board, "a")
        lose_replies(link, monkeypatch, after=0)

        link.flush()

        assert sent(database, keys) == [["a"], ["a"]]
        assert board.unsent() == b""

    def test_a_reading_reply_that_is_lost_does_not_send_them_again(
        self, link: Link, database: Database, keys: Keys, board: ProcessorBoard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        finish(board, "a")
        give(database, keys, "b")
        lose_replies(link, monkeypatch, after=1)

        assert read(link) == []
        assert read(link) == ["b"]
        assert sent(database, keys) == [["a"]]


class TestObjects:
    def test_what_was_written_is_read(self, link: Link, database: Database, keys: Keys) -> None:
        data = os.urandom(2_500_000)

        link.write_object("AbCdEfGhIj.0000001.1-3", [data])

        assert link.read_object("AbCdEfGhIj.0000001.1-3") == data

    def test_a_missing_one_is_named(self, link: Link) -> None:
        with pytest.raises(MissingObjectError, match=r"AbCdEfGhIj\.f9-1"):
            link.read_object("AbCdEfGhIj.f9-1")

    def test_writing_goes_on_after_a_lost_connection(self, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
        lose_replies(link, monkeypatch, after=1)

        link.write_object("AbCdEfGhIj.0000001.1-3", [b"z" * 3_000_000])

        assert len(link.read_object("AbCdEfGhIj.0000001.1-3")) == 3_000_000


def test_a_server_that_is_no_longer_the_master_is_left_for_the_one_that_its_name_leads_to(
    own_server: RedisServer, database: Database, keys: Keys, board: ProcessorBoard, tmp_path: Path
) -> None:
    name = tmp_path / "redis.sock"
    name.symlink_to(own_server.socket)
    for server in (own_server, database):
        command = server.command if isinstance(server, RedisServer) else server.run
        command("XGROUP", "CREATE", keys.worker_tasks(WORKER), GROUP_PROCESSORS, "0", "MKSTREAM")
    link = Link(f"unix://{name}", keys, WORKER, "p1", board, lambda: None)
    link.connect()
    own_server.command("REPLICAOF", "127.0.0.1", "1")
    name.unlink()
    name.symlink_to(Path(database.address.removeprefix("unix://")))
    give(database, keys, "c.1")

    finish(board, "c.0")
    link.flush()
    assert sent(database, keys) == [["c.0"]]
    wait_until(lambda: read(link) == ["c.1"], "the link reads from the new master")
    link.close()


class Runner:
    """Notes what it is to run."""

    def __init__(self) -> None:
        self.claimed: list[tuple[bytes, int]] = []

    def run_claimed(self, fields: dict[bytes, bytes], stack: object, below: int) -> None:
        self.claimed.append((fields[b"task"], below))

    def priority_of(self, task: str) -> int:
        return 0


class Waiting:
    """A task that executes here, and is about to wait for another."""

    def __init__(self, boards: tuple[AgentBoard, ProcessorBoard], link: Link) -> None:
        self._agent, board = boards
        finish(board, "before")
        self.interrupts = Interrupts(board)
        board.hold([row_text(b"waits", b"1", b"1-2", b'"f"')])
        self.start = board.start(0, 1)
        self.interrupts.enter(self.start)
        self.runner = Runner()
        self.pauses = Pauses(board, link, self.interrupts, lambda: None, WORKER, self.runner)

    def cancel(self) -> None:
        self._agent.interrupt(self.start, CANCEL)
        os.kill(os.getpid(), signal.SIGINT)


class TestPausing:
    """A task that waits is cancelled at an awkward moment."""

    @pytest.fixture
    def waiting(self, boards: tuple[AgentBoard, ProcessorBoard], link: Link) -> Iterator[Waiting]:
        before = signal.getsignal(signal.SIGINT)
        waiting = Waiting(boards, link)
        yield waiting
        waiting.interrupts.running = 0
        signal.signal(signal.SIGINT, before)

    def test_while_outcomes_are_sent_the_connection_stays_fit_for_the_next_task(
        self, waiting: Waiting, link: Link, database: Database, keys: Keys, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = link._connection.read

        def read_interrupted() -> object:
            waiting.cancel()
            return original()

        with monkeypatch.context() as context:
            context.setattr(link._connection, "read", read_interrupted)
            with pytest.raises(TaskCancelled):
                waiting.pauses.pause(Pause(), 0)

        assert sent(database, keys) == [["before"]]
        assert link.read_values(["none"]) == [None]

    def test_a_process_that_it_has_forked_waits_for_itself_alone(
        self, waiting: Waiting, boards: tuple[AgentBoard, ProcessorBoard], database: Database, keys: Keys
    ) -> None:
        boards[1].words[WAITING] = waiting.start
        child = os.fork()
        if not child:
            os._exit(waiting.pauses.pause(Pause(), 0))
        assert os.waitpid(child, 0) == (child, 0)

        assert boards[1].words[WAITING] == waiting.start
        assert boards[1].unsent()
        assert sent(database, keys) == []

    def test_what_it_has_just_claimed_is_not_lost(self, waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
        pause = Pause()

        def take_call() -> list[bytes]:
            waiting.cancel()
            pause.set()
            return [b"task", b"child 1 - AbCdEfGhIj.f1-1 name"]

        monkeypatch.setattr(pause, "take_call", take_call)
        waiting.pauses.pause(pause, 10)

        assert waiting.runner.claimed == [(b"child", waiting.start)]
