"""The judge: what was written down during a run, against the laws.

1. Every task that a living client has submitted resolves exactly once; nothing resolves that was not submitted.
2. It resolves to the value that it must have; to an exception only where one must come, or where its process was
   killed; to a cancel only when it, or what it waits for, was cancelled.
3. No task starts before what it depends on has ended.
4. A task ends once in Redis, and nothing happens to it afterwards; each change is one that the table of states allows.
5. Attempt numbers never fall.
6. An attempt whose final outcome has reached Redis is not followed by another, unless its worker's lease had ended
   before: then it has no say any more, although it may take a moment until all that it held has moved on.
7. No execution starts after its cancel was told to the client.
8. Nobody is told that a task could not be understood.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.protocol.states import TERMINAL, TRANSITIONS

_TERMINAL = {state.value for state in TERMINAL}
MAX_DEATHS = 3
"""The default: so many executions must have been lost before a task may fail for it."""

ENDING_MS = 3000
"""So long it may take from the end of a lease until what the worker held has moved on."""


def _reachable() -> dict[str, set[str]]:
    """What may follow what: a script may take several steps of the table and note only the last."""
    steps: dict[str, set[str]] = defaultdict(set)
    for (state, _), to in TRANSITIONS.items():
        steps[state.value].add(to.value)
    for _ in range(len(steps)):
        for follow in steps.values():
            follow |= {further for state in list(follow) for further in steps.get(state, ())}
    return dict(steps)


REACHABLE = _reachable()


class Start(NamedTuple):
    """One execution of a task that has begun."""

    pid: int
    at: int
    """Nanoseconds of the machine's clock."""


class Change(NamedTuple):
    """One change of a task, as `events` tells it."""

    at_ms: int
    state: str
    attempt: int
    event: str = ""
    """What brought it back to its lane, where `events` says so."""


@dataclass
class ClientHistory:
    """What one client has written down."""

    name: str
    submits: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    cancelled: set[str] = field(default_factory=set)
    """Tokens of the tasks that it has cancelled."""
    ended: bool = False
    """Whether it has waited for everything: false for one that was killed."""
    pending: list[str] = field(default_factory=list)


