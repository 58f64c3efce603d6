"""What keeps strangers out of the browser: who may ask, and what the page may do there."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from flask import request
from werkzeug.exceptions import Forbidden, SecurityError

from gristmill_web.settings import LOOPBACK_NAMES, PageSettings

if TYPE_CHECKING:
    from flask import Flask, Response

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Only files of our own, nothing inline, nothing evaluated, no frame around the page."""

HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?\Z")


def trusted_hosts(settings: PageSettings) -> list[str]:
    """Names under which browsers may ask: with any other, a page of somebody else could read ours (DNS rebinding)."""
    names = [*LOOPBACK_NAMES, *settings.listed_hosts()]
    if settings.host not in ("", "0.0.0.0", "::"):
        names.append(f"[{settings.host}]" if ":" in settings.host else settings.host)
    if settings.guarded:
        names.append(socket.gethostname())
    return list(dict.fromkeys(names))


def is_trusted(host: str, names: Collection[str]) -> bool:
    """Whether a Host header names one of `names`, which begin with a dot when all names below are meant.

    Flask's own check knows neither IPv6 addresses nor capital letters.
    """
    found = _HOST.match(host.lower())
    if found is None:
        return False
    name = found[1].removesuffix(".")
    return any(
        name == trusted or (trusted.startswith(".") and (name.endswith(trusted) or name == trusted[1:]))
        for trusted in map(str.lower, names)
    )


SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def is_same_origin(headers: Mapping[str, str], origin: str) -> bool:
    """Whether a browser says that a page of `origin` (scheme and host) has asked. A page of the same site is another.

    Browsers tell by Sec-Fetch-Site over https and from this machine, else by Origin; no page can forge either.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    return headers.get("Origin") == origin


def guard(app: Flask, settings: PageSettings) -> None:
    """Check the Host of every request and the origin of those that change something; set headers of every response."""
    names = trusted_hosts(settings)

    @app.before_request
    def _host() -> None:
        # No browser leaves the header out; the health checks of some proxies do.
        host = request.environ.get("HTTP_HOST")
        if host is not None and not is_trusted(host, names):
            raise SecurityError

    @app.before_request
    def _origin() -> None:
        origin = f"{request.scheme}://{request.host}"
        if request.method not in SAFE_METHODS and not is_same_origin(request.headers, origin):  # type: ignore[arg-type]
            raise Forbidden("only a page of this server may ask for that")

    @app.after_request
    def _headers(response: Response) -> Response:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        # Files have a digest in their address; everything else is of this moment.
        response.headers.setdefault("Cache-Control", "no-store")
        return response
