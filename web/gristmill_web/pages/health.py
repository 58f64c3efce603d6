"""Health: green only when Redis serves the namespace."""

from __future__ import annotations

from flask import Blueprint, Response

from gristmill_web.frame import health_response

page = Blueprint("health", __name__)


@page.get("/health")
def health() -> Response:
    """200 and `ok`, or 503 and the reason."""
    return health_response()
