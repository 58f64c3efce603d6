"""`python -m gristmill_worker`, or `gristmill worker`: one worker."""

from __future__ import annotations

import logging

import click

from gristmill import logs
from gristmill.cli import epilog, run
from gristmill.errors import AddressError, SettingError
from gristmill.protocol import signing
from gristmill.settings import WorkerSettings, options
from gristmill.store.connection import check_server, is_open_to_others

logger = logging.getLogger(__name__)

EXAMPLES = epilog(
    "gristmill worker --redis redis://localhost:6379/0           as many tasks at a time as there are cores",
    "gristmill worker --redis redis://queue:6379/0 --name gpu-1 --capabilities linux,gpu=1",
    "gristmill worker --preload 'models:load(size=3)'            before the first task of each processor",
    "gristmill worker --drain-seconds 30                         at most so long from SIGTERM to the end",
    "kill -TERM PID                                              finish what executes, give back the rest, leave",
)


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@options(WorkerSettings)
def command(settings: WorkerSettings) -> None:
    """Take tasks from Redis and run them in processors of its own.

    SIGTERM or SIGINT (Ctrl-C) drains: what executes is finished, the rest is given back. A second one, or SIGQUIT,
    leaves at once.
    """
    logs.setup(settings)
    from gristmill_worker.agent import Agent

    try:
        if signing.off and is_open_to_others(settings.address):
            logger.warning(
                "whoever can reach this Redis can have code run here: give it a password, or give clients and workers "
                "a signing key", extra={"variable": signing.VARIABLE},
            )  # fmt: skip
        check_server(settings.address)
        agent = Agent(settings)
    except (SettingError, AddressError) as error:
        raise click.UsageError(str(error)) from None
    with agent.health.serve(settings.health_host, settings.health_port) as port:
        if port >= 0:
            logger.info("health answers", extra={"address": f"http://{settings.health_host}:{port}/healthz"})
        agent.run()


if __name__ == "__main__":
    run(command, name="gristmill worker")
