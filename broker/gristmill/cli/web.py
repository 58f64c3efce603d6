"""`gristmill web`."""

from gristmill.cli.programs import program

command = program("web", "gristmill_web")
