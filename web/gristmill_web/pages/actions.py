"""What operators may do: by POST only, naming the state that they saw, through the request streams like everybody.

An action that finds another state than it names does nothing and answers 409 with the state of now. One that is sent
twice changes nothing the second time. What was ordered, by whom and why stands in the audit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from urllib.parse import urlencode

import orjson
from flask import Blueprint, Response, g, render_template, request
from werkzeug.exceptions import NotFound

from gristmill.errors import ConnectionLostError, RedisRefusedError, UnknownTaskError
from gristmill.orders import REASON_LENGTH, Orders
from gristmill.snapshot import check_task_id
from gristmill_web.frame import API, board, way_back

page = Blueprint("actions", __name__)
logger = logging.getLogger(__name__)

SENTENCES = {
    "cancel": "The cancel is on its way.",
    "retry": "The task is on its way to a worker.",
    "cancel-all": "The cancel of all its tasks is on its way.",
    "drain": "The worker is told to leave when what it executes has ended.",
    "stop": "The worker is told to leave at once.",
    "pause": "Dispatch is being paused.",
    "resume": "Dispatch is being resumed.",
}
ENDED_CANCEL = ("inactive", "running", "balance_canceling")
"""States of a task in which a cancel changes anything."""


def done() -> str:
    """What to say about the action that has led to this page; empty when none has."""
    return SENTENCES.get(request.args.get("done", ""), "")


def _act(action: str, current: str, send: Callable[[Orders, str, str], None], target: str) -> Response:
    """Send the order when what it is about is still as the page showed it; `current` is its state."""
    expected = request.form.get("expected", "")
    if current != expected:
        return _refuse(action, target, expected, current)
    snapshot = board().snapshot
    reason = request.form.get("reason", "")[:REASON_LENGTH]
    try:
        send(Orders(snapshot.address, snapshot.keys), g.identity.name, reason)
    except (ConnectionLostError, RedisRefusedError) as error:
        return Response(f"{error}\n", status=503, mimetype="text/plain")
    logger.info("ordered", extra={"action": action, "target": target, "by": g.identity.name, "reason": reason})
    if request.path.startswith(API):
        return Response(orjson.dumps({"version": 1, "ordered": action}), status=202, mimetype="application/json")
    back = request.form.get("back", "")
    return way_back(f"{back}{'&' if '?' in back else '?'}{urlencode({'done': action})}")


def _refuse(action: str, target: str, expected: str, current: str) -> Response:
    if request.path.startswith(API):
        problem = {
            "type": "about:blank",
            "title": "It has moved on",
            "status": 409,
            "expected": expected,
            "current_state": current,
        }
        return Response(orjson.dumps(problem), status=409, mimetype="application/problem+json")
    html = render_template("refused.html", action=action, target=target, expected=expected, current=current)
    return Response(html, status=409)


def _route(path: str) -> Callable[[Callable[..., Response]], Callable[..., Response]]:
    """The same for pages and for programs."""

    def decorate(view: Callable[..., Response]) -> Callable[..., Response]:
        page.add_url_rule(f"/actions{path}", view.__name__, view, methods=["POST"])
        page.add_url_rule(f"{API}/actions{path}", f"{view.__name__}_data", view, methods=["POST"])
        return view

    return decorate


@_route("/tasks/<task>/cancel")
def cancel(task: str) -> Response:
    """Cancel one task."""
    return _act("cancel", _state(task), lambda orders, by, why: orders.cancel([task], by=by, reason=why), task)


@_route("/tasks/<task>/retry")
def retry(task: str) -> Response:
    """Run a task now that failed and waits for its next attempt."""
    return _act("retry", _state(task), lambda orders, by, why: orders.retry(task, by=by, reason=why), task)


@_route("/clients/<client>/cancel-all")
def cancel_all(client: str) -> Response:
    """Cancel all tasks of a client."""
    known = board().snapshot.client(client)
    if known is None:
        raise NotFound
    state = "live"
    return _act("cancel-all", state, lambda orders, by, why: orders.cancel_client(client, by=by, reason=why), client)


@_route("/workers/<worker>/drain")
def drain(worker: str) -> Response:
    """Tell a worker to leave when what executes has ended."""
    state = _worker(worker)
    return _act("drain", state, lambda orders, by, why: orders.worker(worker, "drain", by=by, reason=why), worker)


@_route("/workers/<worker>/stop")
def stop(worker: str) -> Response:
    """Tell a worker to leave at once; what it executes runs again elsewhere."""
    state = _worker(worker)
    return _act("stop", state, lambda orders, by, why: orders.worker(worker, "stop", by=by, reason=why), worker)


@_route("/dispatch/pause")
def pause() -> Response:
    """Assign no task any more."""
    return _act("pause", _dispatch(), lambda orders, by, why: orders.pause(True, by=by, reason=why), "")


@_route("/dispatch/resume")
def resume() -> Response:
    """Assign tasks again."""
    return _act("resume", _dispatch(), lambda orders, by, why: orders.pause(False, by=by, reason=why), "")


def _state(task: str) -> str:
    """The state that the task's record names; `gone` when it has ended and is forgotten."""
    try:
        check_task_id(task)
    except UnknownTaskError:
        raise NotFound from None
    return board().snapshot.states([task])[task] or "gone"


def _worker(worker: str) -> str:
    """The worker's state, of those that matter here."""
    found = board().snapshot.worker(worker)
    if found is None:
        raise NotFound
    return found.state


def _dispatch() -> str:
    return "paused" if board().snapshot.paused() else "running"
