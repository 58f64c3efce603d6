"""A fault proxy that understands the Redis protocol: it delays, cuts, goes silent, or loses exactly one reply.

    with FaultProxy(server.socket) as proxy:
        client = Client(proxy.address)
        proxy.lose_reply(lambda command: command.name == b"XADD")     # Redis applies it, nobody hears of it

It stands between processes and a Redis, on a unix socket (`address`) and a TCP port (`tcp_address`) of its own, and
follows which reply belongs to which command. On Linux it knows which process is at the other end of a unix socket, so
that a test may kill a process at one certain command: see `on_command`.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

CHUNK = 1 << 16
START_SECONDS = 60.0
_END = b"\r\n"


def frame_end(data: bytes | bytearray, start: int) -> int:
    """Where the value of the Redis protocol that begins at `start` ends; -1 when it has not all arrived."""
    at, left = start, 1
    while left:
        line = data.find(_END, at)
        if line < 0:
            return -1
        kind = data[at : at + 1]
        left -= 1
        if kind in (b"$", b"=", b"!"):
            size = int(data[at + 1 : line])
            at = line + 2 + (size + 2 if size >= 0 else 0)
            if at > len(data):
                return -1
            continue
        if kind in (b"*", b"~", b">"):
            left += max(0, int(data[at + 1 : line]))
        elif kind == b"%":
            left += 2 * int(data[at + 1 : line])
        elif kind == b"|":
            left += 2 * int(data[at + 1 : line]) + 1
        at = line + 2
    return at


def words_of(frame: bytes | bytearray) -> list[bytes]:
    """The words of one command as it travels."""
    line = frame.find(_END)
    words, at = [], line + 2
    for _ in range(int(frame[1:line])):
        line = frame.find(_END, at)
        size = int(frame[at + 1 : line])
        words.append(bytes(frame[line + 2 : line + 2 + size]))
        at = line + 2 + size + 2
    return words


class Command(NamedTuple):
    """One command on its way to Redis."""

    words: list[bytes]
    pid: int
    """The process that sent it; 0 when that is not known."""
    number: int
    """The how-manieth command of that process, from 1."""

    @property
    def name(self) -> bytes:
        return self.words[0].upper()


class Fault(Enum):
    """What happens to a command. After each but PASS and REFUSE the connection is cut."""

    PASS = "pass"
    REFUSE = "refuse: Redis never sees it, and an error is the reply"
    CUT_BEFORE = "cut before: Redis never sees it"
    LOSE_REPLY = "lose the reply: Redis has applied it, nobody hears of it"
    CUT_AFTER = "cut after: the reply has arrived, what was sent behind it has not"


class Verdict(NamedTuple):
    """A fault, and what is done at that very moment: before the cut, when nothing else of the process can pass."""

    fault: Fault
    then: Callable[[], None] | None = None
    error: bytes = b""
    """What a refusal says, such as `LOADING the dataset`."""


PASS = Verdict(Fault.PASS)


def peer_pid(connection: socket.socket) -> int:
    """The process at the other end of a unix socket; 0 when nobody says."""
    if connection.family != socket.AF_UNIX or sys.platform != "linux":
        return 0
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


class _Link:
    """One connection of somebody, and its own to Redis."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.reader, self.writer = reader, writer
        self.pid = peer_pid(writer.get_extra_info("socket"))
        self.silent = False
        self._outstanding = 0
        self._answered = asyncio.Event()
        self._verdict = PASS
        """What becomes of the reply that is awaited, when it is the last of the outstanding ones."""
        self._asked: deque[Command] = deque()
        """Commands that wait for their reply, when somebody wants to know."""
        self._upstream: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        try:
            upstream, self._upstream = await asyncio.open_unix_connection(str(self.proxy.server), limit=CHUNK)
        except OSError:
            self.cut()
            return
        pumps = [asyncio.create_task(self._commands()), asyncio.create_task(self._replies(upstream))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.cut()

    def cut(self) -> None:
        """Close both sides at once; what was handed to Redis is still applied."""
        self.writer.transport.abort()
        if self._upstream is not None:
            self._upstream.close()

    async def _commands(self) -> None:
        assert self._upstream is not None
        buffer = bytearray()
        while data := await self.reader.read(CHUNK):
            await self._wait()
            buffer += data
            at = 0
            while (end := frame_end(buffer, at)) >= 0:
                if not await self._command(bytes(buffer[at:end])):
                    return
                at = end
                if at == len(buffer):
                    break
            del buffer[:at]

    async def _command(self, frame: bytes) -> bool:
        """Pass one command on, or not; whether the connection goes on."""
        assert self._upstream is not None
        if self.silent:
            return True
        verdict = self.proxy._judge(self.pid, frame)
        if self.proxy.on_reply and verdict.fault not in (Fault.CUT_BEFORE, Fault.REFUSE):
            self._asked.append(Command(words_of(frame), self.pid, self.proxy.counts[self.pid]))
        if verdict.fault is Fault.PASS:
            self._forward(frame)
            return True
        await self._all_answered()
        if verdict.fault is Fault.REFUSE:
            self.writer.write(b"-%b\r\n" % verdict.error)
            if verdict.then:
                verdict.then()
            return True
        if verdict.fault is not Fault.CUT_BEFORE:
            self._verdict = verdict
            self._forward(frame)
            await self._all_answered()
        elif verdict.then:
            verdict.then()
        return False

    def _forward(self, frame: bytes) -> None:
        assert self._upstream is not None
        self._outstanding += 1
        self._answered.clear()
        self._upstream.write(frame)

    async def _all_answered(self) -> None:
        if self._outstanding:
            await self._answered.wait()

    async def _replies(self, upstream: asyncio.StreamReader) -> None:
        buffer = bytearray()
        while data := await upstream.read(CHUNK):
            await self._wait()
            buffer += data
            at = 0
            while at < len(buffer) and (end := frame_end(buffer, at)) >= 0:
                await self._reply(bytes(buffer[at:end]))
                at = end
            del buffer[:at]

    async def _reply(self, frame: bytes) -> None:
        last = self._outstanding == 1
        if self._verdict.fault is Fault.PASS or not last:
            if not self.silent and not self.writer.is_closing():
                self.writer.write(frame)
        else:
            if self._verdict.fault is Fault.CUT_AFTER:
                self.writer.write(frame)
                await self.writer.drain()
            if self._verdict.then:
                self._verdict.then()
        self._outstanding -= 1
        if self.proxy.on_reply:
            self.proxy.on_reply(self._asked.popleft(), frame)
        if not self._outstanding:
            self._answered.set()

    async def _wait(self) -> None:
        if self.proxy.delay_seconds:
            await asyncio.sleep(self.proxy.delay_seconds)
        while self.proxy.held:  # noqa: ASYNC110 - set by other threads
            await asyncio.sleep(0.005)


class FaultProxy:
    """A context manager: inside, the proxy runs in a thread of its own.

    Args:
        server: The unix socket of the Redis. It may come and go: while it is away connections end at once.
    """

    def __init__(self, server: Path) -> None:
        self.server = server
        self.delay_seconds = 0.0
        """How long each read waits before it is passed on, in each direction."""
        self.held = False
        """While true nothing passes, in no direction, and nothing is lost: a network or a server that hangs."""
        self.on_command: Callable[[Command], Verdict] | None = None
        """Judges every command, in the thread of the proxy."""
        self.on_reply: Callable[[Command, bytes], None] | None = None
        """Is told the reply to every command, lost ones included, in the thread of the proxy; set it at the start."""
        self.counts: Counter[int] = Counter()
        """Commands by the process that sent them."""
        self.failure: BaseException | None = None
        self._once: list[tuple[Callable[[Command], bool], Verdict]] = []
        self._links: set[_Link] = set()
        self._folder = Path(tempfile.mkdtemp(prefix="gmtest-proxy-"))
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._port = 0

    @property
    def address(self) -> str:
        """The URL that a client, a scheduler or a worker takes, by unix socket."""
        return f"unix://{self._folder / 'proxy.sock'}"

    @property
    def tcp_address(self) -> str:
        """The same by TCP."""
        return f"redis://127.0.0.1:{self._port}"

    # --- faults ---------------------------------------------------------------------------------------------

    def lose_reply(self, which: Callable[[Command], bool]) -> threading.Event:
        """Lose the reply to the next command of which this is true, that one only; the event says that it happened."""
        return self._strike_once(which, Fault.LOSE_REPLY)

    def refuse(self, which: Callable[[Command], bool], error: bytes) -> threading.Event:
        """Refuse the next command of which this is true, that one only; the event says that it happened."""
        return self._strike_once(which, Fault.REFUSE, error)

    def _strike_once(self, which: Callable[[Command], bool], fault: Fault, error: bytes = b"") -> threading.Event:
        happened = threading.Event()
        self._once.append((which, Verdict(fault, happened.set, error)))
        return happened

    def cut(self, pid: int = 0) -> None:
        """Cut every connection, or those of one process; new ones are welcome."""

        def cut() -> None:
            for link in list(self._links):
                if pid in (0, link.pid):
                    link.cut()

        self._in_loop(cut)

    def go_silent(self, pid: int = 0) -> None:
        """Half-open: the connections that are there stay open, and nothing passes any more; new ones work."""

        def silence() -> None:
            for link in self._links:
                link.silent = link.silent or pid in (0, link.pid)

        self._in_loop(silence)

    def connections(self, pid: int = 0) -> int:
        """How many there are, of all or of one process."""
        return sum(pid in (0, link.pid) for link in list(self._links))

    # --- the thread -----------------------------------------------------------------------------------------

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise RuntimeError("the fault proxy did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _in_loop(self, what: Callable[[], object]) -> None:
        done = threading.Event()

        def run() -> None:
            what()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(START_SECONDS)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        unix = loop.run_until_complete(asyncio.start_unix_server(self._serve, str(self._folder / "proxy.sock")))
        tcp = loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._port = tcp.sockets[0].getsockname()[1]
        self._ready.set()
        try:
            loop.run_forever()
        finally:
            unix.close()
            tcp.close()
            for link in list(self._links):
                link.cut()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run()
        except (ConnectionError, asyncio.CancelledError):
            pass  # an end like any other
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self._links.discard(link)

    def _judge(self, pid: int, frame: bytes) -> Verdict:
        self.counts[pid] += 1
        if self.on_command is None and not self._once:
            return PASS
        command = Command(words_of(frame), pid, self.counts[pid])
        for index, (which, verdict) in enumerate(self._once):
            if which(command):
                del self._once[index]
                return verdict
        return self.on_command(command) if self.on_command else PASS