@dataclass
class Histories:
    """Everything that was written down in a run."""

    clients: list[ClientHistory] = field(default_factory=list)
    killed_clients: set[str] = field(default_factory=set)
    starts: dict[str, list[Start]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """When executions have ended with a value."""
    changes: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    outcomes: dict[tuple[str, int], int] = field(default_factory=dict)
    """(task, attempt) of each final outcome, and when Redis took it, in ms of its clock."""
    killed_pids: set[int] = field(default_factory=set)
    """Processes of workers that were killed."""
    quarantined: list[str] = field(default_factory=list)


def read_client(path: Path) -> ClientHistory:
    """The history of a client; the last line may be torn when it was killed."""
    history = ClientHistory(path.name.partition(".")[0])
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if row["kind"] == "submit":
            history.submits[row["token"]] = row
        elif row["kind"] == "done":
            history.done[row["token"]].append(row)
        elif row["kind"] == "cancel":
            history.cancelled |= set(row["tokens"])
        elif row["kind"] == "end":
            history.ended, history.pending = True, row["pending"]
    return history


def read_journal(path: Path, histories: Histories) -> None:
    """What the tasks have noted."""
    for line in path.read_text().splitlines() if path.exists() else ():
        kind, token, pid, at = line.split()
        if kind == "start":
            histories.starts[token].append(Start(int(pid), int(at)))
        else:
            histories.ends[token].append(int(at))


def broken_laws(histories: Histories) -> list[str]:
    """Every violation, one sentence each."""
    found: list[str] = []
    for client in histories.clients:
        found += _client(client, histories)
    found += _changes(histories)
    found += _outcomes(histories)
    found += [f"law 8: an entry was set aside: {reason}" for reason in histories.quarantined]
    return found


def _client(client: ClientHistory, histories: Histories) -> Iterator[str]:
    if not client.ended and client.name not in histories.killed_clients:
        yield f"law 1: client {client.name} has not come to its end"
    for token in client.pending:
        yield f"law 1: {token} never resolved"
    for token, rows in client.done.items():
        if token not in client.submits:
            yield f"law 1: {token} resolved and was never submitted"
        if len(rows) > 1:
            yield f"law 1: {token} resolved {len(rows)} times: {rows}"
    cancelled = _downstream(client, client.cancelled)
    failing = _downstream(client, {token for token, row in client.submits.items() if row["expect"] == "error"})
    for token, (row, *_) in client.done.items():
        if token in client.submits:
            yield from _resolution(client, token, row, token in cancelled, token in failing, histories)
    for token, submit in client.submits.items():
        yield from _order(token, submit, histories)


def _downstream(client: ClientHistory, tokens: set[str]) -> set[str]:
    """These tasks and all that wait for them. A task is submitted after what it needs."""
    found = set(tokens)
    for token, row in client.submits.items():
        if found & set(row["needs"]):
            found.add(token)
    return found


def _ancestors(client: ClientHistory, token: str) -> set[str]:
    found, todo = {token}, [token]
    while todo:
        for need in client.submits[todo.pop()]["needs"]:
            if need not in found:
                found.add(need)
                todo.append(need)
    return found


def _resolution(
    client: ClientHistory, token: str, row: dict[str, Any], cancelled: bool, failing: bool, histories: Histories
) -> Iterator[str]:
    if row["how"] == "value":
        if failing:
            yield f"law 2: {token} has a value, and must fail"
        elif row["value"] != client.submits[token]["value"]:
            yield f"law 2: {token} has the value {row['value']}; it must be {client.submits[token]['value']}"
        return
    if row["how"] == "cancelled":
        if not cancelled:
            yield f"law 2: {token} is cancelled, and nobody has cancelled it"
        for start in histories.starts.get(token, ()):
            if start.at > row["at"]:
                yield f"law 7: {token} starts {(start.at - row['at']) / 1e6:.1f} ms after its cancel was told"
        return
    culprits = _ancestors(client, token)
    if row["error"] == "ValueError":
        # What fails while it is being cancelled is not tried again.
        gave_up = any("retries" in client.submits[one] for one in culprits & client.cancelled)
        if not failing and not gave_up:
            yield f"law 2: {token} failed with ValueError ({row['text']}), and must not fail"
    elif row["error"] == "ProcessorDiedError":
        pids = {start.pid for one in culprits for start in histories.starts.get(one, ())}
        # It may have been killed before the task noted its start: the error names the process.
        pids |= {int(number) for number in re.findall(r"\bpid (\d+)", row["text"])}
        if not pids & histories.killed_pids:
            yield f"law 2: {token} failed because its processor died, and none of its was killed: {row['text']}"
    elif row["error"] == "WorkerDiedError":
        if not any(len(histories.starts.get(one, ())) >= MAX_DEATHS for one in culprits):
            yield f"law 2: {token} failed because too many workers died, and it was not run so often: {row['text']}"
    else:
        yield f"law 2: {token} failed with {row['error']}: {row['text']}"


def _order(token: str, submit: dict[str, Any], histories: Histories) -> Iterator[str]:
    starts = histories.starts.get(token)
    if not starts:
        return
    first = min(start.at for start in starts)
    for need in submit["needs"]:
        ends = histories.ends.get(need)
        if not ends or min(ends) > first:
            yield f"law 3: {token} starts before {need} has ended"


def _changes(histories: Histories) -> Iterator[str]:
    for task, changes in histories.changes.items():
        before = changes[0]
        for change in changes[1:]:
            if before.state in _TERMINAL:
                yield f"law 4: {task} was {before.state}, which is final, and is then {change.state}"
            elif change.state not in REACHABLE[before.state]:
                yield f"law 4: {task} goes from {before.state} to {change.state}"
            if change.attempt < before.attempt:
                yield f"law 5: {task} goes from attempt {before.attempt} back to {change.attempt}"
            before = change


def _outcomes(histories: Histories) -> Iterator[str]:
    for (task, attempt), at_ms in histories.outcomes.items():
        changes = histories.changes.get(task, ())
        again = next((c for c in changes if c.attempt > attempt and c.state == "running"), None)
        if again is None:
            continue
        # An outcome that came after its task had been moved on is stale, and counts for nothing.
        moved_on = next((c for c in changes if c.attempt == attempt and c.state == "inactive"), None)
        if moved_on and moved_on.event == "WorkerDisconnect" and moved_on.at_ms - at_ms < ENDING_MS:
            continue
        if moved_on is None or moved_on.at_ms > at_ms:
            yield (
                f"law 6: attempt {again.attempt} of {task} was assigned at {again.at_ms}; "
                f"the outcome of attempt {attempt} reached Redis at {at_ms}"
            )


def figures(histories: Histories) -> dict[str, int]:
    """What the run was, in numbers."""
    resolved = Counter(rows[0]["how"] for client in histories.clients for rows in client.done.values())
    executions = sum(map(len, histories.starts.values()))
    return {
        "tasks": sum(len(client.submits) for client in histories.clients),
        "values": resolved["value"],
        "exceptions": resolved["error"],
        "cancelled": resolved["cancelled"],
        "behind others": sum(bool(row["needs"]) for client in histories.clients for row in client.submits.values()),
        "executions": executions,
        "run more than once": sum(len(starts) > 1 for starts in histories.starts.values()),
        "changes": sum(map(len, histories.changes.values())),
    }
