"""What chaos plays with: a Redis, a fault proxy before it, and processes of every kind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import psutil

from chaos.history import Change, Histories
from gristmill.owner import OWNER_VARIABLE, Lifeline
from gristmill.protocol.keys import Keys, key_kinds
from support.database import Database
from support.proxy import Command, FaultProxy
from support.server import RedisServer

ROOT = Path(__file__).resolve().parents[2]
LEASE_SECONDS = 5.0
SCHEDULERS, WORKERS, CLIENTS = 2, 3, 2
KEPT = {kind.pattern for kind in key_kinds() if "<" not in kind.pattern} - {"workers", "clients", "delayed"}
"""Keys of the installation itself; the rest belongs to somebody, and goes with him."""


class Program(NamedTuple):
    """One process that was started."""

    kind: str
    name: str
    process: subprocess.Popen[bytes]

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


class Installation:
    """Everything of one run; a context manager."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.keys = Keys("chaos")
        self.server = RedisServer(persistent=True)
        self.proxy = FaultProxy(self.server.socket)
        self.histories = Histories()
        self.programs: list[Program] = []
        self._seen = (folder / "seen").open("w")
        self._lifeline = Lifeline()
        self._started = 0
        self._last_event = "0-0"
        self._results = self.keys.results().encode()
        self.proxy.on_reply = self._on_reply

    def __enter__(self) -> Installation:
        self.server.start()
        self.database = Database(self.server.address)
        self.proxy.__enter__()
        for _ in range(SCHEDULERS):
            self.start("scheduler")
        for _ in range(WORKERS):
            self.start("worker")
        for _ in range(CLIENTS):
            self.start("client")
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            for process in tree(program):
                signal_process(process.pid, signal.SIGKILL)
            program.process.wait()
        self._lifeline.cut()
        self.proxy.__exit__()
        self.database.close()
        self.server.discard()
        self._seen.close()

    # --- processes ------------------------------------------------------------------------------------------

    def start(self, kind: str) -> Program:
        """Start one more of a kind."""
        self._started += 1
        name = f"{kind}{self._started}"
        programs = {
            "scheduler": ["gristmill.scheduler", "--takeover-seconds=1", "--sweep-seconds=0.5"],
            "worker": ["gristmill_worker", "--concurrency=2", f"--worker-lease-seconds={LEASE_SECONDS}"],
            "client": ["chaos.client", f"--address={self.proxy.address}", f"--namespace={self.keys.namespace}",
                       f"--seed={self.seed * 1000 + self._started}", f"--folder={self.folder}"],
        }  # fmt: skip
        paths = [str(ROOT / part) for part in ("broker", "worker", "tests")]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *programs[kind], f"--name={name}"],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GRISTMILL_REDIS": self.proxy.address,
                     "GRISTMILL_NAMESPACE": self.keys.namespace, "GRISTMILL_LOG_LEVEL": "info",
                     OWNER_VARIABLE: str(self._lifeline.descriptor)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                pass_fds=(self._lifeline.descriptor,),
            )  # fmt: skip
        program = Program(kind, name, process)
        self.programs.append(program)
        return program

    def living(self, kind: str) -> list[Program]:
        """The processes of a kind that have not ended."""
        return [program for program in self.programs if program.kind == kind and program.alive]

    def complete(self) -> None:
        """Start what is missing."""
        for kind, count in (("scheduler", SCHEDULERS), ("worker", WORKERS), ("client", CLIENTS)):
            for _ in range(count - len(self.living(kind))):
                self.start(kind)

    def processors(self) -> list[int]:
        """The processes in which tasks run."""
        return [process.pid for program in self.living("worker") for process in tree(program)[1:]]

    def kill(self, program: Program) -> None:
        """SIGKILL; its processors end with a worker."""
        if program.kind == "worker":
            self.histories.killed_pids |= {process.pid for process in tree(program)}
        if program.kind == "client":
            self.histories.killed_clients.add(program.name)
        program.process.kill()
        program.process.wait()

    def failed_clients(self) -> list[str]:
        """Clients that ended otherwise than they should."""
        return [
            f"client {program.name} ended with exit code {program.process.returncode}; see its log"
            for program in self.programs
            if program.kind == "client" and program.process.returncode
            if program.name not in self.histories.killed_clients
        ]

    # --- what is seen ---------------------------------------------------------------------------------------

    def _on_reply(self, command: Command, reply: bytes) -> None:
        """In the thread of the proxy: an outcome that Redis has taken."""
        words = command.words
        if command.name != b"XADD" or words[1] != self._results or not reply.startswith(b"$"):
            return
        kind, body = words[-2:]
        if kind == b"outcomes":
            at_ms = int(reply.split(b"\r\n")[1].partition(b"-")[0])
            message = orjson.loads(body)
            for task, attempt, status, *_ in message["outcomes"]:
                self._write("outcome", at_ms, message["worker"], task, attempt, status)
                if status != "retry":
                    self.histories.outcomes.setdefault((task, attempt), at_ms)
        elif kind in (b"returned", b"confirms", b"held"):
            self._write(kind.decode(), reply, body)

    def _write(self, *words: object) -> None:
        """For people who look for the cause: what was seen, in the folder."""
        print(*words, file=self._seen, flush=True)

    def watch(self) -> None:
        """Read on in the events; they are trimmed some day."""
        while entries := self.database.run("XRANGE", self.keys.events(), f"({self._last_event}", "+", "COUNT", 1000):
            for identity, flat in entries:
                self._last_event = identity.decode()
                at_ms = int(identity.partition(b"-")[0])
                fields = dict(zip(flat[::2], flat[1::2], strict=True))
                workers = orjson.loads(fields[b"workers"])
                for task, state, attempt, worker, *rest in orjson.loads(fields[b"changes"]):
                    about = rest[-1] if rest and isinstance(rest[-1], dict) else {}
                    self.histories.changes[task].append(Change(at_ms, state, attempt, about.get("event", "")))
                    self._write("change", at_ms, task, state, attempt, workers[worker] if worker >= 0 else "-", rest)

    def set_aside(self) -> list[str]:
        """What lies in the quarantine, and why."""
        return [str(entry.fields) for entry in self.database.stream(self.keys.quarantine())]

    def left_behind(self) -> Iterator[str]:
        """Keys that neither expire nor belong to the installation itself, when nobody is there any more."""
        for key in self.database.keys(self.keys.prefix):
            name = key[len(self.keys.prefix) :]
            if name not in KEPT and self.database.lifetime_ms(key) == -1:
                yield name


def tree(program: Program) -> list[psutil.Process]:
    """A process and its descendants."""
    try:
        top = psutil.Process(program.process.pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def signal_process(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
