"""Commands that are programs of their own: `gristmill worker` is `python -m gristmill_worker`, in this process."""

from __future__ import annotations

import runpy
import signal
import sys

import click


def program(name: str, module: str) -> click.Command:
    """A command that hands everything, `--help` included, to the program."""

    @click.command(name, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        # Until the program has its own handler, Ctrl-C ends it without a traceback through half-imported modules.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)

    return command
