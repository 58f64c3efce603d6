"""`python -m gristmill.healthcheck scheduler|worker|web`: is the program in this container well?

For container platforms: exit code 0 when it is, 1 with a sentence when not. A scheduler or worker is well when Redis
has heard of it lately; it is found by the hostname, so this is of use where each has a hostname of its own.
The page is well when it answers.
"""

from __future__ import annotations

import os
import socket
import sys
import urllib.error
import urllib.request

from gristmill.errors import GristmillError

PAGE_SECONDS = 3.0


def problem(kind: str, address: str, namespace: str) -> str:
    """What is wrong with this host's program of that kind; empty when nothing."""
    from gristmill.snapshot import Snapshot

    host = socket.gethostname()
    with Snapshot(address, namespace) as snapshot:
        if kind == "scheduler":
            found = [scheduler.live for scheduler in snapshot.schedulers() if scheduler.host == host]
        else:
            rows = snapshot.workers(per_page=1000).rows
            found = [worker.state in ("live", "draining") for worker in rows if worker.host == host]
    return "" if any(found) else f"expected a {kind} of host {host} that was heard lately; got {found or 'none'}"


def page_problem(port: str) -> str:
    """What is wrong with this host's page; empty when nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PAGE_SECONDS):
            return ""
    except (OSError, urllib.error.URLError) as error:
        return f"the page does not answer: {error}"


def main(arguments: list[str]) -> str:
    """The problem as a sentence; empty when all is well."""
    if len(arguments) != 1 or arguments[0] not in ("scheduler", "worker", "web"):
        return "expected one of scheduler, worker, web"
    if arguments[0] == "web":
        return page_problem(os.environ.get("GRISTMILL_PORT") or "8700")
    try:
        return problem(
            arguments[0], os.environ.get("GRISTMILL_REDIS", ""), os.environ.get("GRISTMILL_NAMESPACE") or "default"
        )
    except GristmillError as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
