"""Colours for names: the same name has the same colour in every chart of this process."""

from __future__ import annotations

import threading
import zlib

HUES = 24
"""So many hues are told apart; with more names some share one."""
MOST_NAMES = 10_000
DISTANCES = (4, 3, 2, 1)
"""How far apart hues are, as long as there is room."""


class Colours:
    """Hands out hues. A name keeps its own when others come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hues: dict[str, int] = {}
        self._taken = [0] * HUES

    def of(self, name: str) -> str:
        """The colour of a name, as an attribute of SVG."""
        with self._lock:
            hue = self._hues.get(name)
            if hue is None:
                hue = self._choose(name)
                if len(self._hues) < MOST_NAMES:
                    self._hues[name] = hue
                    self._taken[hue] += 1
        light = 46 if hue % 2 else 58
        return f"hsl({hue * 360 // HUES}, 55%, {light}%)"

    def _choose(self, name: str) -> int:
        """The one that the name stands for, or the next that is far enough from those that are taken."""
        wanted = zlib.crc32(name.encode("utf-8", "replace")) % HUES
        taken = [hue for hue, names in enumerate(self._taken) if names]
        for distance in DISTANCES:
            for step in range(HUES):
                hue = (wanted + step) % HUES
                if all(min((hue - other) % HUES, (other - hue) % HUES) >= distance for other in taken):
                    return hue
        fewest = min(self._taken)
        return next(at for at in (((wanted + step) % HUES) for step in range(HUES)) if self._taken[at] == fewest)
