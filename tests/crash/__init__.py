"""Crash-point sweep: each scenario once per Redis command, with the process killed at that very command."""
