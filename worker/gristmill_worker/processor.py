"""A processor: reads tasks straight from Redis, runs one after the other, sends what came out.

The agent starts it (`python -m gristmill_worker.processor`), watches it through the board, and ends it. It prefetches
20 ms of work; outcomes go to Redis with the next read, or before what starts next would keep them waiting for longer.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import orjson

from gristmill import client, interpreter, logs
from gristmill.errors import MissingObjectError, SignatureError
from gristmill.protocol import payloads, signing
from gristmill.protocol.buffers import PICKLE, WITH_SERIALIZER, Buffer, split_objects
from gristmill.protocol.keys import Keys
from gristmill_worker import leash, preload
from gristmill_worker.aftermath import Aftermath
from gristmill_worker.alarm import PROCESSOR
from gristmill_worker.board import (
    FRESH_UNTIL,
    LEAVE,
    LEAVING,
    LEFT,
    PARK,
    PARKED,
    READY,
    STATUS,
    TURN,
    WATCHING,
    WITHOUT_GROUP,
    ProcessorBoard,
    clock_ns,
    row_text,
)
from gristmill_worker.capture import Capture
from gristmill_worker.chunks import execute_chunk
from gristmill_worker.execution import SUCCESS, Outcome, Place, execute, failure
from gristmill_worker.files import ObjectFiles
from gristmill_worker.functions import Function, Functions, MeanDuration
from gristmill_worker.handover import Handover, take_handover
from gristmill_worker.interrupts import Interrupts
from gristmill_worker.link import Entry, GroupLostError, Link
from gristmill_worker.memory import MemoryPeak
from gristmill_worker.output import Output
from gristmill_worker.pauses import Pauses, frames_for_one_more
from gristmill_worker.payloads import Payloads
from gristmill_worker.stack import ProcessorStack

if TYPE_CHECKING:
    from gristmill.settings import WorkerSettings

logger = logging.getLogger(__name__)

MOST_TASKS = 100
"""Prefetched at most."""
PREFETCH_NS = 20_000_000
"""Prefetched work, by the mean duration."""
GROWTH = 4
"""The prefetch grows at most so many times from one read to the next: the mean may be a surprise."""
HOLD_NS = 20_000_000
"""Finished outcomes wait for the next so long at most, as far as can be foreseen: each message costs Redis and the
schedulers as much as ten outcomes do."""
SHORT_NS = 1_000_000
"""What takes longer on average has its memory measured."""
FLUSH_BYTES = 96 * 1024
SUSPECT = b'"suspect":true'
"""In the options of a task that a processor had read when its worker died: nothing finished may wait behind it."""
NAME_CHARACTERS = 100
RUN_BYTES = 1000
ENDING_SECONDS = 2.0
"""How long a processor that has ended its work may take to end."""
_OUTPUT = b'"output":true'
_PROFILED, _NOT_PROFILED = b'"profiling":true', b'"profiling":false'


class Processor:
    """The loop."""

    def __init__(self, handover: Handover, output: Output) -> None:
        worker, keys = handover.worker, Keys(handover.namespace)
        self.board = ProcessorBoard(handover.board)
        self._words = self.board.words
        self._wake = handover.wake
        self._bell = handover.bell
        self._output = output
        # A socket must not get a number that tasks think of as a standard stream.
        self._link = Link(handover.address, keys, worker, handover.processor, self.board, output.restore)
        self._place = Place(worker, handover.host)
        self._signer = signing.signer(handover.namespace)
        self._functions = Functions()
        self._files = ObjectFiles(Path(handover.objects), handover.object_cache_bytes, self._link)
        self._payloads = Payloads(self._link, self._files, self._signer)
        self._interrupts = Interrupts(self.board)
        self._names: dict[bytes, bytes] = {}
        self._count = 1
        self._duration = MeanDuration()
        self._memory = MemoryPeak()
        self._capture = Capture(handover.out, handover.error)
        self._writers: tuple[int, int] | None = None
        self._peak = 0
        """Bytes by which the last task raised memory; 0 of one that was not measured."""
        self._flush_bytes = FLUSH_BYTES
        """More bytes of outcomes than these are sent before the next task starts."""
        self._held_since = 0
        """When the first of the outcomes that were not yet sent was there (`clock_ns`)."""
        self._aftermath = Aftermath()
        self._interrupts.note = self._aftermath.note_interrupt
        self._entries: list[Entry] = []
        """The batch that is being run."""
        self._claimed: list[dict[bytes, bytes]] = []
        """The claimed tasks on the stack."""
        client.waits = Pauses(self.board, self._link, self._interrupts, self._wake_agent, worker, self)

    def run(self) -> None:
        """Take tasks until the agent says that it is enough."""
        words = self._words
        self._link.connect()
        words[STATUS] = READY
        self._wake_agent()
        while words[LEAVING] != LEAVE:
            self._take_tasks()
            if words[LEAVING] == PARK:
                self._stand_by()
        self._link.close()
        words[STATUS] = LEFT

    def _take_tasks(self) -> None:
        """Take tasks until the agent wants something else."""
        words = self._words
        while not words[LEAVING]:
            entries = self._link.exchange(self._count, self._tidy)
            if entries:
                if not self._hold(entries):
                    entries = []
            else:
                self._files.forget()
            if self._link.caught_up:
                words[TURN] += 1
            # Redis may have taken no outcomes although it gave tasks: a full one does. Then nothing starts.
            self._link.flush()
            if entries:
                self._walk(entries)
        self._link.flush()

    def _stand_by(self) -> None:
        """Another has the slot: wait until the agent wants this one again, or wants it to leave.

        Meanwhile it takes what has not started. When it changed its mind before, that is still to be run.
        """
        words = self._words
        words[STATUS] = PARKED
        self._wake_agent()
        while words[LEAVING] == PARK:
            os.read(self._bell, 4096)
        if words[LEAVING] != LEAVE:
            words[STATUS] = READY
            self._wake_agent()

    def _tidy(self) -> None:
        """Put right what tasks may have done to what the next one relies on."""
        self._output.restore()
        self._interrupts.install()

    def wait_for_end(self, status: int) -> None:
        """Nothing can be done here any more; the agent ends this process."""
        self._words[STATUS] = status
        self._wake_agent()
        while True:
            time.sleep(3600)

    def _wake_agent(self) -> None:
        try:
            os.write(self._wake, PROCESSOR)
        except BlockingIOError:
            pass  # it has enough to wake up from

    # --- a batch ------------------------------------------------------------------------------------------

    def _hold(self, entries: list[Entry]) -> bool:
        """Show the agent what was read; False when it does not count any more."""
        rows, watch = [], len(entries) > 1
        for entry, fields in entries:
            options = fields.get(b"options")
            if options is not None:
                watch = True
                if SUSPECT in options:
                    self._flush_bytes = -1
            name = self._names.get(fields[b"name"]) or self._name(fields[b"name"])
            rows.append(row_text(fields[b"task"], fields[b"attempt"], entry, name, _run_text(options)))
        if not self.board.hold(rows, self._link.server):
            return False
        if watch and not self._words[WATCHING]:
            self._wake_agent()
        return True

    def _name(self, name: bytes) -> bytes:
        if len(self._names) > 1000:
            self._names.clear()
        text = orjson.dumps(name.decode("utf-8", "backslashreplace")[:NAME_CHARACTERS])
        self._names[name] = text
        return text

    def _walk(self, entries: list[Entry]) -> None:
        """Run the rows that the agent leaves us."""
        words, board, output, aftermath = self._words, self.board, self._output, self._aftermath
        self._entries = entries
        for index, (_, fields) in enumerate(entries):
            if board.taken(index):
                continue
            function = self._functions.get(fields[b"function"])
            now = clock_ns()
            unsent = board.unsent_bytes()
            mean_ns = function.duration.mean_ns if function is not None else None
            if unsent and (unsent > self._flush_bytes or mean_ns is None or now - self._held_since + mean_ns > HOLD_NS):
                self._link.flush()
                unsent, now = 0, clock_ns()
            if now > words[FRESH_UNTIL] or words[LEAVING]:
                now = self._wait_to_start()
                if not now:
                    return  # the agent returns what has not started
            start = board.start(index, now)
            if not start:
                continue
            output.begin(fields[b"task"])
            client.current = (fields[b"task"].decode(), int(fields[b"attempt"]))
            short = mean_ns is not None and mean_ns <= SHORT_NS
            measured = not short or b"options" in fields
            captures = False
            if measured:
                measured = self._measures(fields, short)
                captures = self._captures(fields)
            cpu = time.process_time_ns()
            outcome = self._run(function, fields, start)
            cpu = time.process_time_ns() - cpu
            self._peak = self._memory.end() if measured else 0
            if captures:
                self._send_captured(fields)
            duration = clock_ns() - now
            if aftermath.due:
                if aftermath.forked:
                    # A child that the task has forked came back from it: there must be one processor.
                    os._exit(0 if outcome is not None and outcome.status == SUCCESS else 1)
                if not aftermath.look_after():
                    words[LEAVING] = LEAVE  # a fresh processor takes over
            client.current = None
            output.end()
            if outcome is None:
                board.stop()
                continue
            self._note_duration(fields[b"function"], duration)
            if not unsent:
                self._held_since = now + duration
            board.finish(self._payloads.row(fields, outcome, duration, cpu, self._peak))
        self._flush_bytes = FLUSH_BYTES
        self._count = max(
            1, min(MOST_TASKS, self._count * GROWTH, int(PREFETCH_NS / (self._duration.mean_ns or PREFETCH_NS)))
        )

    def _wait_to_start(self) -> int:
        """Another may have the slot for now, or the lease may have ended: what we hold may run elsewhere.

        Returns when the next row may start; 0 when none may because this processor is to leave.
        """
        words = self._words
        while words[LEAVING] != LEAVE:
            self._link.flush()
            if words[LEAVING] == PARK:
                self._stand_by()
            else:
                self._wait_until_fresh()
            now = clock_ns()
            if now <= words[FRESH_UNTIL] and not words[LEAVING]:
                return now
        return 0

    def _wait_until_fresh(self) -> None:
        """Until the agent has been heard again, or wants something else."""
        words = self._words
        while clock_ns() > words[FRESH_UNTIL] and not words[LEAVING]:
            time.sleep(0.01)

    def _note_duration(self, function_id: bytes, duration: int) -> None:
        function = self._functions.get(function_id)
        if function is not None:
            function.duration.add(duration)
        self._duration.add(duration)

    def _captures(self, fields: dict[bytes, bytes]) -> bool:
        """Begin to capture what the task prints, when its client wants to see it."""
        if _OUTPUT not in fields.get(b"options", b""):
            return False
        if self._writers is None:
            self._writers = self._capture.open_to_write()
        if self._writers is None:
            return False
        self._output.begin_capture(*self._writers)
        return True

    def _send_captured(self, fields: dict[bytes, bytes]) -> None:
        """The task has ended: send what the agent has not sent of what it has printed."""
        self._output.end_capture()
        with self.board.locked():
            taken = self._capture.take(self._words, whole=True)
        if taken is not None:
            self._link.send_output(fields[b"task"].decode(), int(fields[b"attempt"]), *taken)

    def _measures(self, fields: dict[bytes, bytes], short: bool) -> bool:
        """Begin to measure memory, unless the task is short; `options(profiling=...)` has the last word."""
        options = fields.get(b"options", b"")
        if _NOT_PROFILED in options or (short and _PROFILED not in options):
            return False
        self._memory.begin()
        return True

    # --- a task on the stack ------------------------------------------------------------------------------

    def priority_of(self, task: str) -> int:
        """The priority of a task that executes here; 0 when there is none like it."""
        for fields in (*self._claimed, *(fields for _, fields in self._entries)):
            if fields[b"task"] == task.encode():
                return int(fields.get(b"priority", b"0"))
        return 0

    def run_claimed(self, fields: dict[bytes, bytes], stack: ProcessorStack, below: int) -> None:
        """Run a task that the waiting task has claimed, on top of it (`pauses.Runner`)."""
        interrupts, task, attempt = self._interrupts, fields[b"task"], fields[b"attempt"]
        name = self._names.get(fields[b"name"]) or self._name(fields[b"name"])
        self._wait_until_fresh()
        start_below, current, output = stack.top_start(), client.current, self._output.interlude(task)
        measured = self._measures(fields, _is_short(self._functions.get(fields[b"function"])))
        now, cpu = clock_ns(), time.process_time_ns()
        start = stack.push(row_text(task, attempt, b"", name, _run_text(fields.get(b"options"))), now)
        interrupts.below.append(start_below)
        self._claimed.append(fields)
        client.current = (task.decode(), int(attempt))
        with frames_for_one_more():
            outcome = self._run(self._functions.get(fields[b"function"]), fields, start)
        cpu, duration = time.process_time_ns() - cpu, clock_ns() - now
        self._peak = self._memory.end() if measured else 0
        if self._aftermath.forked:
            os._exit(0 if outcome is not None and outcome.status == SUCCESS else 1)
        self._claimed.pop()
        client.current = current
        if outcome is None:
            self._link.give_back(task, attempt)
            stack.pop(stopped=True)
        else:
            self._note_duration(fields[b"function"], duration)
            self.board.add_outcome(self._payloads.row(fields, outcome, duration, cpu, self._peak))
            stack.pop(stopped=False)
            self._link.flush()
        self._output.resume(output)
        interrupts.install()
        interrupts.below.pop()
        interrupts.resume(below)

    # --- a task -------------------------------------------------------------------------------------------

    def _run(self, function: Function | None, fields: dict[bytes, bytes], start: int) -> Outcome | None:
        """Gather what the task needs, and run it."""
        run: dict[str, Any] = {}
        try:
            if b"options" in fields:
                run = orjson.loads(fields[b"options"])
            if function is None:
                object_id = fields[b"function"]
                function = self._functions.add(object_id, self._link.read_object(object_id.decode()))
            call = fields.get(b"call")
            data: Buffer = (
                payloads.bytes_of(call) if call is not None else self._link.read_object(fields[b"object"].decode())
            )
            if self._signer is not None and call is not None:
                name = signing.name_of_call(fields[b"task"].decode(), fields[b"function"].decode())
                data = self._signer.open(bytes(data), name)
            leaves = serializer = None
            if data[0] != PICKLE:
                if data[0] == WITH_SERIALIZER:
                    serializer = self._serializer(data)
                named, data = split_objects(data)
                leaves = self._files.open(named).leaves()
            below = function.opened  # the same function may wait below on the stack
            if function.objects:
                function.opened = self._files.open(function.objects)
            values = self._payloads.values(fields) if b"values" in fields or b"needs" in fields else None
        except (MissingObjectError, SignatureError, ValueError, KeyError) as error:
            return failure(error, run)
        try:
            if "chunk" in run:
                return execute_chunk(function, fields[b"name"], data, start, self._interrupts, self._place)
            shown, interrupts = fields[b"name"], self._interrupts
            return execute(function, shown, data, values, run, start, interrupts, self._place, leaves, serializer)
        finally:
            client.current_serializer = None
            function.opened = below

    def _serializer(self, call: Buffer) -> Function:
        """The user's serializer that a call names first."""
        (object_id, size), *_ = split_objects(call)[0]
        found = self._functions.get(object_id.encode())
        return found or self._functions.add(object_id.encode(), self._link.read_object(object_id, size))


