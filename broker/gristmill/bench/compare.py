"""Two runs of the benchmark side by side: `--compare OLD.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

LEFT_OUT = frozenset(("machine", "workers", "tasks", "repetitions", "items", "bar", "met", "what", "unit"))


def figures_in(found: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a run's JSON that was measured, with its place: `latency_ms.p50`."""
    for name, value in found.items():
        if name in LEFT_OUT:
            continue
        place = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            yield from figures_in(value, place)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield place, float(value)


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, float, float, float]]:
    """What both runs have: place, before, now, now over before. Raises ValueError when they have nothing in common."""
    before = dict(figures_in(old))
    rows = [(place, before[place], now, now / before[place]) for place, now in figures_in(new) if before.get(place)]
    if not rows:
        raise ValueError("expected the JSON of `gristmill bench --json`; got one without any of its figures")
    return rows
