"""Settings of each browser: a form without script, kept in a cookie."""

from __future__ import annotations

from flask import Blueprint, Response, render_template, request

from gristmill_web.frame import preferences, way_back
from gristmill_web.preferences import CHOICES, COOKIE, YEAR_SECONDS

page = Blueprint("settings", __name__)


@page.get("/settings")
def whole() -> str:
    """The form."""
    return render_template("settings.html", choices=CHOICES, saved="saved" in request.args)


@page.post("/settings")
def change() -> Response:
    """Keep what was chosen; what the form does not name stays as it was."""
    chosen = preferences().changed(request.form.to_dict())
    response = way_back(request.form.get("back", ""), "/settings?saved")
    response.set_cookie(
        COOKIE, chosen.cookie, max_age=YEAR_SECONDS, path=request.script_root or "/", secure=request.is_secure,
        httponly=True, samesite="Strict",
    )  # fmt: skip
    return response
