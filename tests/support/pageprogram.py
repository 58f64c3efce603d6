"""The status page as a process, as people run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from support.waiting import wait_until


class PageProgram:
    """`python -m gristmill_web` on a free port; `address` is without the slash at its end."""

    def __init__(self, redis: str, namespace: str, *options: str, port: int = 0) -> None:
        self.arguments = [
            sys.executable, "-m", "gristmill_web", "--redis", redis, "--namespace", namespace, "--port", str(port),
            "--refresh-seconds", "0.2", "--log-level", "warning", *options,
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start it, again on the port that it had."""
        self.process = subprocess.Popen(self.arguments, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.fullmatch(r"Status page: (http://127\.0\.0\.1:(\d+)\S*)/\n", line)
        assert found, f"expected the address; got {line!r}"
        self.address = found[1]
        self.arguments[self.arguments.index("--port") + 1] = found[2]

    def stop(self) -> None:
        """End it, and wait until it has."""
        self.process.terminate()
        wait_until(lambda: self.process.poll() is not None, "the page ends")
        assert self.process.stdout is not None
        self.process.stdout.close()
