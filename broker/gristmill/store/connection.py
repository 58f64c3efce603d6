"""Connections to Redis.

Two kinds, because they have different needs:

- `connect` gives a `redis.Redis` with a pool and retries, for commands now and then.
  It may send a write twice when a reply is lost, so whatever is sent through it must be safe to apply twice.
- `Connection` is one dedicated socket without retries for the hot loops and the blocking readers:
  hiredis packs and parses, and nothing lies in between. A method call of redis-py costs 35 µs where this costs 10.
  A plain address is connected by hand; for TLS and Sentinel redis-py makes the connection and hands over its socket.
  After any error it is closed; the owner decides what to read again (architecture §2, rule 12).
"""

from __future__ import annotations

import logging
import os
import re
import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import hiredis

from gristmill.errors import AddressError, ConnectionLostError, RedisRefusedError
from gristmill.store import plain

if TYPE_CHECKING:
    import redis
    from redis.connection import AbstractConnection

log = logging.getLogger(__name__)

pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
"""Pack one command, given as a tuple of bytes, str, int or float, to the bytes that go on the wire."""

CONNECT_TIMEOUT_SECONDS = 5.0
REPLY_TIMEOUT_SECONDS = 10.0
RECEIVE_BYTES = 65_536
"""Below what the allocator maps anew for each read."""
PATIENCE_SECONDS = 1.0
"""After so long the log says that Redis is being waited for."""
BLOCK_MILLISECONDS = 2000
"""How long a blocking read may block: short, so that a dead connection is noticed soon."""
BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
SEND_BYTES = 1 << 20
HEAD_BYTES = 64
"""Received at once where the length of what follows is still to be read: little, for it is copied once more."""
_PASSWORD_OPTION = re.compile(r"password=[^&]*")
ELSEWHERE = frozenset(("READONLY", "MASTERDOWN"))
"""Codes of a server that was the master. Its name may lead to another one by now: whoever gets them connects anew."""
PASSING = frozenset({"LOADING", "BUSY", "MASTERDOWN", "READONLY"})
"""Codes of refusals that end by themselves while a server starts, or another takes its place."""
SCHEMES = ("redis", "rediss", "unix", "redis+sentinel")

_NOTHING = object()


class ReplyError(RedisRefusedError):
    """An error reply; the text begins with Redis's own code, such as NOSCRIPT or READONLY."""

    @property
    def code(self) -> str:
        """Redis's code: the first word of the reply."""
        return str(self).partition(" ")[0]


def hide_password(address: str) -> str:
    """The address without its password, fit for a log or an error message; nothing of it when its form is unknown."""
    scheme, separator, rest = address.partition("://")
    if not separator or scheme not in SCHEMES:
        return "(an address that begins with none of these)"
    credentials, at, host = rest.rpartition("@")
    if at:
        rest = f"{credentials.partition(':')[0]}:***@{host}" if ":" in credentials else f"***@{host}"
    return f"{scheme}://{_PASSWORD_OPTION.sub('password=***', rest)}"


def is_open_to_others(address: str) -> bool:
    """Whether the address leads to another machine and has no password: who can reach that Redis can write to it."""
    scheme, _, rest = address.partition("://")
    parts = urlsplit(f"//{rest}")
    credentials, _, hosts = parts.netloc.rpartition("@")
    if scheme == "unix" or ":" in credentials or _PASSWORD_OPTION.search(parts.query):
        return False
    names = {urlsplit(f"//{host}").hostname or "localhost" for host in hosts.split(",")}
    return not all(name in ("localhost", "::1") or name.startswith("127.") for name in names)


def check_address(address: str) -> str:
    """Return `address`, or raise AddressError saying what is wrong; never repeats the password."""
    scheme = next((scheme for scheme in SCHEMES if address.startswith(scheme + "://")), None)
    if scheme is None:
        raise AddressError(
            f"expected an address that begins with {', '.join(s + '://' for s in SCHEMES)}; "
            "got another one (not shown, it may hold a password); for example redis://localhost:6379/0"
        )
    if "@" in urlsplit(address).path and scheme != "unix":
        raise AddressError(
            "expected an address such as redis://user:password@host:6379/0; got an '@' behind a '/'; "
            "percent-encode special characters of the password ('/' is %2F)"
        )
    try:
        hosts = urlsplit(address).netloc.rpartition("@")[2] if scheme != "unix" else ""
        for host in hosts.split(","):
            urlsplit(f"//{host}").port  # noqa: B018 - reading it checks it
    except ValueError:
        raise AddressError(
            "expected an address such as redis://localhost:6379/0; got one that cannot be read; "
            "percent-encode special characters of the password"
        ) from None
    return address


