"""The agent: registers the worker, keeps its lease, starts and watches its processors, does what it is told.

    REGISTERING ──registered──▶ WORKING ──drain──▶ DRAINING ──all have ended──▶ ENDED
         ▲                         │                   │
         └──unknown, NOGROUP───────┘                stop, or drain_seconds are over

It never runs user code, and its main thread never waits for Redis: a thread of its own sends (`sender`), another
reads the control stream (`control`). Everything is decided in the main thread.
"""

from __future__ import annotations

import logging
import os
import queue
import secrets
import shutil
import socket
import sys
from collections.abc import Callable
from enum import Enum
from typing import Any

from gristmill import owner
from gristmill._version import __version__
from gristmill.health import Health
from gristmill.protocol.keys import Keys, host_part
from gristmill.protocol.kinds import Control
from gristmill.protocol.messages import WorkerMessage
from gristmill.settings import WorkerSettings
from gristmill.store.connection import ReplyError
from gristmill_worker import files, preload, reports
from gristmill_worker.alarm import PROCESSOR, Alarm
from gristmill_worker.board import (
    ALONE,
    BATCH,
    CONNECTION,
    LEAVE,
    LEFT,
    STATUS,
    WATCHING,
    WITHOUT_GROUP,
    clock_ns,
    server_word,
)
from gristmill_worker.capture import send_captured
from gristmill_worker.control import ControlReader
from gristmill_worker.departed import Departed
from gristmill_worker.execution import Place
from gristmill_worker.handover import Handover, handover
from gristmill_worker.heartbeat import Heartbeat, interval_seconds
from gristmill_worker.orders import Order, Orders
from gristmill_worker.past import Past
from gristmill_worker.processors import SECOND, Processor, Processors
from gristmill_worker.reports import Reports
from gristmill_worker.sender import Answer, Sender
from gristmill_worker.shutdown import Shutdown, Wish
from gristmill_worker.slots import Slots
from gristmill_worker.succession import Succession
from gristmill_worker.suspension import Suspension
from gristmill_worker.watch import SOON_NS, STOPPING_NS, Watch

logger = logging.getLogger(__name__)

REGISTER_AGAIN_NS = 5 * SECOND
"""The stream of registrations is trimmed: one that nobody has answered is sent again."""
WATCHING_NS = SECOND // 2
"""The agent goes on watching so long after it was woken, so that processors need not wake it for every batch."""
ENDING_NS = 2 * SECOND
"""A processor that has no more to do may take so long to end."""
CALLS_AT_ONCE = 50
"""Between so many answers and orders the agent looks after its lease and its processors."""
UNBLOCK_NS = SECOND // 10
GOODBYE_SECONDS = 5.0
"""How long the last reports may take to reach Redis."""

STUCK_SECONDS = 30.0
"""A turn of the loop waits for a beat at most, and for nothing that tasks do."""


class Phase(Enum):
    """What the worker is doing."""

    REGISTERING = "registering"
    WORKING = "working"
    DRAINING = "draining"
    ENDED = "ended"


class Identity:
    """Everything that belongs to one worker id, and goes when Redis forgets it."""

    def __init__(self, settings: WorkerSettings, keys: Keys, sender: Sender, alarm: Alarm) -> None:
        self.id = f"{host_part(socket.gethostname())}|{os.getpid()}|{settings.name or 'worker'}|{secrets.token_hex(4)}"
        self.place = Place(self.id, socket.gethostname())
        self.past = Past()
        self.reports = Reports(sender, keys, self.id)
        self.departed = Departed(self.reports, self.past)
        grace_ns = int(settings.cancel_grace_seconds * SECOND)
        self.orders = Orders(self.reports, self.past, self.departed, grace_ns)
        self.watch = Watch(self.reports, self.past, self.departed, self.place, grace_ns)
        self.succession = Succession(self.reports)
        self.processors = Processors(alarm.descriptor)
        self.slots = Slots(settings.concurrency, settings.most_processors)
        self.suspension = Suspension(self.reports, settings.concurrency)


