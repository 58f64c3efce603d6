"""`gristmill top` in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

from gristmill.cli import exits
from gristmill.protocol.keys import Keys
from support.database import Database
from support.seeding import Seeding
from support.server import RedisServer
from support.waiting import wait_until


class Terminal:
    """A program in a pseudo-terminal of 140 by 40."""

    def __init__(self, *command: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40"}
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self.text = ""

    def reads(self, words: str) -> bool:
        """Whether it has shown these words by now."""
        while select.select([self._master], [], [], 0)[0]:
            try:
                self.text += os.read(self._master, 65536).decode(errors="replace")
            except OSError:
                break
        return words in self.text

    def press(self, keys: str) -> None:
        self.text = ""
        os.write(self._master, keys.encode())

    def close(self) -> int:
        def ended() -> bool:
            self.reads("")
            return self.process.poll() is not None

        wait_until(ended, "the program ends")
        os.close(self._master)
        return self.process.returncode


def test_it_shows_the_fleet_sorts_by_a_key_and_ends_by_q(server: RedisServer, database: Database) -> None:
    seeding = Seeding(database, Keys("default"))
    seeding.worker("mill-1|100|w1|aaaa", processors=[{"task": "c.0000001", "function": "shop.price"}])
    seeding.scheduler("s1")
    terminal = Terminal(sys.executable, "-m", "gristmill", "top", "--redis", server.address, "--every", "0.2")
    try:
        for words in ("1 workers on 1 machines", "shop.price", "cpu↓"):  # a screen comes in pieces
            wait_until(lambda words=words: terminal.reads(words), f"it shows {words}")  # type: ignore[misc]
        terminal.press("n")
        wait_until(lambda: terminal.reads("worker↑"), "they are sorted by name")
        terminal.press("q")
        assert terminal.close() == exits.OK
    finally:
        terminal.process.kill()
        terminal.process.wait()


def test_without_a_terminal_it_names_the_command_that_needs_none(server: RedisServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gristmill", "top", "--redis", server.address]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)

    assert answer.returncode == exits.USAGE
    assert "gristmill status --watch" in answer.stderr
