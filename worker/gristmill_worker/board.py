"""The memory that an agent shares with one processor: what it holds, started, finished and sent.

    ┌ words ────┬ batch A ┬ batch B ┬ outcomes ──────────┬ rows ──────────────────────┐
    │ 64-bit    │ taken?  │ taken?  │ JSON rows: those   │ ring of JSON rows: the     │
    │ words     │ 1 byte  │ 1 byte  │ not known to be    │ batch held, and before it  │
    │           │ a row   │ a row   │ sent, older ones   │ all that came recently     │
    └───────────┴─────────┴─────────┴────────────────────┴────────────────────────────┘

The processor holds one batch of tasks at a time and walks through its rows. The agent may take a row away that has
not started (to give it back, or because it is cancelled), and may interrupt or kill the processor while a certain row
executes. Both sides therefore do the decisive steps under a **byte lock of the kernel** on this memory's file, which
dies with its holder: `start` (the processor), `take`, `interrupt` and the kill (the agent). Flags alone cannot decide
it: between "not taken?" and "started!" the other side may do the opposite, and processors reorder stores.

Every step is committed by the store of one word, so that whatever moment the processor dies at, the agent finds the
state before the step or after it:

- `hold` writes the rows and facts of the new batch beside those of the old one, then the number of the batch.
- `start` writes START: the running number of the start, and the row.
- `finish` writes the outcome behind the others (older ones stay behind them, in laps: Redis may lose its last seconds,
  and then they are sent again), then OUTCOMES_END, then FINISHED. It needs no lock: who wants to
  meet the executing row looks under the lock, and a next row cannot start meanwhile. An outcome that is there counts,
  even if FINISHED is missing.

Times are of one clock of this machine (`clock_ns`). The file has no name: nothing is left when both are gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from gristmill_worker.nameless import nameless_file

STOPS = 40
STOPS_KEPT = 256
"""More than the levels of a stack: all that one interrupt ends."""
WORDS = STOPS + STOPS_KEPT
# Written by the agent.
FRESH_UNTIL = 0
"""The processor starts nothing after this time (ns)."""
LEAVING = 1
"""Not 0: read no more when what executes has ended, and LEAVE or PARK."""
INTERRUPT = 2
"""The START that is to be interrupted."""
REASON = 3
"""Why: CANCEL or TIME_LIMIT."""
WATCHING = 4
"""Not 0: the agent looks every few milliseconds and need not be woken."""
SERVER = 5
"""The Redis server (`server_word`) from which the processor may read: nothing is owed to it any more."""
ALONE = 6
"""Not 0: nobody else can run what a waiting task waits for: it runs its own unstarted children itself."""
SUCCESSOR = 32
"""The server that answers now, once the agent has told it what is held: what another one has given does not count."""
# Written by the processor.
HELPLESS = 7
"""The START that waits in threads which cannot run its children themselves; of another START it says nothing."""
STATUS = 8
CONNECTION = 9
"""The number of its connection in Redis."""
TURN = 10
"""How often it has come back from Redis, with tasks or without, and had all that it was handed."""
BATCH = 11
"""The number of the batch it holds; its facts are in one of two places, by turns."""
START = 12
"""The running number of the last start times 65536, plus the row's index plus 1."""
STARTED_AT = 13
FINISHED = 14
"""The START that was finished last; when it is START, nothing executes."""
STOPPED = 15
"""How many were stopped by an interrupt and have no outcome; the STARTs of the last ones lie in a ring (STOPS)."""
DONE = 16
"""How many tasks were finished."""
OUTCOMES_BEGIN = 17
"""Where the outcomes begin that are not known to be sent; the agent moves it when it sends them itself."""
OUTCOMES_END = 18
OUTCOMES_AT_START = 19
"""OUTCOMES_END when the last row was started: up to here the agent may read while the processor lives."""
FACTS = 20
"""Twice four words: offset and length of the rows, their number, the running number of starts before them."""
LAP = 28
"""How often the outcomes have begun again at the start of their part of the memory."""
LAP_END = 29
"""Where the outcomes of the lap before ended."""

WAITING = 30
"""The START whose task waits for other tasks; of another START it says nothing."""

TOP = 31
"""The slot of the claimed task that executes, plus 1; 0 when none does (`stack`)."""

NOTICES = 33
"""How many notices of its output the executing row has had so far; whoever takes lines counts, under the lock."""

