"""`stream_output` brings what tasks print, log and have others print to the client, line by line."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gristmill import Client, LocalCluster, OutputLine
from gristmill.client import printing
from gristmill.client.callbacks import Callbacks
from gristmill.client.printing import Printing
from gristmill.protocol.messages import OutputMessage, encode
from gristmill.store.connection import Connection
from support.waiting import wait_until


class Seen(list[OutputLine]):
    def texts(self, stream: str = "") -> list[str]:
        return [line.text for line in self if stream in ("", line.stream)]


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def watching(cluster: LocalCluster, seen: Seen) -> Iterator[Client]:
    with Client(cluster, stream_output=seen.append) as client:
        yield client


def say(*lines: str) -> None:
    for line in lines:
        print(line)


def speak_in_all_ways() -> None:
    print("printed")
    print("to stderr", file=sys.stderr)
    logging.getLogger("mine").warning("logged")
    os.write(1, b"written\n")
    subprocess.run(["sh", "-c", "echo by a child; echo its error >&2"], check=True)
    ctypes.CDLL(None).puts(b"by C code")
    print("without an end", end="")


def test_all_that_a_task_prints_comes_with_its_id(watching: Client, seen: Seen) -> None:
    future = watching.submit(speak_in_all_ways)
    future.result()
    wait_until(lambda: len(seen) >= 8, "all lines have come")

    assert sorted(seen.texts("out")) == ["by C code", "by a child", "printed", "without an end", "written"]
    assert sorted(seen.texts("err")) == ["WARNING:mine:logged", "its error", "to stderr"]
    assert {line.task_id for line in seen} == {future.task_id}


def test_lines_come_while_the_task_executes_and_in_order(
    watching: Client, seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, take = watching._session.printing, watching._session.printing.take
    notices: list[tuple[str, int, int]] = []

    def note(message: dict[str, Any]) -> None:
        notices.append((message["task"], message["attempt"], message["number"]))
        take(message)

    monkeypatch.setattr(shown, "take", note)

    def talk(started: str, gate: str, end: str) -> None:
        from support import tasks

        print(0)
        tasks.wait_for_file(started, gate)
        for number in (1, 2):
            print(number)
            time.sleep(0.3)
        tasks.wait_for_file(started, end)
        print(3)

    gate, end = tmp_path / "gate", tmp_path / "end"
    future = watching.submit(talk, str(tmp_path / "started"), str(gate), str(end))
    wait_until(lambda: seen.texts(), "the first line has come")
    assert not future.done()
    gate.touch()
    wait_until(lambda: len(seen) == 3, "all lines have come")
    assert not future.done()
    end.touch()
    future.result()
    wait_until(lambda: len(seen) == 4, "the last line has come")
    assert seen.texts() == ["0", "1", "2", "3"]
    attempt = future.profiling_info().attempt
    assert sorted(notices) == [(future.task_id, attempt, number) for number in range(len(notices))]


def test_each_line_has_the_id_of_its_own_task(watching: Client, seen: Seen) -> None:
    futures = [watching.submit(say, str(number), "again") for number in range(20)]
    watching.gather(futures)
    wait_until(lambda: len(seen) == 40, "all lines have come")

    assert {line.task_id: line.text for line in seen if line.text != "again"} == {
        future.task_id: str(number) for number, future in enumerate(futures)
    }


def test_too_much_is_left_out_and_counted(watching: Client, seen: Seen, tmp_path: Path) -> None:
    def flood(started: str, gate: str) -> None:
        from support import tasks

        # All at once: on a slow machine lines that come one by one might all be shown.
        print("\n".join(f"line {number}" for number in range(100_000)))
        tasks.wait_for_file(started, gate)

    gate = tmp_path / "gate"
    future = watching.submit(flood, str(tmp_path / "started"), str(gate))

    def told() -> int:
        left_out = [text for text in seen.texts("err") if "left out" in text]
        return sum(int(text[1:].split()[0].replace(",", "")) for text in left_out) + len(seen.texts("out"))

    wait_until(lambda: told() > 90_000, "nearly every line is shown, or counted as left out")
    gate.touch()
    future.result()
    assert seen.texts("out")[0] == "line 0"
    assert any("left out" in text for text in seen.texts("err"))
    assert told() <= 100_010


def test_lines_that_nobody_reads_hold_up_no_task(cluster: LocalCluster) -> None:
    """As when standard output is a pipe that is full."""
    has_come, is_read = threading.Event(), threading.Event()

    def show(_: OutputLine) -> None:
        has_come.set()
        is_read.wait(120)

    with Client(cluster, stream_output=show) as client:
        client.submit(say, "one")
        assert has_come.wait(60)
        try:
            assert client.submit(abs, -1).result(timeout=60) == 1
        finally:
            is_read.set()


def test_whoever_is_shown_a_line_may_wait_for_a_task(cluster: LocalCluster) -> None:
    found: list[object] = []

    def show(_: OutputLine) -> None:
        found.append(client.options(stream_output=False).submit(abs, -1).result(timeout=30))

    with Client(cluster, stream_output=show) as client:
        client.submit(say, "one").result(timeout=30)
        wait_until(lambda: found == [1], "the other task has run")


def test_after_a_lost_connection_no_line_comes_again(watching: Client, seen: Seen) -> None:
    watching.submit(say, "one").result(timeout=30)
    wait_until(lambda: seen.texts() == ["one"], "the line has come")
    session = watching._session

    def say_on_a_new_connection(line: str) -> None:
        before = session.recovered
        session.broken = True
        session.courier.wake()
        wait_until(lambda: session.recovered > before, "the client has connected anew")
        watching.submit(say, line).result(timeout=30)
        wait_until(lambda: line in seen.texts(), "the line has come")

    say_on_a_new_connection("two")
    say_on_a_new_connection("three")

    assert seen.texts() == ["one", "two", "three"]


def test_no_line_waits_for_ever_for_one_before_it(
    cluster: LocalCluster, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: list[float] = []

    def show(line: OutputLine) -> None:
        moments.append(time.monotonic())
        seen.append(line)

    def send(number: int) -> None:
        lines = [("out", str(number))]
        message = OutputMessage(task="other.0000001", attempt=1, number=number, lines=lines)  # type: ignore[arg-type]
        inbox.request("XADD", session.keys.client_inbox(session.client_id), "*", "output", encode(message))

    with Client(cluster, stream_output=show) as client:
        session = client._session
        inbox = Connection(session.address, name="test")
        inbox.connect()
        began = time.monotonic()
        send(2)
        wait_until(lambda: seen.texts() == ["2"], "it waits no longer")
        assert moments[0] - began >= printing.PATIENCE_SECONDS
        monkeypatch.setattr(printing, "PATIENCE_SECONDS", 3600.0)
        send(4)
        wait_until(lambda: session.printing.due < float("inf"), "it has come")
    inbox.close()
    assert seen.texts() == ["2", "4"]


def test_lines_for_which_there_is_no_room_are_counted(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "MOST_WAITING", 2)
    callbacks = Callbacks()
    is_read = threading.Event()

    def show(line: OutputLine) -> None:
        is_read.wait(60)
        seen.append(line)

    shown = Printing(show, callbacks)
    for _ in range(4):
        shown.take({"task": "abc.0000001", "lines": [("out", "one"), ("out", "two")], "dropped": 0})
    is_read.set()
    callbacks.stop()
    callbacks.join(30)

    assert seen.texts() == ["one", "two", "(6 lines left out)"]


def test_the_last_words_of_a_task_that_dies(watching: Client, seen: Seen) -> None:
    def die() -> None:
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    watching.options(max_deaths=1).submit(die).exception()
    wait_until(lambda: "last words" in seen.texts(), "they have come")


def test_only_the_tasks_that_are_asked_for(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    quiet = client.submit(say, "not here")
    loud = client.options(stream_output=True).submit(say, "here")
    client.gather([quiet, loud])
    text = ""

    def come() -> bool:
        nonlocal text
        text += capfd.readouterr().out
        return f"{loud.task_id} | here\n" in text

    wait_until(come, "the line is printed")
    assert f"{quiet.task_id} | " not in text


def test_output_after_such_a_task_goes_to_the_log_again(watching: Client, client: Client, seen: Seen) -> None:
    watching.gather([watching.submit(say, "one") for _ in range(4)])
    client.gather([client.submit(speak_in_all_ways) for _ in range(4)])
    wait_until(lambda: len(seen) == 4, "the lines have come")

    assert watching.submit(pow, 2, 3).result() == 8
    assert seen.texts() == ["one"] * 4
