"""The server behind `gristmill.health`: a thread that answers two addresses."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gristmill._version import __version__


def server(host: str, port: int, problem: Callable[[bool], str]) -> ThreadingHTTPServer:
    """A server that is not started yet; `problem` is asked, with whether it is about being ready, for each answer."""
    found = ThreadingHTTPServer((host, port), type("Handler", (_Handler,), {"problem": staticmethod(problem)}))
    found.daemon_threads = True
    return found


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    problem: Callable[[bool], str]
    timeout = 5
    protocol_version = "HTTP/1.0"
    server_version = f"gristmill/{__version__}"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path not in ("/healthz", "/readyz"):
            self._answer(404, "expected /healthz or /readyz")
            return
        problem = type(self).problem(self.path == "/readyz")
        self._answer(503 if problem else 200, problem or "ok")

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def _answer(self, status: int, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Platforms ask every few seconds: no line for each."""
