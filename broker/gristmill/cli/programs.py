"""Commands that are programs of their own: `gristmill worker` is `python -m gristmill_worker`, in this process."""

from __future__ import annotations

import importlib
import signal

import click

from gristmill.cli import run


def program(name: str, module: str) -> click.Command:
    """A command that hands everything, `--help` included, to the program."""

    @click.command(name, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        # Until the program has its own handler, Ctrl-C ends it without a traceback through half-imported modules.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # By name: gristmill imports neither the worker nor the page.
        run(importlib.import_module(f"{module}.__main__").command, arguments, f"gristmill {name}")

    return command
