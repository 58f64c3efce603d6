"""Areas and lines over time, on a linear or a logarithmic scale; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gristmill_web.charts.timeline import LEFT, RIGHT, WIDTH, Tick, tick

HEIGHT, TOP = 130, 10
MOST_POINTS = 300


class Level(NamedTuple):
    """A line across the chart, and what it stands for."""

    y: float
    text: str


class Series(NamedTuple):
    """One quantity."""

    line: str
    """As the attribute `d` of a path."""
    area: str
    last: float | None
    most: float


class Plot(NamedTuple):
    """One chart."""

    series: list[Series]
    levels: list[Level]
    ticks: list[Tick]

    @property
    def height(self) -> int:
        return TOP + HEIGHT + 22

    @property
    def width(self) -> int:
        return LEFT + WIDTH + RIGHT


def plot(
    series: Sequence[Sequence[tuple[int, float]]],
    *,
    since: int,
    until: int,
    logarithmic: bool,
    floor: float,
    unit: Callable[[float], str],
    steps: Sequence[float],
) -> Plot:
    """Lay out quantities over time.

    Args:
        series: (time in ms, quantity), oldest first.
        floor: the top of the scale is at least this, and the bottom of a logarithmic one is a thousandth of it.
        unit: how a quantity is written.
        steps: the quantities at which a line may stand.
    """
    top = max([floor, *(quantity for one in series for _, quantity in one)])
    bottom = floor / 1000 if logarithmic else 0.0

    def height_of(quantity: float) -> float:
        if logarithmic:
            share = math.log(max(quantity, bottom) / bottom) / math.log(top / bottom)
        else:
            share = quantity / top
        return round(TOP + HEIGHT * (1 - share), 1)

    scale = WIDTH / max(1, until - since)
    drawn = []
    for one in series:
        points = _thinned([(at, quantity) for at, quantity in one if since <= at <= until])
        places = [(round(LEFT + (at - since) * scale, 1), height_of(quantity)) for at, quantity in points]
        line = "".join(f"{'L' if at else 'M'}{x} {y}" for at, (x, y) in enumerate(places))
        area = f"{line}L{places[-1][0]} {TOP + HEIGHT}L{places[0][0]} {TOP + HEIGHT}z" if places else ""
        quantities = [quantity for _, quantity in points]
        drawn.append(Series(line, area, quantities[-1] if quantities else None, max(quantities, default=0.0)))
    shown = [step for step in steps if bottom < step <= top]
    every = max(1, math.ceil(len(shown) / 4))
    levels = [Level(height_of(step), unit(step)) for step in shown[::-1][::every]]
    return Plot(drawn, levels, [tick(step, until - since) for step in range(6)])


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most `MOST_POINTS`, each the highest of those that it stands for."""
    size = math.ceil(len(points) / MOST_POINTS) or 1
    return [max(points[at : at + size], key=lambda point: point[1]) for at in range(0, len(points), size)]
