"""The page as a process: it says where it is, and ends when told to or when its owner does."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from gristmill.cli import exits
from gristmill.owner import OWNER_VARIABLE
from support.server import RedisServer


class Program:
    """`python -m gristmill_web`, and what it has said."""

    def __init__(self, *arguments: str, owner: int | None = None) -> None:
        self._ended, self._errors = False, ""
        environment = {**os.environ, **({OWNER_VARIABLE: str(owner)} if owner is not None else {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gristmill_web", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            pass_fds=() if owner is None else (owner,),
        )  # fmt: skip

    def address(self) -> str:
        """The first line that it prints; it serves by then."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"Status page: (http://\S+)\n", line)
        assert found, f"expected the address; got {line!r}"
        return found[1]

    def end(self) -> tuple[int, str]:
        """Exit code and standard error."""
        if not self._ended:
            self._ended = True
            _, self._errors = self.process.communicate(timeout=60)
        return self.process.returncode, self._errors


Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts programs, and kills those that are left when the test has failed."""
    programs: list[Program] = []

    def start(*arguments: str, owner: int | None = None) -> Program:
        programs.append(Program(*arguments, owner=owner))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
        program.end()


@pytest.fixture
def arguments(server: RedisServer, namespace: str) -> list[str]:
    return ["--redis", server.address, "--namespace", namespace, "--port", "0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(start: Start, arguments: list[str], number: signal.Signals) -> None:
    program = start(*arguments)
    with urllib.request.urlopen(program.address(), timeout=60) as answer:
        assert answer.status == 200
        assert "Server" not in answer.headers

    program.process.send_signal(number)

    code, errors = program.end()
    assert code == exits.OK
    assert "Traceback" not in errors


def test_it_ends_with_its_owner(start: Start, arguments: list[str]) -> None:
    read_end, write_end = os.pipe()
    program = start(*arguments, owner=read_end)
    program.address()
    os.close(read_end)

    os.close(write_end)

    assert program.end()[0] == exits.OK


def test_headers_of_proxies_that_were_not_declared_change_nothing(start: Start, arguments: list[str]) -> None:
    program = start(*arguments)
    request = urllib.request.Request(program.address(), headers={"X-Forwarded-Prefix": "/mill"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert b"/mill" not in answer.read()
    program.process.terminate()
    program.end()


def test_a_host_name_of_somebody_else_is_refused_on_the_wire(start: Start, arguments: list[str]) -> None:
    program = start(*arguments)
    request = urllib.request.Request(program.address(), headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(request, timeout=60)
    program.process.terminate()
    program.end()


def test_an_open_address_is_refused_in_one_sentence(start: Start, arguments: list[str]) -> None:
    code, errors = start(*arguments, "--host", "0.0.0.0").end()

    assert code == exits.USAGE
    assert errors.count("\n") == 1
    assert "--guarded" in errors


def test_a_port_that_is_taken_is_refused_in_one_sentence(start: Start, arguments: list[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, errors = start(*arguments[:-1], str(taken.getsockname()[1])).end()

    assert code == exits.FAILED
    assert errors.count("\n") == 1
    assert "choose another --port" in errors


def test_it_starts_without_redis_and_says_so_on_the_page(start: Start) -> None:
    program = start("--redis", "unix:///nowhere/redis.sock", "--port", "0")
    with urllib.request.urlopen(program.address(), timeout=60) as answer:
        assert b"Redis is away." in answer.read()
    program.process.terminate()

    assert program.end()[0] == exits.OK
