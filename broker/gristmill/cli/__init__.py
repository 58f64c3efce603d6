"""The `gristmill` command: a group that imports a command's module only when that command is called.

A command `NAME` is the click command `command` in the module `gristmill.cli.NAME`; `COMMANDS` lists them with the one
line that `gristmill --help` shows, so that help needs none of the modules.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from gristmill._version import __version__
from gristmill.cli import exits
from gristmill.errors import AddressError, ConnectionLostError, GristmillError, RedisRefusedError, SettingError

COMMANDS = {
    "demo": "Analyse a real source tree on a cluster of this machine, and check the result.",
    "up": "Run everything on this machine: Redis, schedulers, workers and the page.",
    "redis": "Run only the embedded Redis.",
    "scheduler": "Run one scheduler; run several for safety.",
    "worker": "Run one worker.",
    "web": "Run the status page.",
    "status": "Show what is running and waiting.",
    "top": "Watch workers, schedulers and tasks, full screen.",
    "tasks": "List tasks.",
    "task": "Show one task: its state, its story and who holds it.",
    "cancel": "Cancel tasks.",
    "doctor": "Check Redis and the installation, and say what to do.",
    "bench": "Measure throughput and latency on a fresh cluster.",
}

EXAMPLES = """
\b
Examples:
  gristmill demo                                   see it work
  gristmill up --workers 4                         a whole cluster on this machine
  gristmill worker --redis redis://db:6379/0       a worker for the Redis on another machine
  gristmill status                                 what is going on (GRISTMILL_REDIS names the Redis)
"""


class LazyGroup(click.Group):
    """Knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of `COMMANDS`, which is the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command, or None for a name that does not exist."""
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"gristmill.cli.{name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a guess at what was meant."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(COMMANDS)}"
            raise click.UsageError(f"expected a command; got {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def epilog(*examples: str, note: str = "") -> str:
    """The end of a command's help: worked examples, one a line; before them what else is to be said."""
    return (f"{note}\n\n" if note else "") + "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)


@click.group(
    cls=LazyGroup,
    epilog=EXAMPLES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="gristmill")
@click.pass_context
def gristmill(context: click.Context) -> None:
    """Run Python functions on many processes and machines, through Redis streams."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> NoReturn:
    """The console script."""
    run(gristmill, name="gristmill")


def run(command: click.Command, args: Sequence[str] | None = None, name: str | None = None) -> NoReturn:
    """Run a click command and exit: foreseeable errors become one line on standard error and a named exit code.

    The command's return value, when it is an int, is the exit code.
    """
    try:
        result: Any = command.main(args, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        code = result if isinstance(result, int) else exits.OK
    except (KeyboardInterrupt, click.Abort):
        code = exits.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough. Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = exits.OK
    except Exception as error:
        found = _explain(error)
        if found is None:
            raise
        code, text = found
        print(text, file=sys.stderr)
    sys.exit(code)


def _explain(error: Exception) -> tuple[int, str] | None:
    """Exit code and text of an error that is not our bug."""
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "gristmill"
        return exits.USAGE, f"{path}: {error.format_message()} (see {path} --help)"
    if isinstance(error, click.ClickException):
        return exits.FAILED, f"gristmill: {error.format_message()}"
    if isinstance(error, (SettingError, AddressError)):
        return exits.USAGE, f"gristmill: {error}"
    if isinstance(error, (ConnectionLostError, RedisRefusedError)):
        return exits.CONNECT, f"gristmill: {error}"
    if isinstance(error, GristmillError):
        return exits.FAILED, f"gristmill: {error}"
    redis = sys.modules.get("redis")
    if redis is not None and isinstance(error, redis.RedisError):
        return exits.CONNECT, f"gristmill: Redis: {error}"
    return None
