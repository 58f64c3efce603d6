"""`python -m gristmill_worker`: one worker."""

from __future__ import annotations

import click

from gristmill import logs
from gristmill.errors import AddressError, SettingError
from gristmill.settings import WorkerSettings, options

EXAMPLES = """\b
Examples:
  Two tasks at a time, on the Redis of this machine:
    gristmill worker --redis redis://localhost:6379/0 --concurrency 2
  For tasks that ask for a GPU, under a name that the page shows:
    gristmill worker --redis redis://queue:6379/0 --name gpu-1 --capabilities linux,gpu=1
  Finish what executes, give back the rest, and leave; a second time leaves at once:
    kill -TERM <pid of the worker>
"""


@click.command(name="worker", epilog=EXAMPLES)
@options(WorkerSettings)
def command(settings: WorkerSettings) -> None:
    """Take tasks from Redis and run them in processors of its own.

    SIGTERM drains: what executes is finished, the rest is given back. A second SIGTERM, or SIGINT, leaves at once.
    """
    from gristmill_worker.agent import Agent

    logs.setup(settings)
    try:
        agent = Agent(settings)
    except (SettingError, AddressError) as error:
        raise click.UsageError(str(error)) from None
    agent.run()


if __name__ == "__main__":
    command()
