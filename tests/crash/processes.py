"""The sweep over real processes: a client, a worker, its processor and a scheduler, one of them killed at one of its
Redis commands by the fault proxy, which holds the command, or its reply, until the process is dead.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from crash.points import Mode, Point
from crash.world import BrokenLawError
from gristmill.owner import OWNER_VARIABLE, Lifeline
from gristmill.protocol.keys import Keys
from support.database import Database
from support.invariants import violations
from support.leases import end_leases
from support.proxy import PASS, Command, Fault, FaultProxy, Verdict

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 180.0
LEASE_SECONDS = 30.0
"""Of an agent: it is not to be taken for dead on a slow machine. That of a dead one is ended by hand."""
ROLES = {"client": "crash.program", "agent": "gristmill_worker", "processor": "gristmill_worker.processor",
         "scheduler": "gristmill.scheduler"}  # fmt: skip
"""The module that each kind of process runs."""
FAULTS = {
    Mode.BEFORE: Fault.CUT_BEFORE,
    Mode.AFTER: Fault.CUT_AFTER,
    Mode.LOST: Fault.LOSE_REPLY,
    Mode.CUT: Fault.LOSE_REPLY,
}
EXPECTED = {
    "chain": [1, 3, 5],
    "large": True,
    "failing": "ValueError",
    "many": [1] * 8,
    "cancelled": [True, True],
}


class Run(NamedTuple):
    """What one run was."""

    commands: int
    """How many commands the first process of the role sent."""
    crashed_at: str


class Trap:
    """Finds the first process of a role by what it runs, and strikes at its command."""

    def __init__(self, role: str, point: Point | None) -> None:
        self.role = role
        self.point = point
        self.victim = 0
        self.commands = 0
        self.crashed_at = ""
        self._roles: dict[int, str] = {}

    def judge(self, command: Command) -> Verdict:
        pid = command.pid
        if pid not in self._roles:
            self._roles[pid] = role_of(pid)
        if self._roles[pid] != self.role or (self.victim and pid != self.victim):
            return PASS
        self.victim, self.commands = pid, command.number
        if self.point is None or self.crashed_at or command.number != self.point.number:
            return PASS
        self.crashed_at = command.name.decode()
        kill = None if self.point.mode is Mode.CUT else lambda: _kill(pid)
        return Verdict(FAULTS[self.point.mode], kill)


def role_of(pid: int) -> str:
    """What a process runs; empty for the test itself."""
    try:
        line = psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return ""
    module = line[line.index("-m") + 1] if "-m" in line else ""
    return next((role for role, runs in ROLES.items() if runs == module), "")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Machine:
    """Processes with a supervisor: a scheduler or worker that ends is started again, a client followed by another."""

    def __init__(self, redis: Path, trap: Trap, folder: Path) -> None:
        self.folder = folder
        self.trap = trap
        self.keys = Keys(f"crash-{secrets.token_hex(4)}")
        self.database = Database(f"unix://{redis}")
        self.proxy = FaultProxy(redis)
        self.proxy.on_command = trap.judge
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.clients = 0
        self.dead_agents: set[int] = set()
        self.lifeline = Lifeline()

    def __enter__(self) -> Machine:
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            for child in [*_children(process.pid), process.pid]:
                _kill(child)
            process.wait()
        self.lifeline.cut()
        self.proxy.__exit__()
        for key in self.database.keys(self.keys.prefix):
            self.database.run("UNLINK", key)
        self.database.close()

    def start(self, role: str) -> None:
        arguments = {
            "scheduler": ["--takeover-seconds=0.5", "--sweep-seconds=0.3"],
            "agent": ["--concurrency=1", f"--worker-lease-seconds={LEASE_SECONDS}"],
            "client": [self.proxy.address, self.keys.namespace, str(self.folder), f"client{self.clients}"],
        }[role]
        paths = [str(ROOT / part) for part in ("broker", "worker", "tests")]
        with (self.folder / "log").open("ab") as log:
            self.running[role] = subprocess.Popen(
                [sys.executable, "-m", ROLES[role], *arguments],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GRISTMILL_REDIS": self.proxy.address,
                     "GRISTMILL_NAMESPACE": self.keys.namespace, OWNER_VARIABLE: str(self.lifeline.descriptor)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                pass_fds=(self.lifeline.descriptor,),
            )  # fmt: skip

    def supervise(self) -> bool:
        """Replace what has ended; whether a client has come to its end."""
        for role in ("scheduler", "agent"):
            if self.running[role].poll() is not None:
                if role == "agent":
                    self.dead_agents.add(self.running[role].pid)
                self.start(role)
        if self.dead_agents:
            end_leases(self.database, self.keys, self.dead_agents)
        code = self.running["client"].poll()  # looked at first: the file is there before it ends
        if (self.folder / f"client{self.clients}.json").exists():
            return code is not None
        if code == -signal.SIGKILL and self.trap.role == "client":
            self.clients += 1
            self.start("client")
        elif code is not None:
            raise BrokenLawError(f"the client ended with exit code {code}:\n{self._log()}")
        return False

    def until(self, condition: Callable[[], bool], description: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise BrokenLawError(f"never came true: {description}\n{self._log()}")
            threading.Event().wait(0.02)

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def judge(self) -> None:
        """All values right, nothing run again but what was killed in its execution, nothing out of place."""
        found = json.loads((self.folder / f"client{self.clients}.json").read_text())
        if found != EXPECTED:
            raise BrokenLawError(f"the client found {found}")
        starts = Counter((self.folder / "journal").read_text().split())
        killed = self.trap.crashed_at and self.trap.point and self.trap.point.mode is not Mode.CUT
        again = {token: count for token, count in starts.items() if count > 1}
        # One task was executing at most; those read with it and not started are not run again.
        if sum(again.values()) - len(again) > (1 if killed and self.trap.role in ("agent", "processor") else 0):
            raise BrokenLawError(f"run again: {again}")
        for client in self.database.zset(self.keys.clients()):
            self.database.run("ZADD", self.keys.clients(), "XX", -1, client)
        last: list[str] = []

        def at_rest() -> bool:
            last[:] = violations(self.database, self.keys)
            return not last and not self.database.keys(self.keys.task(""))

        try:
            self.until(at_rest, "everything is at rest")
        except BrokenLawError as error:
            raise BrokenLawError(f"{error}\n  " + "\n  ".join(last)) from None
        if self.proxy.failure:
            raise BrokenLawError(f"the fault proxy failed: {self.proxy.failure!r}")


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def run(redis: Path, role: str, point: Point | None = None) -> Run:
    """One run on the Redis at a unix socket, with a crash or without.

    Raises `BrokenLawError` with the point and the command in its text.
    """
    trap = Trap(role, point)
    with tempfile.TemporaryDirectory(prefix="gmtest-crash-") as folder, Machine(redis, trap, Path(folder)) as machine:
        for each in ("scheduler", "agent", "client"):
            machine.start(each)
        try:
            machine.until(machine.supervise, "a client has come to its end")
            machine.judge()
        except BrokenLawError as error:
            where = f"{point.mode.value}: command {point.number} ({trap.crashed_at})" if point else "no crash"
            raise BrokenLawError(f"real processes, {role} {where}: {error}") from error
    return Run(trap.commands, trap.crashed_at)
