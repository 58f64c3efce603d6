"""What every page shares: one description makes its address, the fragment that it polls, and its JSON.

    page = Page("clients", "/clients", "Clients", show)

    def show(request: Request) -> Shown: ...

gives `/clients` (the whole page), `/fragments/clients` (what htmx polls: the template `clients.html` alone) and
`/api/v1/clients` (`Shown.plain` as JSON). A path may have parts, `/tasks/<task>`: they come as `request.place`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from flask import Blueprint, Response, current_app, g, redirect, render_template, request
from werkzeug.exceptions import NotFound

from gristmill.snapshot import Snapshot
from gristmill_web.board import Board
from gristmill_web.fragments import Fragment, Fragments
from gristmill_web.history import History
from gristmill_web.identity import Identity
from gristmill_web.memory import Memory
from gristmill_web.preferences import COOKIE, Preferences
from gristmill_web.queries import Query

API = "/api/v1"
API_VERSION = 1
TAG_HEADER = "Page-Tag"
"""Digest of a fragment: a browser that sends the one it has is answered 304 without a body while it holds.

Not ETag: with that one the browser answers our script with the old body, and the swap would run all the same.
"""
TIME_HEADER = "Page-Time"
"""Redis's time in ms at which the figures were read: not in the fragment, which would be another one at each tick."""


@dataclass(frozen=True)
class Request:
    """What one viewer asks for."""

    board: Board
    arguments: Mapping[str, str]
    """Of the address."""
    place: Mapping[str, str]
    """Parts of the path."""
    preferences: Preferences
    memory: Memory

    @property
    def snapshot(self) -> Snapshot:
        return self.board.snapshot

    @property
    def history(self) -> History:
        """Recent history, read by now."""
        found: History = current_app.extensions["gristmill_history"]
        return found.look()


@dataclass(frozen=True)
class Shown:
    """What a page shows for one request."""

    values: dict[str, Any]
    """For the template."""
    plain: Any
    """For programs: a dict of what orjson can write, or a function that makes it, when that is much work."""
    query: Query
    """What is polled, and what links start from."""
    now: int = 0
    """Time of the figures by Redis's clock, ms; 0 when there are none."""
    problem: str = ""
    """Why the figures are not of now; empty when they are."""
    news: str = ""
    """What the tab's title says first."""
    final: bool = False
    """Nothing here changes any more: it is not polled."""
    status: int = 200
    """Of the answer; 404 for something that is not there."""
    title: str = ""
    """Of the page; its label when empty."""


Show = Callable[[Request], Shown]


@dataclass
class Page:
    """One page. `controls` is a template that stands above what is polled: forms keep what is typed into them."""

    name: str
    path: str
    label: str
    show: Show
    controls: str = ""
    in_navigation: bool = True
    blueprint: Blueprint = field(init=False)

    def __post_init__(self) -> None:
        self.blueprint = Blueprint(self.name, __name__)
        path = self.path if self.path != "/" else "/overview"
        self.blueprint.add_url_rule(self.path, "whole", self._whole)
        self.blueprint.add_url_rule(f"/fragments{path}", "fragment", self._fragment)
        self.blueprint.add_url_rule(f"{API}{path}", "data", self._data)

    @property
    def template(self) -> str:
        return f"{self.name}.html"

    def _shown(self, place: Mapping[str, str]) -> Shown:
        memory: Memory = current_app.extensions["gristmill_memory"]
        return self.show(Request(board(), request.args.to_dict(), place, preferences(), memory))

    def _values(self, shown: Shown) -> dict[str, Any]:
        return {**shown.values, "shown": shown, "query": shown.query, "page": self}

    def _whole(self, **place: str) -> Response:
        if request.method == "HEAD":
            return health_response()
        shown = self._shown(place)
        poll = "" if shown.final else shown.query.address("fragment")
        data = shown.query.address("data")
        html = render_template("whole.html", poll=poll, data=data, **self._values(shown))
        return Response(html, status=shown.status)

    def _fragment(self, **place: str) -> Response:
        fragments: Fragments = current_app.extensions["gristmill_fragments"]
        identity: Identity | None = g.get("identity")
        # All that a fragment depends on, but for what is read: see the globals of the templates in `app`.
        key = (request.full_path, request.script_root, preferences(), identity and identity.may_act)
        fragment = fragments.look(key, lambda: self._rendered(place))
        unchanged = request.headers.get(TAG_HEADER) == fragment.tag
        response = Response(status=304) if unchanged else Response(fragment.html)
        response.headers[TAG_HEADER] = fragment.tag
        response.headers[TIME_HEADER] = str(fragment.now)
        return response

    def _rendered(self, place: Mapping[str, str]) -> Fragment:
        shown = self._shown(place)
        if shown.status == 404:
            raise NotFound
        return Fragment.of(render_template("fragment.html", **self._values(shown)), shown.now)

    def _data(self, **place: str) -> Response:
        shown = self._shown(place)
        if shown.status == 404:
            raise NotFound
        plain = shown.plain() if callable(shown.plain) else shown.plain
        body = {"version": API_VERSION, "now": shown.now, "problem": shown.problem, **plain}
        return Response(orjson.dumps(body), status=503 if shown.problem else 200, mimetype="application/json")


_BACK = re.compile(r"/(?![/\\])[!-~]{0,2000}\Z")
"""A path of our own: with two slashes it would name another host."""


def way_back(path: str, otherwise: str = "/") -> Response:
    """Redirect to a path of ours, which begins with the prefix; or else to `otherwise`, which does not."""
    own = _BACK.match(path) and (path == request.script_root or path.startswith(f"{request.script_root}/"))
    response: Response = redirect(path if own else f"{request.script_root}{otherwise}", 303)  # type: ignore[assignment]
    return response


def health_response() -> Response:
    """200 and `ok` when Redis serves the namespace, or 503 and the reason."""
    problem = board().ping()
    return Response(f"{problem or 'ok'}\n", status=503 if problem else 200, mimetype="text/plain")


def board() -> Board:
    """The application's board."""
    found: Board = current_app.extensions["gristmill_board"]
    return found


def preferences() -> Preferences:
    """Those of the browser that asks."""
    if "preferences" not in g:
        g.preferences = Preferences.of_cookie(request.cookies.get(COOKIE, ""))
    found: Preferences = g.preferences
    return found
