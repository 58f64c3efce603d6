"""A client under chaos: it submits random work until it is told to stop, and writes its history.

One JSON object a line: `submit` before a task is sent, `cancel` before it is cancelled, `done` when its future has
resolved (each time that it does), `end` when every future has.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

from chaos import work
from gristmill import Client, Future

OUTSTANDING = 150
END_SECONDS = 240.0
LARGE_BYTES = 200_000


class History:
    """Lines in a file; written at once, for the program may be killed."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lock = threading.Lock()

    def write(self, kind: str, **facts: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.time_ns(), **facts}) + "\n"
        with self._lock:
            os.write(self._file, line.encode())


class Submitter:
    """Submits, cancels, and notes what becomes of it."""

    def __init__(self, client: Client, name: str, seed: int, folder: Path) -> None:
        self.client = client
        self.name = name
        self.random = random.Random(seed)
        self.history = History(folder / f"{name}.history")
        self.journal = str(folder / "journal")
        self.pending: dict[str, Future] = {}
        self.count = 0

    def token(self) -> str:
        self.count += 1
        return f"{self.name}-{self.count}"

    def note(self, token: str, future: Future) -> Future:
        """Follow a future that was submitted."""
        self.pending[token] = future
        future.add_done_callback(lambda _: self.done(token, future))
        return future

    def done(self, token: str, future: Future) -> None:
        facts: dict[str, Any] = {"token": token, "task": future.task_id}
        if future.cancelled():
            facts["how"] = "cancelled"
        elif (error := future.exception()) is not None:
            facts.update(how="error", error=type(error).__name__, text=str(error)[:300])
        else:
            value = future.result()
            facts.update(how="value", value=len(value) if isinstance(value, bytes) else value)
        self.history.write("done", **facts)
        self.pending.pop(token, None)

    def single(self, seconds: float, *needs: tuple[str, Future, int], **options: Any) -> tuple[str, Future, int]:
        """One task, perhaps behind others: its token, its future, and the value that it must have."""
        token = self.token()
        value = work.value_of(token, tuple(need[2] for need in needs))
        self.history.write("submit", token=token, expect="value", value=value, needs=[need[0] for need in needs])
        calls = self.client.options(**options) if options else self.client
        arguments = [need[1] for need in needs]
        return token, self.note(token, calls.submit(work.work, self.journal, token, seconds, *arguments)), value

    def failing(self) -> tuple[str, Future, int]:
        token = self.token()
        self.history.write("submit", token=token, expect="error", value=None, needs=[])
        return token, self.note(token, self.client.submit(work.fail, self.journal, token)), 0

    def retried(self) -> None:
        token = self.token()
        self.history.write("submit", token=token, expect="value", value=work.value_of(token), needs=[], retries=1)
        calls = self.client.options(retries=1, retry_delay=self.random.choice([0.0, 0.2]))
        self.note(token, calls.submit(work.fail_once, self.journal, token))

    def large(self) -> None:
        token, data = self.token(), self.random.randbytes(LARGE_BYTES)
        self.history.write("submit", token=token, expect="value", value=LARGE_BYTES, needs=[])
        self.note(token, self.client.submit(work.measure, self.journal, token, data))

    def graph(self) -> None:
        """A few tasks behind each other; now and then the first one fails, and all behind it."""
        nodes = [self.failing() if self.random.random() < 0.1 else self.single(self.seconds())]
        for _ in range(self.random.randint(2, 12)):
            chosen = self.random.sample(nodes, min(len(nodes), self.random.randint(1, 3)))
            nodes.append(self.single(self.seconds(), *chosen, priority=self.random.choice([0, 0, 5])))

    def cancel_some(self) -> None:
        """Cancel what is under way, some of it long."""
        for _ in range(3):
            self.single(5.0)
        tokens = self.random.sample(sorted(self.pending), min(len(self.pending), 4)) + sorted(self.pending)[-3:]
        chosen = {token: future for token in tokens if (future := self.pending.get(token))}
        self.history.write("cancel", tokens=sorted(chosen))
        self.client.cancel(chosen.values(), timeout=30.0)

    def seconds(self) -> float:
        return self.random.choice([0.0, 0.001, 0.005, 0.02, 0.02, 0.05, 0.5 if self.random.random() < 0.1 else 0.0])

    def step(self) -> None:
        """One more piece of work."""
        choice = self.random.random()
        if choice < 0.55:
            for _ in range(self.random.randint(1, 40)):
                self.single(self.seconds())
        elif choice < 0.75:
            self.graph()
        elif choice < 0.85:
            self.retried()
        elif choice < 0.95:
            self.cancel_some()
        else:
            self.large()


def main() -> None:
    """Submit until the file `stop` exists, wait for all that is under way, and leave."""
    parser = argparse.ArgumentParser()
    for name in ("address", "namespace", "name", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    folder = Path(options.folder)
    with Client(options.address, namespace=options.namespace, connect_timeout=120) as client:
        submitter = Submitter(client, options.name, options.seed, folder)
        while not (folder / "stop").exists():
            if len(submitter.pending) < OUTSTANDING:
                submitter.step()
            time.sleep(0.02)
        submitter.history.write("stopping")
        deadline = time.monotonic() + END_SECONDS
        while submitter.pending and time.monotonic() < deadline:
            time.sleep(0.02)
        submitter.history.write("end", pending=sorted(submitter.pending))


if __name__ == "__main__":
    main()