def backoff(failures: int) -> float:
    """Seconds to wait before the next try after `failures` failures in a row (1, 2, ...)."""
    return BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1]


def connect(address: str) -> redis.Redis:
    """A redis-py client for commands now and then. Replies are bytes whatever the address says."""
    from gristmill.store import addresses

    return addresses.client(check_address(address))


class Connection:
    """One dedicated connection: `send` packed commands, `read` one reply for each."""

    def __init__(self, address: str, *, name: str = "", reply_timeout: float = REPLY_TIMEOUT_SECONDS) -> None:
        self.address = check_address(address)
        self.name = name
        self.reply_timeout = reply_timeout
        self.run_id = ""
        """Which server this is: it changes when Redis restarts or another takes its place."""
        self._link: AbstractConnection | None = None
        self._socket: socket.socket | None = None
        self._reader = hiredis.Reader(replyError=ReplyError, notEnoughData=_NOTHING)
        self._raw = b""
        """What `read_into` has received beyond what it was to read."""

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def fileno(self) -> int:
        """The socket's descriptor, for select and poll; check `buffered` first."""
        return self._require().fileno()

    @property
    def buffered(self) -> bool:
        """Whether bytes that `read` has not used wait in this process."""
        return bool(self._raw or self._reader.has_data())

    def connect(self) -> None:
        """Connect, or raise ConnectionLostError or ReplyError (wrong password, LOADING, ...)."""
        self.close()
        address = plain.parse(self.address)
        if address is None:
            from gristmill.store import addresses

            self._link, self._socket = addresses.open_socket(self.address, self.name, CONNECT_TIMEOUT_SECONDS)
        else:
            try:
                self._socket = plain.open_socket(address, self.name, CONNECT_TIMEOUT_SECONDS)
            except (OSError, ConnectionLostError) as error:
                raise ConnectionLostError(f"cannot reach Redis at {hide_password(self.address)}: {error}") from error
        self._socket.settimeout(self.reply_timeout)
        self._reader = hiredis.Reader(replyError=ReplyError, notEnoughData=_NOTHING)
        self._raw = b""
        info = dict(line.partition(":")[::2] for line in self.request("INFO", "server").decode().splitlines())
        self.run_id = info.get("run_id", "")
        if "cluster" in (info.get("redis_mode"), info.get("server_mode")):  # Redis, Valkey
            self.close()
            raise AddressError(
                "expected a Redis that is not a cluster; got a cluster node; a namespace lives in one slot: "
                "give it a Redis of its own"
            )

    def close(self) -> None:
        """Close; harmless when closed already."""
        link, connected = self._link, self._socket
        self._link = self._socket = None
        if link is not None:
            link.disconnect()  # type: ignore[no-untyped-call]
        elif connected is not None:
            connected.close()

    def send(self, *commands: bytes) -> None:
        """Send packed commands in one write."""
        data = commands[0] if len(commands) == 1 else b"".join(commands)
        connected = self._require()
        try:
            # Nearly always there is room at once; `sendall` would ask first, and let other threads in between.
            sent = _write(connected.fileno(), data) if self._link is None else 0
            if sent < len(data):
                self.send_buffer(memoryview(data)[sent:])
        except OSError as error:
            self._lost(error)

    def receive(self) -> bool:
        """Take what has come, without waiting; whether `read` has something to look at now."""
        connected = self._require()
        if self.buffered:
            return True
        try:
            if self._link is None:
                data = os.read(connected.fileno(), RECEIVE_BYTES)
            elif select.select([connected], [], [], 0)[0]:
                data = connected.recv(RECEIVE_BYTES)
            else:
                return False
        except BlockingIOError:
            return False
        except OSError as error:
            self._lost(error)
        if not data:
            self._lost(None)
        self._reader.feed(data)
        return True

    def send_buffer(self, buffer: memoryview) -> None:
        """Send raw bytes without copying them; each part has the whole time limit for itself."""
        try:
            connected = self._require()
            for begin in range(0, len(buffer), SEND_BYTES):
                connected.sendall(buffer[begin : begin + SEND_BYTES])
        except OSError as error:
            self._lost(error)

    def read_into(self, target: memoryview) -> Any:
        """Read the next reply, a string, into `target`. Returns its length; None when there is none; a ReplyError.

        A string of another length than the target's is read to its end and thrown away, but for what fits.
        """
        head = self._read_line()
        if head[:1] != b"$":
            kind = head[:1]
            if kind == b"-":
                return ReplyError(head[1:].decode(errors="replace"))
            self._lost(OSError(f"expected a string as reply; got {head[:40]!r}"))
        length = int(head[1:])
        if length < 0:
            return None
        taken = min(length, len(target))
        self._fill(target[:taken])
        for begin in range(taken, length, SEND_BYTES):
            self._fill(memoryview(bytearray(min(SEND_BYTES, length - begin))))
        self._fill(memoryview(bytearray(2)))
        return length

    def _read_line(self) -> bytes:
        """One line of the protocol, without its end; what came with it stays for `_fill`."""
        while b"\r\n" not in self._raw:
            self._raw += self._receive(HEAD_BYTES)
        line, _, self._raw = self._raw.partition(b"\r\n")
        return line

    def _fill(self, target: memoryview) -> None:
        ready = min(len(self._raw), len(target))
        target[:ready] = self._raw[:ready]
        self._raw = self._raw[ready:]
        while ready < len(target):
            try:
                count = self._require().recv_into(target[ready:])
            except OSError as error:
                self._lost(error)
            if not count:
                self._lost(None)
            ready += count

    def _receive(self, most: int) -> bytes:
        try:
            data = self._require().recv(most)
        except OSError as error:
            self._lost(error)
        if not data:
            self._lost(None)
        return data

    def read(self) -> Any:
        """The next reply. An error reply is returned as a ReplyError, not raised."""
        reader = self._reader
        reply = reader.gets()
        if reply is not _NOTHING:
            return reply
        if self._raw:  # `read_into` has taken too much
            reader.feed(self._raw)
            self._raw = b""
            reply = reader.gets()
            if reply is not _NOTHING:
                return reply
        receive = self._require().recv
        while True:
            try:
                data = receive(RECEIVE_BYTES)
            except OSError as error:
                self._lost(error)
            if not data:
                self._lost(None)
            reader.feed(data)
            reply = reader.gets()
            if reply is not _NOTHING:
                return reply

    def request(self, *command: Any) -> Any:
        """Send one command and return its reply; an error reply is raised."""
        self.send(pack(command))
        reply = self.read()
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def _require(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLostError(f"not connected to Redis at {hide_password(self.address)}")
        return self._socket

    def _lost(self, error: OSError | None) -> Any:
        self.close()
        raise ConnectionLostError(
            f"lost Redis at {hide_password(self.address)}: {error or 'the server closed the connection'}"
        ) from error


def _write(descriptor: int, data: bytes) -> int:
    try:
        return os.write(descriptor, data)
    except BlockingIOError:
        return 0


def check_server(address: str) -> None:
    """Raise AddressError when a server answers there that can never serve; one that is away may come later."""
    connection = Connection(address)
    try:
        connection.connect()
    except (ConnectionLostError, ReplyError):
        pass
    finally:
        connection.close()


def connect_patiently(connection: Connection, give_up_after: float) -> None:
    """Connect with back-off for at most `give_up_after` seconds; then raise what the last try raised."""
    started = time.monotonic()
    failures = 0
    said = False
    while True:
        try:
            return connection.connect()
        except (ConnectionLostError, ReplyError) as error:
            failures += 1
            waited = time.monotonic() - started
            if waited + backoff(failures) > give_up_after:
                if isinstance(error, ReplyError):
                    raise
                raise ConnectionLostError(
                    f"{error}; tried for {give_up_after:g} s: start a Redis there, or correct the address"
                ) from error
            if waited > PATIENCE_SECONDS and not said:
                said = True
                log.warning("waiting for Redis", extra={"reason": str(error), "seconds": give_up_after})
        time.sleep(backoff(failures))
