"""A node of a Redis cluster is refused in one sentence, by whoever connects to it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill.cli import exits
from gristmill.errors import AddressError
from gristmill.store.connection import Connection, connect_patiently
from support.server import READY, free_port, require_server_binary


def started(path: Path) -> subprocess.Popen[bytes]:
    """A node that is ready. Another program may take a port that was free a moment ago."""
    said: list[bytes] = []
    for _ in range(5):
        command = [str(require_server_binary()), "--bind", "127.0.0.1", "--port", str(free_port())]
        command += ["--unixsocket", str(path), "--dir", str(path.parent), "--save", "", "--cluster-enabled", "yes"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if READY in line:
                return process
        with process:
            pass
    pytest.fail(f"the node did not start:\n{b''.join(said).decode(errors='replace')}")


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    """The address of a server that runs as a node of a cluster."""
    with tempfile.TemporaryDirectory(prefix="gmtest-") as folder:
        path = Path(folder) / "redis.sock"
        with started(path) as process:
            yield f"unix://{path}"
            process.kill()


def test_a_connection_says_so_and_is_closed(node: str) -> None:
    connection = Connection(node)
    with pytest.raises(AddressError) as caught:
        connection.connect()

    assert "expected a Redis that is not a cluster" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not connection.connected


def test_nobody_tries_again(node: str) -> None:
    connection = Connection(node)

    with pytest.raises(AddressError, match="not a cluster"):
        connect_patiently(connection, give_up_after=1000)


@pytest.mark.parametrize("module", ["gristmill.scheduler", "gristmill_worker"])
def test_a_program_ends_with_one_line(node: str, module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", module, "--redis", node],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert ended.returncode == exits.USAGE
    assert "expected a Redis that is not a cluster" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
