"""`python -m gristmill_web`: the status page as a program (`gristmill web` is the same)."""

from __future__ import annotations

import click

from gristmill import logs
from gristmill.cli import epilog, run
from gristmill.settings import options
from gristmill_web.settings import PageSettings

EXAMPLES = epilog(
    "gristmill web --redis redis://localhost:6379/0             the page at http://127.0.0.1:8700/",
    "gristmill web --port 0                                     on a free port, which it prints",
    "gristmill web --host 0.0.0.0 --password-file FILE          others can reach it, and log in",
    "gristmill web --host 0.0.0.0 --guarded                     in a container, behind a proxy with a login",
    "gristmill web --actions                                    operators may cancel, retry, drain, stop and pause",
    "gristmill web --prefix /mill --proxies 1 --trusted-hosts mill.example.org",
    "curl -f http://127.0.0.1:8700/readyz                       is it well, and is Redis?",
    "curl http://127.0.0.1:8700/api/v1/overview                      the same as the page, as JSON",
)


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@options(PageSettings)
def command(settings: PageSettings) -> None:
    """Run the status page: counts per state, workers, schedulers and the newest tasks.

    It only reads, unless started with --actions. It listens to this machine alone unless something says who may look:
    a file of accounts or tokens, a proxy that names them, or the word of whoever starts it that something guards it.
    """
    logs.setup(settings)
    from gristmill_web.serving import serve

    serve(settings)


if __name__ == "__main__":
    run(command, name="gristmill web")
