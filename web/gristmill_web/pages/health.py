"""Health: green only when Redis serves the namespace."""

from __future__ import annotations

from flask import Blueprint, Response, current_app

from gristmill.errors import ConnectionLostError, RedisRefusedError
from gristmill_web.board import Board

page = Blueprint("health", __name__)


@page.get("/health")
def health() -> Response:
    """200 and `ok`, or 503 and the reason."""
    board: Board = current_app.extensions["gristmill_board"]
    try:
        board.snapshot.ping()
    except (ConnectionLostError, RedisRefusedError) as error:
        return Response(f"{error}\n", status=503, mimetype="text/plain")
    return Response("ok\n", mimetype="text/plain")
