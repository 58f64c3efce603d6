"""`gristmill scheduler`."""

from gristmill.cli.programs import program

command = program("scheduler", "gristmill.scheduler")
