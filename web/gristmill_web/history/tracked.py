"""One task as the changes tell it, while it may still change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from gristmill.protocol.states import ACTIVE, TERMINAL, TRANSITIONS, Event, State
from gristmill.snapshot import ChangeRow
from gristmill_web.history.spans import Kind, Span

_TERMINAL = frozenset(state.value for state in TERMINAL)
CANCELED = "canceled"
_LOOKS = {
    "success": "success",
    "failed": "failed",
    "failed_worker_died": "failed",
    "canceled": CANCELED,
    "canceled_not_found": CANCELED,
    "inactive": "failed",
}
"""How an attempt that ends with a state looks in a chart; inactive: it goes back after a failure or a death."""
LONGEST_WORD = 100
MOST_TAGS = 20


@dataclass
class Tracked:
    """A row of the table of tasks; `None` is what no change has told."""

    id: int
    """Rises in the order in which tasks were first met."""
    task: str
    client: str
    function: str
    worker: str
    """Of the last attempt, also when it has ended."""
    state: str
    attempt: int
    submitted: int | None
    assigned: int | None
    """When the last attempt was assigned."""
    asked: int | None
    """When its worker was asked to stop the last attempt: a processor had read it by then."""
    changed: int
    ended: int | None
    duration_us: int | None
    cpu_us: int | None
    memory: int | None
    """Peak of the processor that ran it, bytes."""
    error: str | None
    graph: str | None
    node: str | None
    tags: str | None
    lane: str | None
    needs: str | None
    first_change: int
    last_change: int

    @classmethod
    def new(cls, identity: int, task: str, change: int) -> Tracked:
        """One that no change has told anything about yet."""
        client = task.rpartition(".")[0]
        return cls(
            identity, task, client, "", "", "", 0, None, None, None, 0, None, None, None, None, None, None, None, None,
            None, None, change, change,
        )  # fmt: skip

    def row(self) -> tuple[Any, ...]:
        """As it lies in the table."""
        return (
            self.id, self.task, self.client, self.function, self.worker, self.state, self.attempt, self.submitted,
            self.assigned, self.asked, self.changed, self.ended, self.duration_us, self.cpu_us, self.memory, self.error,
            self.graph, self.node, self.tags, self.lane, self.needs, self.first_change, self.last_change,
        )  # fmt: skip

    def apply(self, at: int, row: ChangeRow, change: int) -> Span | None:
        """Take in one change; answers what its worker did, when an attempt that had begun has ended with it."""
        state = row.state
        if not self.state and (row.attempt == 0 or (row.attempt == 1 and state == "running")):
            self.submitted = at
        span = self._span(at, row)
        if state == "running":
            if row.attempt != self.attempt or self.assigned is None:
                self.assigned, self.asked = at, None
        elif state == "canceling":
            self.asked = at
        self.state, self.attempt, self.changed, self.last_change = state, row.attempt, at, change
        if row.function:
            self.function = row.function
        self.worker = row.worker
        if state in _TERMINAL:
            self.ended = at
            self.duration_us, self.cpu_us, self.memory = row.duration_us, row.cpu_us, row.memory_peak_bytes
            self.error = row.error or None
        else:
            self.ended = None
            self.error = row.error or self.error
        if row.about:
            self._tell(row.about)
        return span

    def _span(self, at: int, row: ChangeRow) -> Span | None:
        """What the change says about an attempt that had begun."""
        worker = row.worker or self.worker
        looks = _LOOKS.get(row.state)
        if not worker or not looks:
            return None
        stopped = looks == CANCELED and self.state == State.CANCELING.value
        died = row.state == State.FAILED_WORKER_DIED.value or bool(row.about and row.about.get("deaths"))
        if row.duration_us or row.state == State.SUCCESS.value:
            start = at - (row.duration_us or 0) // 1000
        elif (stopped or died) and self.assigned is not None:
            start = self.assigned
        else:
            return None  # it had not begun
        kind = Kind(looks, row.function or self.function, self.lane or "")
        return Span(worker, kind, start, at, self.task, busy_ms=(row.duration_us or 0) / 1000 or at - start)

    def _tell(self, about: dict[str, Any]) -> None:
        graph, node, lane = about.get("graph"), about.get("key") or about.get("name"), about.get("lane")
        self.graph = graph[:LONGEST_WORD] if isinstance(graph, str) and graph else self.graph
        self.node = node[:LONGEST_WORD] if isinstance(node, str) and node else self.node
        self.lane = lane[: 2 * LONGEST_WORD] if isinstance(lane, str) and lane else self.lane
        tags, needs = about.get("tags"), about.get("needs")
        if isinstance(tags, list) and tags:
            self.tags = orjson.dumps([str(tag)[:LONGEST_WORD] for tag in tags[:MOST_TAGS]]).decode()
        if isinstance(needs, list) and needs:
            self.needs = orjson.dumps([one for one in needs[:100] if type(one) is int]).decode()


COLUMNS = tuple(Tracked.__dataclass_fields__)


def _causes() -> dict[tuple[str, str], str]:
    """Which event leads from one state to another, where there is but one that is not named in the change itself."""
    found: dict[tuple[str, str], str] = {}
    for (state, event), to in TRANSITIONS.items():
        if state in ACTIVE:
            found.setdefault((state.value, to.value), event.value)
    # An unread task is cancelled in one step, and one whose worker is lost for the last time too.
    found[(State.RUNNING.value, State.CANCELED.value)] = Event.TASK_CANCEL.value
    found[(State.RUNNING.value, State.FAILED_WORKER_DIED.value)] = Event.RESULT_WORKER_DIED.value
    return found


CAUSES = _causes()
SUBMITTED = "Submitted"
"""Not an event of the state table: the task was not there before."""
_BY_DEPENDENCY = "a dependency ended: "


def event_of(previous: str, row: ChangeRow) -> str:
    """What happened: the event that the change names, or the one that alone leads from state to state."""
    named = row.about.get("event") if row.about else None
    if isinstance(named, str) and named:
        return named[:LONGEST_WORD]
    if not previous and row.attempt == 0 and row.state == "inactive":
        return SUBMITTED
    if not previous and row.attempt == 1 and row.state == "running":
        return SUBMITTED
    if row.error.startswith(_BY_DEPENDENCY):
        return str((Event.DEPENDENCY_CANCELED if row.state == "canceled" else Event.DEPENDENCY_FAILED).value)
    return CAUSES.get((previous, row.state), "")
