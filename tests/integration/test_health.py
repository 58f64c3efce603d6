"""/healthz and /readyz of schedulers and workers: a loop that stands still is not well, whatever the port says."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill.errors import SettingError
from gristmill.health import Health
from support.leaks import Leaks
from support.server import RedisServer
from support.waiting import wait_until


def ask(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Program:
    """One program with a health port of its own."""

    def __init__(self, module: str, address: str, folder: Path) -> None:
        self.log = folder / f"{module}.log"
        arguments = ["--redis", address, "--health-port", "0", "--log-format", "json"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=log, stderr=log)

    @property
    def address(self) -> str:
        """Where its health is."""
        return wait_until(self._found, f"it says where its health is: {self.log.read_text()}")

    def _found(self) -> str:
        found = re.search(r"(http://127\.0\.0\.1:\d+)/healthz", self.log.read_text())
        return found[1] if found else ""

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@pytest.fixture(params=["gristmill.scheduler", "gristmill_worker"])
def program(
    no_leaks: Leaks, request: pytest.FixtureRequest, own_server: RedisServer, tmp_path: Path
) -> Iterator[Program]:
    scheduler = Program("gristmill.scheduler", own_server.address, tmp_path)
    programs = [scheduler]
    if request.param != "gristmill.scheduler":
        programs.append(Program(request.param, own_server.address, tmp_path))
    yield programs[-1]
    for one in programs:
        one.end()


def test_a_program_is_well_without_redis_and_ready_with_it(program: Program, own_server: RedisServer) -> None:
    wait_until(lambda: ask(f"{program.address}/readyz") == (200, "ok\n"), "it is ready")

    own_server.kill()

    wait_until(lambda: ask(f"{program.address}/readyz")[0] == 503, "it is not ready")
    assert ask(f"{program.address}/readyz") == (503, "it is not in touch with Redis\n")
    assert ask(f"{program.address}/healthz") == (200, "ok\n")
    own_server.start()
    wait_until(lambda: ask(f"{program.address}/readyz")[0] == 200, "it is ready again")


def test_what_is_not_there_is_not_answered(program: Program) -> None:
    assert ask(f"{program.address}/")[0] == 404


def test_a_loop_that_stands_still_is_not_well_though_the_port_answers() -> None:
    health = Health(stuck_seconds=30)
    health.ready = True
    with health.serve("127.0.0.1", 0) as port:
        assert ask(f"http://127.0.0.1:{port}/healthz") == (200, "ok\n")
        health.turned_at -= 31
        for path in ("healthz", "readyz"):
            status, text = ask(f"http://127.0.0.1:{port}/{path}")
            assert status == 503
            found = re.match(r"its loop has not turned for (\d+) s", text)
            assert found is not None
            assert int(found[1]) >= 31
        health.beat()
        assert ask(f"http://127.0.0.1:{port}/healthz")[0] == 200


def test_a_port_that_is_taken_is_refused_in_one_sentence() -> None:
    with (
        Health(stuck_seconds=1).serve("127.0.0.1", 0) as port,
        pytest.raises(SettingError, match="--health-port: expected a free port"),
        Health(stuck_seconds=1).serve("127.0.0.1", port),
    ):
        pytest.fail("the port was free")


def test_without_a_port_nothing_listens() -> None:
    with Health(stuck_seconds=1).serve("127.0.0.1", -1) as port:
        assert port == -1
