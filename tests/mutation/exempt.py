"""Guards whose absence nothing outside can notice, and why."""

from __future__ import annotations

EXEMPT: dict[tuple[str, str, str], str] = {}
"""(file, guard, answer) to the reason."""
