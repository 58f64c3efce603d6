"""Commands that are programs of their own: `gristmill worker` becomes `python -m gristmill_worker`, same process."""

from __future__ import annotations

import os
import sys

import click


def program(name: str, module: str) -> click.Command:
    """A command that hands everything, `--help` included, to the program."""

    @click.command(name, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", module, *arguments])

    return command
