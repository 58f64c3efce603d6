"""`python -m gristmill.healthcheck scheduler|worker|web`: is the program in this container well?

For container platforms: exit code 0 when it is, 1 with a sentence when not. A scheduler or worker is well when Redis
has heard of it lately; it is found by the hostname, so this is of use where each has a hostname of its own.
The page is well when it answers. Settings come from the environment and the file, as the programs' own do, but not from
the command line of the program.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import urllib.error
import urllib.request
from typing import Any

from gristmill.errors import GristmillError
from gristmill.settings import CONFIG_VARIABLE, SchedulerSettings, WorkerSettings, load

PAGE_SECONDS = 3.0


def problem(kind: str, address: str, namespace: str) -> str:
    """What is wrong with this host's program of that kind; empty when nothing."""
    from gristmill.snapshot import Snapshot

    host = socket.gethostname()
    with Snapshot(address, namespace) as snapshot:
        if kind == "scheduler":
            found = [scheduler.live for scheduler in snapshot.schedulers() if scheduler.host == host]
        else:
            found = [worker.state in ("live", "paused", "alone", "draining") for worker in snapshot.workers_of(host)]
    return "" if any(found) else f"expected a {kind} of host {host} that was heard lately; got {found or 'none'}"


def page_problem(port: int, prefix: str) -> str:
    """What is wrong with this host's page; empty when nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{prefix}/readyz", timeout=PAGE_SECONDS):
            return ""
    except (OSError, urllib.error.URLError) as error:
        return f"the page does not answer: {error}"


def _settings(kind: str) -> Any:
    if kind == "web":
        cls = importlib.import_module("gristmill_web.settings").PageSettings  # by name: gristmill does not import it
    else:
        cls = SchedulerSettings if kind == "scheduler" else WorkerSettings
    return load(cls, config=os.environ.get(CONFIG_VARIABLE))


def main(arguments: list[str]) -> str:
    """The problem as a sentence; empty when all is well."""
    if len(arguments) != 1 or arguments[0] not in ("scheduler", "worker", "web"):
        return "expected one of scheduler, worker, web"
    (kind,) = arguments
    try:
        settings = _settings(kind)
        if kind == "web":
            return page_problem(settings.port, settings.prefix)
        return problem(kind, settings.address, settings.namespace)
    except GristmillError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
