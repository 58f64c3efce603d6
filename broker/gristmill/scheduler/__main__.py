"""`python -m gristmill.scheduler`: one scheduler replica."""

from __future__ import annotations

import logging
import signal

import click

from gristmill import owner
from gristmill.cli import epilog, run
from gristmill.logs import setup
from gristmill.scheduler.loop import Loop
from gristmill.settings import SchedulerSettings, options

log = logging.getLogger(__name__)

EPILOG = epilog(
    "gristmill scheduler --redis redis://localhost:6379/0",
    "gristmill scheduler --redis redis://localhost:6379/0 --namespace research",
    "GRISTMILL_REDIS=rediss://user:secret@redis.example:6380/0 gristmill scheduler --log-format json",
    note="Start as many as you like: they share the work, and any of them may be killed at any time.",
)


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@options(SchedulerSettings)
def command(settings: SchedulerSettings) -> None:
    """Run one scheduler replica until SIGTERM or SIGINT."""
    setup(settings)
    loop = Loop(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.stop())
    owner.watch()
    with loop.health.serve(settings.health_host, settings.health_port) as port:
        if port >= 0:
            log.info("health answers", extra={"address": f"http://{settings.health_host}:{port}/healthz"})
        loop.run()


if __name__ == "__main__":
    run(command, name="gristmill scheduler")