BATCH_ROWS = 128
"""A batch has at most so many rows."""
OUTCOMES_BYTES = 4 << 20
UNSENT_BYTES = 256 * 1024
"""A lap ends where less than this is left: so much may be unsent."""
ROW_BYTES = 64 * 1024
"""An outcome has far fewer bytes: so much behind the newest may just be being written."""
ROWS_BYTES = 1 << 20
BATCH_ROWS_BYTES = 256 * 1024
"""The rows of a batch have at most so many bytes."""

_TAKEN = WORDS * 8
_OUTCOMES = _TAKEN + 2 * BATCH_ROWS
_ROWS = _OUTCOMES + OUTCOMES_BYTES
CLAIMED_AT = _ROWS + ROWS_BYTES
CLAIMED_SLOTS = 256
SLOT_BYTES = 2048
"""Behind the rows there are so many slots of claimed tasks (`stack`)."""
SIZE = CLAIMED_AT + CLAIMED_SLOTS * SLOT_BYTES

STARTING, READY, WITHOUT_GROUP, LEFT, PARKED = 0, 1, 2, 3, 4
"""Values of STATUS: not yet able to take tasks; taking them; Redis says NOGROUP; ending by itself; standing by."""
LEAVE, PARK = 1, 2
"""Values of LEAVING: end; stand by until it is 0 again."""
CANCEL, TIME_LIMIT = 1, 2
"""Values of REASON."""

LOCK_PATIENCE_SECONDS = 0.005
"""The other side holds the lock for microseconds; one that was stopped while holding it must not stop the agent."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock_ns() -> int:
    """Nanoseconds of a clock that all processes of this machine share and that goes on while it sleeps."""
    return time.clock_gettime_ns(_CLOCK)


class Held(NamedTuple):
    """One row: a task that the processor has read."""

    task: str
    attempt: int
    entry: str
    """Its id in the worker's stream."""
    name: str
    """The function's, for people."""
    run: dict[str, Any]
    """The run options of the task."""


class Executing(NamedTuple):
    """The row that executes."""

    start: int
    row: int
    started_at: int
    """Of `clock_ns`."""


def row_text(task: bytes, attempt: bytes, entry: bytes, name: bytes, run: bytes = b"null") -> bytes:
    """One row as it lies in memory; `name` and `run` are JSON, the others need no escaping."""
    return b'["%b",%b,"%b",%b,%b]' % (task, attempt, entry, name, run)