class Agent:
    """One worker. `run` from the main thread; it returns when the worker has left."""

    def __init__(self, settings: WorkerSettings) -> None:
        """Check what can be checked before anything starts; raises SettingError."""
        self._settings = settings
        self._address = settings.address
        if settings.preload:
            preload.parse(settings.preload)
        self._keys = Keys(settings.namespace)
        self._lease_ns = int(settings.worker_lease_seconds * SECOND)
        self._beat_every_ns = int(interval_seconds(settings.worker_lease_seconds) * SECOND)
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._objects = files.folder_name(settings.object_directory)
        files.remove_orphans(settings.object_directory)
        self._alarm = Alarm()
        self._shutdown = Shutdown(self._alarm.ring)
        self._heartbeat = Heartbeat()
        self._sender = Sender(self._address, "gristmill-worker", self._call, self._on_server)
        self._phase = Phase.REGISTERING
        self._registered = False
        self._heard_at = 0
        """When the last registration or beat was sent that Redis took."""
        self.health = Health(stuck_seconds=STUCK_SECONDS)
        self._begin_identity()

    def _begin_identity(self) -> None:
        self._worker = Identity(self._settings, self._keys, self._sender, self._alarm)
        self._control = self._listen()
        self._next_registration = 0
        self._next_beat = 0
        self._next_check = 0
        self._next_look = 0
        self._next_unblock = 0
        self._watch_until = 0
        self._drain_until = 0
        self._missing = 0
        self._beating = False

    def run(self) -> None:
        """Work until told to leave. Never raises for a lost Redis: that passes."""
        self._shutdown.install()
        self._alarm.ring_on_signals()
        owner.watch(self._shutdown.stop)
        logger.info("worker starts", extra={"worker": self._worker.id, "concurrency": self._settings.concurrency})
        try:
            while self._phase is not Phase.ENDED:
                self.health.beat()
                self.health.ready = self._phase is Phase.WORKING and clock_ns() - self._heard_at < self._lease_ns
                rung = self._alarm.wait(self._pause())
                self._turn(clock_ns(), PROCESSOR in rung)
        finally:
            self._control.stop()
            for processor in self._worker.processors.kill_all():
                processor.close()
            shutil.rmtree(self._objects, ignore_errors=True)
            self._alarm.close()

    def _turn(self, now: int, woken_by_processor: bool) -> None:
        for _ in range(CALLS_AT_ONCE):
            if self._calls.empty():
                break
            try:
                self._calls.get()()
            except Exception:
                # One odd message or reply must not end the worker, and with it what its processors execute.
                logger.exception("what came from Redis could not be handled")
        self._obey()
        if self._phase is Phase.REGISTERING and now >= self._next_registration:
            self._register(now)
        if self._phase in (Phase.WORKING, Phase.DRAINING):
            self._attend(now, woken_by_processor)

    def _attend(self, now: int, woken_by_processor: bool) -> None:
        """What a registered worker does in each turn."""
        worker = self._worker
        for processor in worker.processors.take_dead():
            worker.watch.bury(processor)
            self._next_beat = 0
        if any(processor.board.words[STATUS] == WITHOUT_GROUP for processor in worker.processors.alive):
            self._start_over("its task stream is gone")
            return
        if self._phase is Phase.WORKING:
            self._fill_slots(now)
        elif self._drained(now):
            return
        if worker.processors.note_ready():
            self._next_beat = 0
        if woken_by_processor:
            self._watch_until = now + WATCHING_NS
        self._look(now)
        if now >= self._next_beat and not self._beating:
            self._beat(now)

    def _fill_slots(self, now: int) -> None:
        """Have as many processors take tasks as there are slots."""
        worker = self._worker
        for processor in worker.processors.alive:
            if not processor.parked:
                processor.parked_since = 0
            elif not processor.parked_since and worker.watch.give_back(processor):
                processor.parked_since = now
            if processor.board.words[STATUS] == LEFT:
                processor.left_since = processor.left_since or now
                if now >= processor.left_since + 2 * ENDING_NS:
                    processor.kill()  # it hangs in its end, and counts among those that there may be
        turn = worker.slots.look(worker.processors.alive)
        self._missing = turn.missing
        for processor in turn.idle:
            worker.reports.unblock(processor.board.words[CONNECTION])
        if turn.missing:
            worker.processors.start_missing(self._handover(), turn.missing)
        worker.suspension.look(worker.processors.alive)

    def _pause(self) -> float:
        """Seconds until something is due."""
        if not self._calls.empty():
            return 0.0
        now = clock_ns()
        if self._phase is Phase.REGISTERING:
            due = self._next_registration
        else:
            due = self._next_beat if not self._beating else now + self._beat_every_ns
            if self._next_look:
                due = min(due, self._next_look)
            if self._phase is Phase.DRAINING:
                due = min(due, self._next_unblock)
            elif self._missing:
                due = min(due, self._worker.processors.not_before)
        return (due - now) / SECOND

    # --- registration and lease ---------------------------------------------------------------------------

    def _register(self, now: int) -> None:
        settings, worker = self._settings, self._worker
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        message = WorkerMessage(
            worker=worker.id,
            name=settings.name,
            host=worker.place.host,
            pid=os.getpid(),
            python=python,
            release=__version__,
            concurrency=settings.concurrency,
            queue_size=settings.queue_size,
            capabilities={**settings.capabilities, f"python{python}": -1},
            lease_ms=self._lease_ns // 1_000_000,
        )
        if self._next_registration:
            logger.info("no scheduler has answered yet; asking again", extra={"worker": worker.id})
        self._next_registration = now + REGISTER_AGAIN_NS
        worker.reports.register(message, lambda answer: self._on_heard(worker, answer))

    def _on_heard(self, worker: Identity, answer: Answer) -> None:
        """Redis took a registration or a beat: for two thirds of the lease from then on, tasks may start."""
        if not isinstance(answer.replies[0], ReplyError):
            self._heard_at = answer.sent_at
            worker.processors.keep_fresh(answer.sent_at + self._lease_ns * 2 // 3)

    def _beat(self, now: int) -> None:
        worker = self._worker
        taking = self._phase is Phase.WORKING

        def on_answer(answer: Answer) -> None:
            if worker is not self._worker:
                return
            self._beating = False
            self._heartbeat.latency_ms = answer.took_seconds * 1000
            if not reports.is_registered(answer):
                self._start_over("its record is gone")
            else:
                self._on_heard(worker, answer)

        self._beating = True
        self._next_beat = now + self._beat_every_ns
        message = self._heartbeat.message(worker.id, worker.processors.alive, worker.suspension, taking=taking)
        worker.reports.beat(message, on_answer)
        worker.departed.check()
        worker.succession.note(worker.processors.alive)
        files.remove_unused(self._objects)

    def _start_over(self, reason: str) -> None:
        """Redis does not know this worker any more: what runs does not count, and the id is dead for good."""
        logger.warning("no longer registered; stopping what runs", extra={"worker": self._worker.id, "cause": reason})
        self._control.stop()
        self._sender.forget()
        self._registered = False
        for processor in self._worker.processors.kill_all():
            processor.close()
        if self._phase is Phase.DRAINING:
            self._phase = Phase.ENDED
            return
        self._begin_identity()
        self._phase = Phase.REGISTERING

    # --- what it is told ----------------------------------------------------------------------------------

    def _call(self, function: Callable[[], None]) -> None:
        """From any thread: run this in the main thread."""
        self._calls.put(function)
        self._alarm.ring()

    def _listen(self) -> ControlReader:
        return ControlReader(self._address, self._keys, self._worker.id, self._hear(self._worker.id))

    def _on_server(self, run_id: str) -> None:
        """Another server answers than before."""
        if self._phase in (Phase.WORKING, Phase.DRAINING):
            self._control.stop()  # it may still listen to the former one
            self._control = self._listen()
            self._worker.succession.begin(run_id, self._worker.processors.alive)

    def _hear(self, worker: str) -> Callable[[str, dict[str, Any]], None]:
        def handle(kind: str, body: dict[str, Any]) -> None:
            self._call(lambda: self._on_control(worker, kind, body))

        return handle

    def _on_control(self, worker: str, kind: str, body: dict[str, Any]) -> None:
        if worker != self._worker.id:
            return
        if kind == Control.REGISTERED:
            if self._phase is Phase.REGISTERING:
                self._phase = Phase.WORKING
                self._registered = True
                self._worker.processors.server = server_word(self._sender.server)
                logger.info("worker registered", extra={"worker": worker})
        elif kind == Control.UNKNOWN:
            self._start_over("the scheduler says so")
        elif kind in (Control.CANCEL, Control.GIVE_BACK):
            try:
                order = Order(body["task"], int(body["attempt"]), int(body["request"]), kind == Control.CANCEL)
            except (KeyError, TypeError, ValueError) as error:
                logger.warning("a control message cannot be read", extra={"kind": kind, "cause": repr(error)})
                return
            self._worker.orders.give(order, self._worker.processors.alive)
            self._next_look = 1
        elif kind == Control.SETTLED:
            processors = self._worker.processors
            server = self._worker.succession.settled(body.get("number", 0), processors.alive)
            processors.server = server or processors.server
        elif kind == Control.DRAIN:
            self._shutdown.drain()
        elif kind == Control.STOP:
            self._shutdown.stop()
        else:
            logger.warning("a control message of an unknown kind", extra={"kind": kind})

    def _obey(self) -> None:
        """Do what signals, the owner or the scheduler wish."""
        wish = self._shutdown.wish
        if wish is Wish.STOP or (wish is Wish.DRAIN and self._phase is Phase.REGISTERING):
            self._leave()
        elif wish is Wish.DRAIN and self._phase is Phase.WORKING:
            self._drain()

    # --- watching -----------------------------------------------------------------------------------------

    def _look(self, now: int) -> None:
        """Look at what executes when that is due; decides when to look next (0: when woken)."""
        if now < self._next_look and now >= self._watch_until:
            return
        worker = self._worker
        batches = [processor.board.words[BATCH] for processor in worker.processors.alive]
        worker.orders.look(worker.processors.alive)
        times = [worker.watch.look(processor, now) for processor in worker.processors.alive]
        times += [send_captured(processor, worker.reports, now) for processor in worker.processors.alive]
        if worker.orders.waiting:
            times.append(now + STOPPING_NS)
        if now < self._watch_until:
            times.append(now + SOON_NS)
        self._next_look = min((time for time in times if time is not None), default=0)
        watching = bool(self._next_look) and self._next_look <= now + SOON_NS
        for processor in worker.processors.alive:
            processor.board.words[WATCHING] = watching
        if not watching and batches != [processor.board.words[BATCH] for processor in worker.processors.alive]:
            self._next_look = 1  # who took it since has not woken us, because we were watching

    # --- leaving ------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        now, worker = clock_ns(), self._worker
        self._phase = Phase.DRAINING
        self._drain_until = now + int(self._settings.drain_seconds * SECOND) if self._settings.drain_seconds else 0
        executing = sum(processor.board.executing() is not None for processor in worker.processors.alive)
        logger.info("draining: finishing what executes, giving back the rest", extra={"executing": executing})
        for processor in worker.processors.alive:
            processor.direct(LEAVE)
            # Nobody else here will run what a task waits for.
            processor.board.words[ALONE] = 1
        worker.reports.drain()
        self._next_beat = 0
        self._next_unblock = 0

    def _drained(self, now: int) -> bool:
        """Go on draining; whether it is over."""
        processors = self._worker.processors.alive
        if self._drain_until and now >= self._drain_until:
            logger.info("drain_seconds are over: what still executes runs again elsewhere")
            processors = []
        if not processors:
            self._leave()
            return True
        if now >= self._next_unblock:
            self._next_unblock = now + UNBLOCK_NS
            for processor in processors:
                self._hurry(processor, now)
        return False

    def _hurry(self, processor: Processor, now: int) -> None:
        """It is to end: take what it has not started, end its waiting for more; kill it when it cannot end."""
        self._worker.watch.give_back(processor)
        if processor.board.executing() is not None:
            processor.left_since = 0
            return
        self._worker.reports.unblock(processor.board.words[CONNECTION])
        processor.left_since = processor.left_since or now
        if now >= processor.left_since + ENDING_NS and not processor.board.last_outcomes():
            processor.kill()

    def _leave(self) -> None:
        """End what still runs, report what it had finished, and say goodbye."""
        worker = self._worker
        for processor in worker.processors.kill_all():
            worker.watch.bury(processor, leaving=True)
        if self._registered:
            worker.reports.leave()
        else:
            self._sender.forget()
        if not self._sender.finish(GOODBYE_SECONDS if self._registered else 0.5):
            logger.warning("Redis did not take the last reports; the lease will end", extra={"worker": worker.id})
        logger.info("worker left", extra={"worker": worker.id})
        self._phase = Phase.ENDED

    def _handover(self) -> Handover:
        return handover(*self._worker.place, self._address, self._settings, self._objects)
