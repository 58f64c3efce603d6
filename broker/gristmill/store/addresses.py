"""From an address to a connected socket: the only module that imports redis-py, and only when first used."""

from __future__ import annotations

import socket
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.connection import AbstractConnection
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from gristmill.errors import AddressError, ConnectionLostError
from gristmill.store.plain import IGNORED_OPTIONS

RETRIES = 3
ANSWER_SECONDS = 5.0
"""How long a connection and each answer may take, so that a frozen Redis is an error and no hang. Nothing that blocks
for longer goes over these clients; a dedicated connection has limits of its own."""


@lru_cache(maxsize=16)
def _pool(address: str) -> redis.ConnectionPool:
    """The pool from which connections to the address are made; query options cannot change what we rely on."""
    fixed: dict[str, Any] = {"protocol": 2, "decode_responses": False, "socket_timeout": ANSWER_SECONDS}
    if address.startswith("redis+sentinel://"):
        return _sentinel_pool(address, fixed)
    base, _, query = address.partition("?")
    kept = {key: values[-1] for key, values in parse_qs(query).items() if key not in IGNORED_OPTIONS}
    return redis.ConnectionPool.from_url(f"{base}?{urlencode(kept)}" if kept else base, **fixed)


def _sentinel_pool(address: str, fixed: dict[str, Any]) -> redis.ConnectionPool:
    """redis+sentinel://[user:password@]host:port[,host:port...]/service[/db]"""
    parts = urlsplit(address)
    credentials, _, hosts = parts.netloc.rpartition("@")
    path = [piece for piece in parts.path.split("/") if piece]
    if not path:
        raise AddressError(
            "expected redis+sentinel://host:port,host:port/service; got no service name; add the master's name"
        )
    sentinels = []
    for host in hosts.split(","):
        name, _, port = host.partition(":")
        sentinels.append((name, int(port or 26379)))
    user, _, password = credentials.partition(":")
    options = {**fixed, "db": int(path[1]) if len(path) > 1 else 0}
    if credentials:
        options.update(username=user or None, password=password or None)
    sentinel = Sentinel(sentinels, socket_timeout=2.0)  # type: ignore[no-untyped-call]
    return SentinelConnectionPool(path[0], sentinel, **options)  # type: ignore[no-untyped-call]


def client(address: str) -> redis.Redis:
    """A redis-py client over a pool of its own size; commands are retried, so they must be safe to apply twice."""
    return redis.Redis(
        connection_pool=_pool(address),
        retry=Retry(ExponentialWithJitterBackoff(cap=1.0, base=0.05), RETRIES),
    )


def open_socket(address: str, name: str, timeout: float) -> tuple[AbstractConnection, socket.socket]:
    """Connect and hand over the socket, with the connection object that owns it."""
    try:
        # Not `make_connection`: it counts, and the pool would refuse after so many reconnects.
        pool = _pool(address)
        link = pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError) as error:
        # redis-py hands unknown options of the address on as arguments.
        raise AddressError(
            f"expected an address whose options redis-py knows; got a wrong one; correct it: {error}"
        ) from None
    assert isinstance(link, AbstractConnection)
    link.retry = Retry(ExponentialWithJitterBackoff(cap=1.0, base=0.05), 0)
    link.client_name = name or None
    link.socket_connect_timeout = timeout
    link.socket_timeout = timeout
    try:
        link.connect()  # type: ignore[no-untyped-call]
    except redis.RedisError as error:
        from gristmill.store.connection import hide_password

        raise ConnectionLostError(f"cannot reach Redis at {hide_password(address)}: {error}") from error
    connected: socket.socket | None = link._sock
    assert connected is not None
    if connected.family != socket.AF_UNIX:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link, connected
