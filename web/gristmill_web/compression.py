"""Smaller answers: a page of rows is much the same from row to row, and shrinks to a twentieth."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from flask import request

if TYPE_CHECKING:
    from flask import Flask, Response

SMALLEST_BYTES = 1000
LEVEL = 1
"""The quickest: the higher ones take several times as long and save little more."""


def compress(app: Flask) -> None:
    """Compress what the application makes; its files are sent once and kept for ever.

    Nothing on the page is secret, so its length may tell what stands on it.
    """

    @app.after_request
    def _compress(response: Response) -> Response:
        if response.direct_passthrough or response.status_code == 304 or "Content-Encoding" in response.headers:
            return response
        response.vary.add("Accept-Encoding")
        if request.accept_encodings.quality("gzip") and len(response.get_data()) >= SMALLEST_BYTES:
            response.set_data(gzip.compress(response.get_data(), LEVEL, mtime=0))
            response.headers["Content-Encoding"] = "gzip"
        return response
