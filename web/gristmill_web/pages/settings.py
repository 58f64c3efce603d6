"""Settings of each browser: a form without script, kept in a cookie."""

from __future__ import annotations

import re

from flask import Blueprint, Response, redirect, render_template, request

from gristmill_web.frame import preferences
from gristmill_web.preferences import CHOICES, COOKIE, YEAR_SECONDS

page = Blueprint("settings", __name__)

_BACK = re.compile(r"/(?![/\\])[!-~]{0,2000}\Z")
"""A path of our own: with two slashes it would name another host."""


@page.get("/settings")
def whole() -> str:
    """The form."""
    return render_template("settings.html", choices=CHOICES, saved="saved" in request.args)


@page.post("/settings")
def change() -> Response:
    """Keep what was chosen; what the form does not name stays as it was."""
    chosen = preferences().changed(request.form.to_dict())
    back = request.form.get("back", "")
    here = f"{request.script_root}/settings?saved"
    response: Response = redirect(back if _BACK.match(back) else here, 303)  # type: ignore[assignment]
    response.set_cookie(
        COOKIE, chosen.cookie, max_age=YEAR_SECONDS, path=request.script_root or "/", secure=request.is_secure,
        httponly=True, samesite="Strict",
    )  # fmt: skip
    return response
