"""The way in and out, where the page has accounts."""

from __future__ import annotations

from flask import Blueprint, Response, current_app, g, redirect, render_template, request, session

from gristmill_web.frame import way_back
from gristmill_web.identity import Doorkeeper, TooManyTriesError

page = Blueprint("login", __name__)


@page.get("/login")
def form() -> str:
    """Where one says who one is."""
    return render_template("login.html", wrong="", back=request.script_root + request.args.get("back", ""))


@page.post("/login")
def enter() -> Response:
    """Begin a session; 401 with the form when the password is wrong, 429 after too many."""
    doorkeeper: Doorkeeper = current_app.extensions["gristmill_doorkeeper"]
    name, password = request.form.get("name", ""), request.form.get("password", "")
    try:
        identity = doorkeeper.log_in(name, password[:1000])
    except TooManyTriesError:
        return _again("Too many wrong passwords of late. Try again in a minute.", 429)
    if identity is None:
        return _again("Name or password is wrong.", 401)
    session.clear()
    session.permanent = True
    session["name"] = identity.name
    return way_back(request.form.get("back", ""))


def _again(wrong: str, status: int) -> Response:
    html = render_template("login.html", wrong=wrong, back=request.form.get("back", ""))
    return Response(html, status=status)


@page.post("/logout")
def leave() -> Response:
    """End the session."""
    session.clear()
    g.identity = None
    response: Response = redirect(f"{request.script_root}/login", 303)  # type: ignore[assignment]
    return response
