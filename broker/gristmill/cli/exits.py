"""The exit codes of every command, by name."""

from __future__ import annotations

OK = 0
FAILED = 1
"""It could not be done; the line on standard error says why."""
USAGE = 2
"""The command line, the environment or the configuration file is wrong."""
CONNECT = 3
"""Redis cannot be reached, or refuses."""
TASKS_FAILED = 4
"""The command itself worked, but tasks failed or results are not what they should be."""
UNHEALTHY = 5
"""`doctor` found something that must be put right."""
NOT_FOUND = 6
"""There is no such task, worker or scheduler."""
INTERRUPTED = 130
"""Ctrl-C."""
