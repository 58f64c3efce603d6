"""Sockets to plain addresses, `redis://` and `unix://`, made by hand.

Importing redis-py costs every process 80 ms of CPU and 12 MB; most connect to nothing but these. Whatever else an
address asks for (TLS, Sentinel, options) is left to redis-py, see `addresses`.
"""

from __future__ import annotations

import socket
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis

from gristmill.errors import ConnectionLostError

DEFAULT_PORT = 6379
IGNORED_OPTIONS = frozenset({"decode_responses", "protocol", "socket_timeout", "encoding", "encoding_errors"})
"""Options of an address that cannot change what we rely on: replies are bytes, blocking reads have their own limits."""
_KEEP_ALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3))
"""A host that has vanished is noticed after about 15 s."""
_NOTHING = object()


class Plain(NamedTuple):
    """What a plain address says."""

    path: str
    """Of the unix socket; empty for TCP."""
    host: str
    port: int
    username: str
    password: str
    database: int


def parse(address: str) -> Plain | None:
    """What the address says, or None when it takes redis-py to understand it."""
    parts = urlsplit(address)
    if parts.scheme not in ("redis", "unix"):
        return None
    options = {name: values[-1] for name, values in parse_qs(parts.query).items() if name not in IGNORED_OPTIONS}
    database = options.pop("db", "" if parts.scheme == "unix" else parts.path.strip("/")) or "0"
    if options or not database.isdigit():
        return None
    return Plain(
        path=unquote(parts.path) if parts.scheme == "unix" else "",
        host=parts.hostname or "localhost",
        port=parts.port or DEFAULT_PORT,
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=int(database),
    )


def open_socket(plain: Plain, name: str, timeout: float) -> socket.socket:
    """Connect, sign in, choose the database; raises OSError, or ConnectionLostError when Redis refuses."""
    if plain.path:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.settimeout(timeout)
        try:
            connected.connect(plain.path)
        except OSError:
            connected.close()
            raise
    else:
        connected = socket.create_connection((plain.host, plain.port), timeout)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in _KEEP_ALIVE:
            if hasattr(socket, option):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    try:
        _greet(connected, plain, name)
    except BaseException:
        connected.close()
        raise
    return connected


def _greet(connected: socket.socket, plain: Plain, name: str) -> None:
    commands: list[tuple[Any, ...]] = []
    if plain.password:
        commands.append(("AUTH", *([plain.username] if plain.username else []), plain.password))
    if plain.database:
        commands.append(("SELECT", plain.database))
    if name:
        commands.append(("CLIENT", "SETNAME", name))
    if not commands:
        return
    connected.sendall(b"".join(hiredis.pack_command(command) for command in commands))
    reader = hiredis.Reader(notEnoughData=_NOTHING)
    for _ in commands:
        while (reply := reader.gets()) is _NOTHING:
            data = connected.recv(4096)
            if not data:
                raise ConnectionLostError("the server closed the connection")
            reader.feed(data)
        if isinstance(reply, Exception):
            raise ConnectionLostError(str(reply))
