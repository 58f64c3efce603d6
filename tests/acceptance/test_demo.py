"""`gristmill demo`, the real command: it is right, says so, and leaves nothing behind however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from support.enclosure import Enclosure, enclosure
from support.waiting import wait_until

PATIENCE_SECONDS = 120.0


@pytest.fixture
def place() -> Iterator[Enclosure]:
    """Where the command runs; afterwards no process and no file is left there."""
    with enclosure() as place:
        yield place


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small source tree: two packages, a module, and a file that does not parse."""
    for package in ("mill", "stream"):
        (tmp_path / package).mkdir()
        for number in range(6):
            body = "".join(f"    if a == {depth}: return {depth}\n" for depth in range(number))
            (tmp_path / package / f"part{number}.py").write_text(f"def turn{number}(a):\n{body}    return a\n")
    (tmp_path / "setup.py").write_text("def setup(): pass\n")
    (tmp_path / "mill" / "old.py").write_text("print 'old'\n")
    return tmp_path


@pytest.fixture
def long_tree(tmp_path: Path) -> Path:
    """Enough work that the demo is still at it while it does that once more by itself."""
    source = Path(subprocess.__file__).read_text(encoding="utf-8")
    for number in range(400):
        (tmp_path / f"copy{number}.py").write_text(f"# {number}\n{source}", encoding="utf-8")
    return tmp_path


@pytest.fixture
def endless_tree(long_tree: Path) -> Path:
    """Work for minutes: the demo is still at it while it is interrupted, however late that comes."""
    for number in range(400, 4000):
        os.link(long_tree / f"copy{number % 400}.py", long_tree / f"copy{number}.py")
    return long_tree


def demo(place: Enclosure, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gristmill", "demo", *map(str, arguments)]
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env=place.environment,
    )


class Running:
    """A demo in a session of its own, like one in a terminal: Ctrl-C reaches the whole process group."""

    def __init__(self, place: Enclosure, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "gristmill", "demo", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=place.environment,
        )
        self.printed = ""

    def read_until(self, pattern: str) -> re.Match[str]:
        """Read lines until one matches."""
        stdout = self._stdout()
        for line in stdout:
            self.printed += line
            found = re.search(pattern, line)
            if found:
                return found
        raise AssertionError(f"expected a line with {pattern!r}; got\n{self.printed}")

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def ended(self) -> int:
        """The exit code, once everything is printed."""
        self.printed += self._stdout().read()
        code = self.process.wait(PATIENCE_SECONDS)
        self._stdout().close()
        return code

    def _stdout(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout


def test_the_cluster_and_the_serial_run_agree(place: Enclosure, tree: Path) -> None:
    done = demo(place, "--path", tree, "--workers", "2", "--verify")

    assert done.returncode == 0, done.stderr
    assert "14 files · 3 packages" in done.stdout
    assert "turn5" in done.stdout
    assert "SyntaxError: Missing parentheses" in done.stdout
    assert "17 tasks in" in done.stdout
    assert "every figure is equal" in done.stdout
    assert re.search(r"Watch it at http://127\.0\.0\.1:\d+", done.stdout)


def test_json_is_alone_on_standard_output(place: Enclosure, tree: Path) -> None:
    done = demo(place, "--path", tree, "--workers", "1", "--verify", "--json")

    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found["right"] is True
    assert found["verification"]["agrees"] is True
    assert found["totals"]["files"] == 14
    assert [unparsed["file"] for unparsed in found["unparsed"]] == [f"{tree.name}/mill/old.py"]
    assert sum(found["workers"].values()) == found["tasks"] == 17


def test_a_folder_without_python_files_is_one_line_and_a_usage_error(place: Enclosure, tmp_path: Path) -> None:
    done = demo(place, "--path", tmp_path)

    assert done.returncode == 2
    assert done.stderr.strip() == (
        f"gristmill demo: expected a folder with .py files; got {tmp_path}, which has none; give another --path "
        "(see gristmill demo --help)"
    )


def test_help_ends_in_worked_examples_and_exit_codes(place: Enclosure) -> None:
    printed = demo(place, "--help").stdout

    assert "gristmill demo --verify" in printed
    assert "130 interrupted" in " ".join(printed.split())


@pytest.mark.parametrize("line", ["Gristmill demo", "Watch it at", "(Measuring files|Summing up packages): .* of"])
def test_ctrl_c_at_any_time_ends_it_all(place: Enclosure, endless_tree: Path, line: str) -> None:
    running = Running(place, "--path", endless_tree, "--workers", "2")
    running.read_until(line)

    running.press_ctrl_c()

    assert running.ended() == 130, running.printed
    assert "Traceback" not in running.printed
    assert running.printed.rstrip().endswith("Interrupted: everything was taken down.")


def test_ctrl_c_twice_does_not_disturb_the_tidying_up(place: Enclosure, endless_tree: Path) -> None:
    running = Running(place, "--path", endless_tree, "--workers", "2")
    running.read_until("Watch it at")

    running.press_ctrl_c()
    running.press_ctrl_c()

    assert running.ended() == 130, running.printed
    assert "Traceback" not in running.printed


def test_ctrl_c_during_the_serial_run_ends_it_all(place: Enclosure, long_tree: Path) -> None:
    running = Running(place, "--path", long_tree, "--workers", "2", "--verify")
    running.read_until("Summing up packages: 400 of 400")

    running.press_ctrl_c()

    assert running.ended() == 130, running.printed


def test_a_killed_demo_takes_its_cluster_along(place: Enclosure, endless_tree: Path) -> None:
    running = Running(place, "--path", endless_tree, "--workers", "2")
    running.read_until("Watch it at")

    running.process.kill()

    assert running.ended() == -signal.SIGKILL


def test_keep_stays_up_with_its_page_until_ctrl_c(place: Enclosure, tree: Path) -> None:
    running = Running(place, "--path", tree, "--workers", "1", "--keep")
    address = running.read_until(r"Still up: page (http://\S+), Redis")[1]
    running.read_until("Ctrl-C takes everything down")

    with urllib.request.urlopen(address, timeout=60) as answer:
        assert answer.status == 200
    wait_until(lambda: running.process.poll() is None, "the demo is still up")
    running.press_ctrl_c()

    assert running.ended() == 0, running.printed