def _is_short(function: Function | None) -> bool:
    """Whether finished outcomes may wait while it runs."""
    mean_ns = function.duration.mean_ns if function is not None else None
    return mean_ns is not None and mean_ns <= SHORT_NS


def _run_text(options: bytes | None) -> bytes:
    """What the agent must know of the run options, as JSON."""
    if options is None:
        return b"null"
    try:
        run = orjson.loads(options)
        text = orjson.dumps({name: run[name] for name in ("timeout_ms", "retry_on", "output") if name in run})
        return text if len(text) <= RUN_BYTES else orjson.dumps({"timeout_ms": run.get("timeout_ms", 0)})
    except (ValueError, TypeError, AttributeError):
        return b"null"


def _end_soon() -> None:
    time.sleep(ENDING_SECONDS)
    os._exit(0)


def main() -> None:
    """What the agent starts."""
    handover = take_handover()
    leash.bind(handover.leash)
    output = Output(handover.stack)
    # The same two settings as the agent's; the settings' classes would take a tenth of a second to import.
    log = SimpleNamespace(log_level=handover.log_level, log_format=handover.log_format)
    logs.setup(cast("WorkerSettings", log))
    # Names of `__main__` in a pickle are the client's: they must not be found in this program.
    sys.modules["__main__"] = ModuleType("__main__")
    # Every function that was sent by value needs it: the first task should not pay for that.
    importlib.import_module("cloudpickle")
    interpreter.append_paths()
    processor = Processor(handover, output)
    output.install()
    if handover.preload:
        preload.load(handover.preload)
    gc.collect()
    gc.freeze()
    try:
        processor.run()
        # A thread that a task has left must not keep the slot from the next processor.
        threading.Thread(target=_end_soon, daemon=True).start()
    except GroupLostError:
        processor.wait_for_end(WITHOUT_GROUP)
    except BaseException:
        logger.exception("the processor ends after an error of its own")
        logging.shutdown()
        # Not by the interpreter's way: it would wait for threads that tasks have left, and the slot would be dead.
        os._exit(1)


if __name__ == "__main__":
    main()
