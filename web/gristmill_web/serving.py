"""Serving the application with waitress until told to stop."""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType
from typing import Any

from waitress import create_server

from gristmill import owner
from gristmill.errors import GristmillError
from gristmill_web.app import create_app, wrap
from gristmill_web.identity import check_guarded
from gristmill_web.settings import PageSettings, is_loopback

logger = logging.getLogger(__name__)

THREADS = 8


class ListeningError(GristmillError):
    """The page cannot listen on its address."""


def address_of(settings: PageSettings, port: int) -> str:
    """What one types into a browser."""
    host = "127.0.0.1" if settings.host in ("", "0.0.0.0", "::") else settings.host
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}{settings.prefix}/"


def serve(settings: PageSettings) -> None:
    """Serve until SIGTERM, SIGINT or the end of the owner; the address is the first line on standard output."""
    check_guarded(settings)
    app = create_app(settings)
    try:
        server: Any = create_server(
            wrap(app, settings),
            host=settings.host,
            port=settings.port,
            threads=THREADS,
            ident=None,
            max_request_body_size=64 * 1024,
            # ProxyFix reads these headers when proxies are declared; otherwise nobody may set them.
            clear_untrusted_proxy_headers=not settings.proxies,
        )
    except (OSError, ValueError) as error:
        raise ListeningError(
            f"cannot listen on {settings.host} port {settings.port}: {error}; choose another --port"
        ) from None

    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    owner.watch()
    address = address_of(settings, _port(server))
    print(f"Status page: {address}", flush=True)
    if not is_loopback(settings.host):
        logger.warning("the page is open to others", extra={"host": settings.host})
    logger.info("serving", extra={"address": address, "namespace": settings.namespace})
    app.extensions["gristmill_history"].start()
    try:
        server.run()  # returns when a signal raises SystemExit, after the requests at work
    finally:
        server.close()
        app.extensions["gristmill_history"].close()
        app.extensions["gristmill_board"].snapshot.close()
    logger.info("stopped")
    sys.stdout.flush()


def _port(server: Any) -> int:
    """The port that was given, also when any free one was asked for; of several sockets the first's."""
    listening = getattr(server, "effective_listen", None)
    return int(listening[0][1] if listening else server.effective_port)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