class _Memory:
    """The layout, and the lock."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.memory = self._map = mmap.mmap(descriptor, SIZE)
        self.words = memoryview(self._map)[: WORDS * 8].cast("Q")

    def close(self) -> None:
        """Let go of the memory; it vanishes when both sides have."""
        self.words.release()
        self._map.close()
        os.close(self.descriptor)

    def _taken_at(self, batch: int) -> int:
        return _TAKEN + (batch & 1) * BATCH_ROWS


class ProcessorBoard(_Memory):
    """The processor's side."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._start = 0
        self._end = 0
        self._done = 0
        self._rows_end = 0
        self._taken = _TAKEN

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock: for what the agent does too."""
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX, 1)
        try:
            yield
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1)

    def hold(self, rows: Sequence[bytes], server: int = 0) -> bool:
        """The batch that was just read (texts of `row_text`); what the former one had is finished or taken.

        False when it came too late: it was read from a `server` (0: not said) that is over, and another has been told
        that this processor does not hold it.
        """
        text = b",".join(rows)
        if len(rows) > BATCH_ROWS or len(text) > BATCH_ROWS_BYTES:
            raise ValueError(f"expected at most {BATCH_ROWS} rows; got {len(rows)} with {len(text)} bytes")
        words = self.words
        offset = self._rows_end if self._rows_end + len(text) <= ROWS_BYTES else 0
        self._rows_end = offset + len(text)
        batch = words[BATCH] + 1
        facts = FACTS + (batch & 1) * 4
        taken = self._taken_at(batch)
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX, 1)
        try:
            self._map[_ROWS + offset : _ROWS + offset + len(text)] = text
            words[facts] = offset
            words[facts + 1] = len(text)
            words[facts + 2] = len(rows)
            words[facts + 3] = self._start >> 16
            self._map[taken : taken + BATCH_ROWS] = bytes(BATCH_ROWS)
            if server and words[SUCCESSOR] and words[SUCCESSOR] != server:
                words[facts + 2] = 0
                return False
            words[BATCH] = batch
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1)
        self._taken = taken
        return True

    def taken(self, index: int) -> bool:
        """Whether the agent has taken the row, as a hint: only `start` decides."""
        return self._map[self._taken + index] != 0

    def start(self, index: int, now: int) -> int:
        """The row starts: the START, or 0 when the agent has taken it."""
        words = self.words
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX, 1)
        try:
            if self._map[self._taken + index]:
                return 0
            words[OUTCOMES_AT_START] = self._end
            words[STARTED_AT] = now
            words[NOTICES] = 0
            self._start = start = (((self._start >> 16) + 1) << 16) | (index + 1)
            words[START] = start
            return start
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1)

    def finish(self, outcome: bytes) -> None:
        """The executing row has ended with this outcome (JSON)."""
        end = self._end
        self._end = after = end + len(outcome) + 1
        if after > OUTCOMES_BYTES:
            raise ValueError(f"expected outcomes of at most {OUTCOMES_BYTES} bytes; got {after}")
        self._map[_OUTCOMES + end : _OUTCOMES + after] = outcome + b","
        words = self.words
        words[OUTCOMES_END] = after
        self._done += 1
        words[DONE] = self._done
        words[FINISHED] = self._start

    def add_outcome(self, outcome: bytes) -> None:
        """A claimed task has ended with this outcome (JSON): see `stack`."""
        end = self._end
        self._end = after = end + len(outcome) + 1
        if after > OUTCOMES_BYTES:
            raise ValueError(f"expected outcomes of at most {OUTCOMES_BYTES} bytes; got {after}")
        self._map[_OUTCOMES + end : _OUTCOMES + after] = outcome + b","
        self._done += 1
        self.words[DONE] = self._done
        self.words[OUTCOMES_END] = after

    def stop(self) -> None:
        """The executing row was interrupted because it is cancelled: it has no outcome.

        Under the lock, so that nobody sees FINISHED without STOPPED and waits for an outcome.
        """
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX, 1)
        try:
            self.note_stop(self._start)
            self.words[FINISHED] = self._start
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1)

    def note_stop(self, start: int) -> None:
        """This START is about to end without an outcome. Needs the lock."""
        words = self.words
        words[STOPS + words[STOPPED] % STOPS_KEPT] = start
        words[STOPPED] += 1

    def unsent(self) -> bytes:
        """JSON rows, joined by commas, of the outcomes that were not yet sent."""
        begin = self.words[OUTCOMES_BEGIN]
        return self._map[_OUTCOMES + begin : _OUTCOMES + self._end - 1] if self._end > begin else b""

    def unsent_bytes(self) -> int:
        """How many bytes of outcomes were not yet sent."""
        return self._end - self.words[OUTCOMES_BEGIN]

    def sent(self) -> None:
        """Redis has what `unsent` gave. Under the lock, for the agent moves OUTCOMES_BEGIN."""
        words = self.words
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX, 1)
        try:
            if self._end > OUTCOMES_BYTES - UNSENT_BYTES:
                words[LAP_END] = self._end
                words[LAP] += 1
                self._end = 0
                words[OUTCOMES_END] = 0
                words[OUTCOMES_AT_START] = 0
            words[OUTCOMES_BEGIN] = self._end
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1)


class AgentBoard(_Memory):
    """The agent's side. What is said to need the lock is called inside `locked`, or when the processor is dead."""

    def __init__(self) -> None:
        descriptor = nameless_file("board")
        try:
            os.ftruncate(descriptor, SIZE)
            super().__init__(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        self._rows_of = 0
        self._rows: list[Held] = []

    @contextlib.contextmanager
    def locked(self, patience: float = LOCK_PATIENCE_SECONDS) -> Iterator[bool]:
        """Hold the lock; gives False, without it, when the processor has kept it for `patience` seconds."""
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    yield False
                    return
            time.sleep(0.0002)
        try:
            yield True
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1)

    def executing(self) -> Executing | None:
        """The row that executes, or None. Exact under the lock; else it may have ended since."""
        start = self.words[START]
        if start == self.words[FINISHED]:
            return None
        return Executing(start, (start & 0xFFFF) - 1, self.words[STARTED_AT])

    def executing_since(self) -> int:
        """When the last row was started (`clock_ns`)."""
        return self.words[STARTED_AT]

    def rows(self) -> list[Held]:
        """The batch that the processor holds, finished and taken rows included. Needs the lock."""
        batch = self.words[BATCH]
        if batch != self._rows_of:
            facts = FACTS + (batch & 1) * 4
            offset, length = _ROWS + self.words[facts], self.words[facts + 1]
            self._rows = [
                Held(task, attempt, entry, name, run or {})
                for task, attempt, entry, name, run in orjson.loads(b"[%b]" % self._map[offset : offset + length])
            ]
            self._rows_of = batch
        return self._rows

    def unstarted(self) -> list[int]:
        """Indices of rows that are neither started nor taken. Needs the lock."""
        batch, start = self.words[BATCH], self.words[START]
        facts = FACTS + (batch & 1) * 4
        first = start & 0xFFFF if start >> 16 > self.words[facts + 3] else 0
        taken = self._taken_at(batch)
        return [index for index in range(first, self.words[facts + 2]) if not self._map[taken + index]]

    def take(self, index: int) -> None:
        """The processor will not start this row. Needs the lock, and a row out of `unstarted`."""
        self._map[self._taken_at(self.words[BATCH]) + index] = 1

    def interrupt(self, start: int, reason: int) -> None:
        """A signal that comes now is meant for this START. Needs the lock."""
        self.words[REASON] = reason
        self.words[INTERRUPT] = start

    def was_stopped(self, start: int) -> bool:
        """Whether this START, which executes no more, ended by an interrupt and has no outcome. Needs the lock."""
        return start in self.words[STOPS : STOPS + STOPS_KEPT]

    def take_outcomes(self) -> bytes:
        """JSON rows of finished outcomes that the processor has not sent: now the agent sends them. Needs the lock."""
        begin, end = self.words[OUTCOMES_BEGIN], self.words[OUTCOMES_AT_START]
        if end <= begin:
            return b""
        self.words[OUTCOMES_BEGIN] = end
        return self._map[_OUTCOMES + begin : _OUTCOMES + end - 1]

    def last_outcomes(self) -> bytes:
        """Likewise of a dead processor: all that it has finished and is not known to have sent."""
        begin, end = self.words[OUTCOMES_BEGIN], self.words[OUTCOMES_END]
        return self._map[_OUTCOMES + begin : _OUTCOMES + end - 1] if end > begin else b""

    def position(self) -> int:
        """How many bytes of outcomes were sent so far, in a count that only grows. Needs the lock."""
        return self.words[LAP] * OUTCOMES_BYTES + self.words[OUTCOMES_BEGIN]

    def outcomes_since(self, position: int) -> list[Any]:
        """What was finished after `position`, sent or not, as far as it is still there. Needs the lock."""
        words = self.words
        lap, offset = divmod(position, OUTCOMES_BYTES)
        end = words[OUTCOMES_END] if self.executing() is None else max(words[OUTCOMES_AT_START], words[OUTCOMES_BEGIN])
        if lap == words[LAP]:
            return _parsed(self._map[_OUTCOMES + offset : _OUTCOMES + end])
        last = self._map[_OUTCOMES : _OUTCOMES + end]
        overwritten = words[OUTCOMES_END] + ROW_BYTES
        if lap == words[LAP] - 1 and offset >= overwritten:
            former = self._map[_OUTCOMES + offset : _OUTCOMES + words[LAP_END]]
        else:
            # From the middle of a row: inside JSON text a quote stands behind a backslash, so this begins the next one.
            former = self._map[_OUTCOMES + overwritten : _OUTCOMES + words[LAP_END]].partition(b',["')[2]
            former = b'["' + former if former else b""
        return _parsed(former + last)

    def held(self) -> list[Held]:
        """The rows that are executed now or would be. Needs the lock."""
        rows, executing = self.rows(), self.executing()
        indices = self.unstarted() if executing is None else [executing.row, *self.unstarted()]
        return [rows[index] for index in indices]

    def has_held(self, task: str, attempt: int) -> bool:
        """Whether the processor holds this attempt or did so lately (some thousand tasks back). Needs the lock."""
        return self._map.find(b'["%b",%d,' % (task.encode(), attempt), _ROWS) >= 0

    def history(self) -> bytes:
        """The rows that lie in memory, newest batch and older ones, for `in` searches when the processor is dead.

        Without the part that a next batch may have been half written into: of such a row nobody knows yet.
        """
        facts = FACTS + (self.words[BATCH] & 1) * 4
        after = self.words[facts] + self.words[facts + 1]
        text = self._map[_ROWS : _ROWS + ROWS_BYTES]
        beyond = after + BATCH_ROWS_BYTES
        # The next batch begins at `after`, or at 0 when it does not fit behind.
        rows = text[:after] + text[beyond:] if beyond <= ROWS_BYTES else text[BATCH_ROWS_BYTES:after]
        return rows + self._map[CLAIMED_AT:]


def _parsed(rows: bytes) -> list[Any]:
    parsed: list[Any] = orjson.loads(b"[%b]" % rows.rstrip(b","))
    return parsed


def server_word(run_id: str) -> int:
    """A server's `run_id` as one word; never 0."""
    return int(run_id[:15] or "0", 16) + 1
