"""The Flask application: one blueprint a page, one template a region."""

from __future__ import annotations

import hashlib
import importlib.resources
import logging
from functools import lru_cache
from typing import Any

import orjson
from flask import Flask, Response, g, request, url_for
from jinja2.utils import Namespace
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound, SecurityError
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from gristmill._version import __version__
from gristmill.snapshot import Snapshot, formats, is_task_id
from gristmill_web import compression, security
from gristmill_web.board import Board
from gristmill_web.charts.colours import Colours
from gristmill_web.fragments import Fragments
from gristmill_web.frame import API, preferences
from gristmill_web.histograms import Durations
from gristmill_web.history import History
from gristmill_web.memory import Memory
from gristmill_web.pages import PAGES, actions, health, login, metrics
from gristmill_web.pages import settings as settings_page
from gristmill_web.settings import PageSettings

logger = logging.getLogger(__name__)

HTMX = "vendor/htmx-4.0.1.min.js"
FILTERS = (
    "ago", "clock", "count", "iso", "iso_ms", "percent", "rate", "size", "span", "state_sentence", "state_word",
    "worker_name",
)  # fmt: skip
"""Functions of `gristmill.snapshot.formats` that the templates use."""
REDIS_TIMEOUT_SECONDS = 3.0
"""A viewer should see the banner, not a page that loads for ever."""
YEAR_SECONDS = 31_536_000


def create_app(settings: PageSettings) -> Flask:
    """The application for one namespace of one Redis. Nothing is connected before the first request."""
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = 64 * 1024
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = YEAR_SECONDS
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters.update({name: getattr(formats, name) for name in FILTERS})
    app.jinja_env.tests["task_id"] = is_task_id
    app.jinja_env.globals.update(
        asset=_asset, htmx=HTMX, namespace=settings.namespace, release=__version__, preferences=preferences,
        mutable=Namespace,
        has_page=lambda name: f"{name}.whole" in app.view_functions,
        navigation=[page for page in PAGES if page.in_navigation], refresh_ms=lambda: _refresh_ms(settings),
    )  # fmt: skip
    snapshot = Snapshot(settings.address, settings.namespace, reply_timeout=REDIS_TIMEOUT_SECONDS)
    board = Board(snapshot, max_age_seconds=settings.refresh_seconds / 2)
    memory = Memory()
    app.extensions["gristmill_board"] = board
    app.extensions["gristmill_memory"] = memory
    app.extensions["gristmill_fragments"] = Fragments(max_age_seconds=settings.refresh_seconds / 4)
    history = History(snapshot, look_at_fleet=lambda: memory.fleet(board).value)
    durations = Durations()
    history.observers.append(durations.note)
    app.extensions["gristmill_history"] = history
    app.extensions["gristmill_durations"] = durations
    app.extensions["gristmill_colours"] = Colours()
    for page in PAGES:
        app.register_blueprint(page.blueprint)
    app.register_blueprint(settings_page.page)
    app.register_blueprint(health.page)
    app.register_blueprint(metrics.page)
    app.register_blueprint(login.page)
    app.register_blueprint(actions.page)
    security.guard(app, settings)
    doorkeeper = app.extensions["gristmill_doorkeeper"]
    app.jinja_env.globals.update(
        me=lambda: g.get("identity"), asks=doorkeeper.asks, logs_in=bool(doorkeeper.accounts),
        acts=lambda: settings.actions and g.get("identity") is not None and g.identity.may_act, done=actions.done,
    )  # fmt: skip
    compression.compress(app)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _bug)
    return app


def wrap(app: Flask, settings: PageSettings) -> Flask:
    """Put the application below its prefix and behind its proxies."""
    wrapped: Any = app.wsgi_app
    if settings.prefix:
        wrapped = DispatcherMiddleware(_outside_prefix, {settings.prefix: wrapped})
    if settings.proxies:
        hops = settings.proxies
        wrapped = ProxyFix(wrapped, x_for=hops, x_proto=hops, x_host=hops, x_prefix=hops)
    app.wsgi_app = wrapped  # type: ignore[method-assign] # Flask's documentation says to do so
    return app


def _outside_prefix(environ: Any, start_response: Any) -> Any:
    return NotFound()(environ, start_response)


def _refresh_ms(settings: PageSettings) -> int:
    """How often this browser asks for news."""
    return round((preferences().refresh or settings.refresh_seconds) * 1000)


@lru_cache
def _digest(name: str) -> str:
    content = importlib.resources.files("gristmill_web") / "static" / name
    return hashlib.sha256(content.read_bytes()).hexdigest()[:12]


def _asset(name: str) -> str:
    """Address of a file; its digest is in it, so that browsers may keep the file for ever."""
    return url_for("static", filename=name, v=_digest(name))


def _plain(status: int, text: str) -> Response:
    return Response(f"{text}\n", status=status, mimetype="text/plain")


def _http_error(error: HTTPException) -> Response | HTTPException:
    if isinstance(error, SecurityError):
        return _plain(
            400,
            "This page does not answer under this host name. If the name is yours, start the page with "
            "--trusted-hosts NAME.",
        )
    if error.response is not None or not error.code or error.code < 400:
        return error  # a redirect
    if request.path.startswith(API):
        problem = {"title": error.name, "status": error.code, "detail": error.description}
        response = Response(orjson.dumps(problem), status=error.code, mimetype="application/problem+json")
    else:
        response = _plain(error.code, f"{error.code} {error.name}: {error.description}")
    if error.code == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(error.valid_methods)
    return response


def _bug(error: Exception) -> Response:
    logger.error("a page could not be made", exc_info=error)
    return _plain(500, "500 The page could not be made; the log of `gristmill web` has the reason.")
