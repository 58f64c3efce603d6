"""Health of a scheduler or worker over HTTP: whether its loop advances, and whether it is in touch with Redis.

    health = Health(stuck_seconds=30)
    with health.serve(port=8701):
        while True:
            health.beat()      # each turn of the loop
            health.ready = True

`/healthz` answers 200 while the loop has turned within `stuck_seconds`: a program that is alive and does nothing is not
well, though a port answers. `/readyz` answers 200 while it is also in touch with Redis. Neither asks Redis.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gristmill.errors import SettingError


class Health:
    """What the loop says of itself; read by the thread that answers."""

    def __init__(self, *, stuck_seconds: float) -> None:
        self.stuck_seconds = stuck_seconds
        self.ready = False
        """Whether the program is in touch with Redis, and registered where that is needed."""
        self.turned_at = time.monotonic()

    def beat(self) -> None:
        """The loop has turned."""
        self.turned_at = time.monotonic()

    def problem(self, of_readiness: bool) -> str:
        """Why it is not well, or not ready; empty when it is."""
        silent = time.monotonic() - self.turned_at
        if silent > self.stuck_seconds:
            return f"its loop has not turned for {silent:.0f} s"
        if of_readiness and not self.ready:
            return "it is not in touch with Redis"
        return ""

    @contextmanager
    def serve(self, host: str, port: int) -> Iterator[int]:
        """Answer on that port in a thread, 0 for any free one; gives the port. A port of -1 is none."""
        if port < 0:
            yield port
            return
        from gristmill import health_server  # http.server is not for those who have no port

        try:
            server = health_server.server(host, port, self.problem)
        except OSError as error:
            raise SettingError(
                f"--health-port: expected a free port on {host}; got {port}: {error}; choose another"
            ) from None
        thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="health", daemon=True)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
