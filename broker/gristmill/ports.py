"""Ports that nobody uses."""

from __future__ import annotations

import socket


def free_port(host: str = "127.0.0.1", port: int = 0) -> int:
    """`port`, or any free one for 0; OSError when it is taken. Another program may take it a moment later."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])
