"""The shell lines that show with redis-cli what the read API shows."""

from __future__ import annotations

import shlex
from urllib.parse import parse_qs, unquote, urlsplit

from gristmill.protocol.keys import GROUP_PROCESSORS, Keys
from gristmill.protocol.states import ACTIVE, State


def redis_cli(address: str) -> str:
    """How redis-cli reaches the address; never with the password, which it takes from REDISCLI_AUTH."""
    if not address:
        return "redis-cli"
    parts = urlsplit(address)
    words = ["redis-cli"]
    if parts.scheme == "unix":
        words += ["-s", unquote(parts.path)]
        database = parse_qs(parts.query).get("db", ["0"])[-1]
    else:
        # A Sentinel address has several hosts; redis-cli has to be told the master's by hand.
        host = parts.hostname if "," not in parts.netloc else None
        try:
            port = parts.port
        except ValueError:
            host = port = None
        if host and host not in ("localhost", "127.0.0.1"):
            words += ["-h", host]
        if host and port and port != 6379:
            words += ["-p", str(port)]
        database = parts.path.strip("/") or "0"
    if parts.scheme == "rediss":
        words.append("--tls")
    if parts.username:
        words += ["--user", unquote(parts.username)]
    if database.isdigit() and database != "0":
        words += ["-n", database]
    return shlex.join(words)


def recipes(
    keys: Keys, address: str, task: str, *, state: str, lane: str, worker: str, entry: str
) -> tuple[str, ...]:  # fmt: skip
    """Shell lines for one task: its record, where it lies, and the newest events."""
    cli = redis_cli(address)
    lines = [["HGETALL", keys.task(task)]]
    if state == State.INACTIVE.value and lane:
        lines += [["ZRANK", keys.ready(lane), task], ["SMEMBERS", keys.dependents(task)]]
    if state in {active.value for active in ACTIVE} and worker and entry:
        lines += [
            ["XRANGE", keys.worker_tasks(worker), entry, entry],
            ["XPENDING", keys.worker_tasks(worker), GROUP_PROCESSORS, entry, entry, "1"],
        ]
    shown = [f"{cli} {shlex.join(line)}" for line in lines]
    shown.append(
        f"{cli} {shlex.join(['XREVRANGE', keys.events(), '+', '-', 'COUNT', '1000'])} | grep {shlex.quote(task)}"
    )
    return tuple(shown)
