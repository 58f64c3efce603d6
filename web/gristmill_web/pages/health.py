"""Health, for platforms: whether the page answers, and whether Redis serves it."""

from __future__ import annotations

from flask import Blueprint, Response

from gristmill_web.frame import health_response

page = Blueprint("health", __name__)


@page.get("/healthz")
def alive() -> Response:
    """200 whenever a thread is there to say so; Redis is not asked."""
    return Response("ok\n", mimetype="text/plain")


@page.get("/readyz")
def ready() -> Response:
    """200 and `ok` when Redis serves the namespace, or 503 and the reason."""
    return health_response()
