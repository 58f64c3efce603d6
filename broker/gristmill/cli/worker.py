"""`gristmill worker`."""

from gristmill.cli.programs import program

command = program("worker", "gristmill_worker")
