"""What keeps strangers out of the browser: who may ask, and what the page may do there."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from flask import g, redirect, request, session, url_for
from werkzeug.exceptions import Forbidden, SecurityError, Unauthorized

from gristmill_web.identity import Doorkeeper, Identity
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
    if settings.guarded or settings.password_file or settings.token_file or settings.user_header:
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


OPEN_ENDPOINTS = ("static", "login.form", "login.enter", "health.alive", "health.ready")
"""What is answered to anybody: files, the way in, and health, which platforms ask for."""
SESSION_SECONDS = 12 * 3600
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
    """Check of every request its Host, who asks, whether a page of ours asks, and whether they may; set headers."""
    names = trusted_hosts(settings)
    doorkeeper = Doorkeeper(settings)
    app.extensions["gristmill_doorkeeper"] = doorkeeper
    app.secret_key = doorkeeper.secret
    app.config.update(
        SESSION_COOKIE_NAME="gristmill_session", SESSION_COOKIE_SAMESITE="Strict", SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_PATH=f"{settings.prefix}/", PERMANENT_SESSION_LIFETIME=SESSION_SECONDS,
    )  # fmt: skip

    @app.before_request
    def _host() -> None:
        # No browser leaves the header out; the health checks of some proxies do.
        host = request.environ.get("HTTP_HOST")
        if host is not None and not is_trusted(host, names):
            raise SecurityError

    @app.before_request
    def _who() -> Response | None:
        app.config["SESSION_COOKIE_SECURE"] = request.is_secure
        g.identity = _identify(doorkeeper)
        if g.identity is not None or request.endpoint in OPEN_ENDPOINTS:
            return None
        wants_page = request.method in SAFE_METHODS and request.endpoint and request.endpoint.endswith(".whole")
        if wants_page and doorkeeper.accounts:
            response: Response = redirect(url_for("login.form", back=request.full_path.rstrip("?")), 303)  # type: ignore[assignment]
            return response
        raise Unauthorized("say who you are: log in, or send a bearer token")

    @app.before_request
    def _origin() -> None:
        if request.method in SAFE_METHODS or (g.identity is not None and g.identity.by_token):
            return
        if not is_same_origin(request.headers, f"{request.scheme}://{request.host}"):  # type: ignore[arg-type]
            raise Forbidden("only a page of this server may ask for that")

    @app.before_request
    def _may() -> None:
        if request.blueprint == "actions" and request.method not in SAFE_METHODS:
            if not settings.actions:
                raise Forbidden("the page only reads: it was started without --actions")
            if not g.identity.may_act:
                raise Forbidden(f"{g.identity.name} may look, and not act: ask an operator")

    @app.after_request
    def _headers(response: Response) -> Response:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        # Files have a digest in their address; everything else is of this moment.
        response.headers.setdefault("Cache-Control", "no-store")
        return response


def _identify(doorkeeper: Doorkeeper) -> Identity | None:
    """Who sends this request; None when nobody knows."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return doorkeeper.of_token(token.strip())
    if doorkeeper.user_header and (name := request.headers.get(doorkeeper.user_header)):
        return doorkeeper.of_proxy(name)
    if doorkeeper.accounts and (name := session.get("name")):
        return doorkeeper.of_session(str(name))
    return doorkeeper.anybody()
