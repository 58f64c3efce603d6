"""Browsers that have the page open: `python -m gristmill.bench.viewers URL NUMBER SECONDS`, until the input ends.

A process of its own: what it costs to be a browser is not what the page costs.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import urllib.parse
from types import TracebackType

TAG = "Page-Tag"


class Viewers:
    """So many viewers, each of whom polls the overview."""

    def __init__(self, url: str, number: int, seconds: float) -> None:
        command = [sys.executable, "-m", "gristmill.bench.viewers", url, str(number), str(seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def __enter__(self) -> Viewers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def look(url: str, seconds: float, phase: float, over: threading.Event) -> None:
    """One viewer: asks for the fragment again and again, by one connection, and says which one it has."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    headers = {"Accept-Encoding": "gzip"}
    over.wait(phase)
    while not over.is_set():
        connection.request("GET", parts.path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status not in (200, 304):
            raise SystemExit(f"expected the fragment; got {answer.status} {answer.reason}")
        headers[TAG] = answer.headers[TAG]
        over.wait(seconds)


def main(url: str, number: int, seconds: float) -> None:
    """Look until the input ends."""
    over = threading.Event()
    viewers = [
        threading.Thread(target=look, args=(url, seconds, seconds * at / number, over), daemon=True)
        for at in range(number)
    ]
    for viewer in viewers:
        viewer.start()
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
