"""The timeline: one row a worker, a bar for what it did. From intervals to places in an SVG; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gristmill.snapshot.formats import span as span_text
from gristmill.snapshot.formats import state_word
from gristmill_web.history.spans import Kind, Span

LEFT, WIDTH, RIGHT = 170, 1000, 30
TOP, ROW, BAR = 22, 22, 16
MOST_BARS = 800
"""Bars with a text of their own; the others of a row and a look are one path."""
MOST_LANES = 4
TICKS = 6
LOOKS = ("running", "success", "failed", "canceled")
ABOVE = ("success", "running", "canceled", "failed")
"""What is drawn later lies above: a failure must not be hidden."""
LEAST = {"running": 2.0, "success": 1.0, "canceled": 3.0, "failed": 3.0}
"""The least width of a bar, px."""


class Bar(NamedTuple):
    """One rectangle."""

    x: float
    y: float
    width: float
    height: float
    look: str
    """running, success, failed or canceled."""
    fill: str
    """A colour, when it is not that of the look."""
    title: str
    task: str
    """Where it leads to; empty when it stands for several."""


class Path(NamedTuple):
    """Many thin bars of one row and look."""

    d: str
    look: str
    fill: str
    title: str


class Row(NamedTuple):
    """One worker."""

    worker: str
    y: int
    gone: bool
    running: int
    busy_percent: float


class Tick(NamedTuple):
    x: float
    text: str


class Missing(NamedTuple):
    """A time of which history has a gap."""

    x: float
    width: float
    title: str


@dataclass
class Timeline:
    """The whole chart."""

    rows: list[Row]
    bars: list[Bar] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    legend: list[tuple[str, str, str]] = field(default_factory=list)
    """(look, colour or empty, text)."""
    attempts: dict[str, int] = field(default_factory=dict)
    """How many attempts look like what."""

    @property
    def height(self) -> int:
        return TOP + ROW * max(1, len(self.rows)) + 4

    @property
    def width(self) -> int:
        return LEFT + WIDTH + RIGHT

    @property
    def nodes(self) -> int:
        """Elements that a browser has to keep."""
        return 2 * len(self.bars) + 2 * len(self.paths) + 3 * len(self.rows) + 2 * len(self.ticks)


class Place(NamedTuple):
    """A worker that gets a row."""

    worker: str
    concurrency: int
    gone: bool
    until: int
    """When it was last there, ms."""


def lanes_of(spans: Sequence[Span], most: int) -> list[int]:
    """A lane for each span, so that few of the same lane overlap; spans come by their start."""
    ends: list[int] = []
    found = []
    for span in spans:
        free = next((lane for lane, end in enumerate(ends) if end <= span.start + 2), None)
        if free is None:
            if len(ends) < most:
                free = len(ends)
                ends.append(0)
            else:
                free = min(range(len(ends)), key=ends.__getitem__)
        ends[free] = max(ends[free], span.end)
        found.append(free)
    return found


def text_of(span: Span) -> str:
    """What stands beside the pointer."""
    what = span.kind.function or "a task"
    lane = f" · needs {span.kind.lane}" if span.kind.lane else ""
    if span.attempts > 1:
        many = f"{span.attempts:,} attempts of {what}, {state_word(span.kind.state)}"
        return f"{many}: {span_text(span.busy_ms)} of work within {span_text(span.end - span.start)}{lane}"
    length = span_text(span.busy_ms or span.end - span.start)
    return f"{what} · {length} · {state_word(span.kind.state)} · {span.task}{lane}"


def draw(
    places: Sequence[Place],
    spans: Iterable[Span],
    *,
    since: int,
    until: int,
    fill_of: Callable[[Kind], tuple[str, str]],
    gaps: Iterable[tuple[int, int, str]] = (),
) -> Timeline:
    """Lay out the chart.

    Args:
        places: the workers that get a row, in order.
        spans: what they did; running ones end at `until`.
        fill_of: the colour of a kind, empty for that of its look, and what the legend says of it.
        gaps: (from, to, sentence) of what is missing.
    """
    scale = WIDTH / max(1, until - since)
    chart = Timeline(rows=[])
    by_worker: dict[str, list[Span]] = {place.worker: [] for place in places}
    for span in spans:
        if span.worker in by_worker and span.end >= since:
            by_worker[span.worker].append(span)
    threshold = _threshold(by_worker, since, scale)
    legend: dict[tuple[str, str], str] = {}
    for at, place in enumerate(places):
        y = TOP + ROW * at
        own = sorted(by_worker[place.worker], key=lambda span: span.start)
        lanes = max(1, min(MOST_LANES, place.concurrency))
        height = BAR / lanes
        thin: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
        busy = 0.0
        for span, lane in zip(own, lanes_of(own, lanes), strict=True):
            look = span.kind.state
            fill, meaning = fill_of(span.kind)
            legend.setdefault((look if not fill or look in ("failed", "canceled") else "", fill), meaning)
            chart.attempts[look] = chart.attempts.get(look, 0) + span.attempts
            left = max(since, span.start)
            busy += min(span.busy_ms or span.end - span.start, span.end - left)
            x, width = LEFT + (left - since) * scale, max(LEAST[look], (span.end - left) * scale)
            if width >= threshold or look == "running":
                top = y + (ROW - BAR) / 2 + lane * height
                alone = span.attempts == 1
                chart.bars.append(
                    Bar(round(x, 1), round(top, 1), round(width, 1), round(height, 1), look, fill, text_of(span),
                        span.task if alone else "")
                )  # fmt: skip
            else:
                thin.setdefault((look, fill), []).append((x, width, span.attempts))
        for (look, fill), pieces in thin.items():
            number = sum(attempts for _, _, attempts in pieces)
            title = f"{number:,} attempts too short to be drawn alone · {state_word(look)}"
            chart.paths.append(Path(_merged(pieces, y + (ROW - BAR) // 2), look, fill, title))
        seen = max(1, until - since) * max(1, place.concurrency)
        running = sum(span.kind.state == "running" for span in own)
        chart.rows.append(Row(place.worker, y, place.gone, running, min(100.0, 100 * busy / seen)))
    chart.bars.sort(key=lambda bar: ABOVE.index(bar.look))
    chart.paths.sort(key=lambda path: ABOVE.index(path.look))
    chart.legend = [(look, fill, meaning) for (look, fill), meaning in sorted(legend.items(), key=_legend_order)]
    chart.ticks = [tick(step, until - since) for step in range(TICKS)]
    for began, ended, sentence in gaps:
        left, right = max(since, began), min(until, ended)
        if right > since and left < until:
            x = LEFT + (left - since) * scale
            chart.missing.append(Missing(round(x, 1), round(max(2.0, (right - left) * scale), 1), sentence))
    return chart


def _legend_order(entry: tuple[tuple[str, str], str]) -> tuple[int, str]:
    (look, _), meaning = entry
    return (LOOKS.index(look) if look in LOOKS else -1, meaning)


def _threshold(by_worker: dict[str, list[Span]], since: int, scale: float) -> float:
    """From which width on a bar is drawn for itself: at least 2 px, and so that they are not too many."""
    widths = sorted(
        (
            max(LEAST[span.kind.state], (span.end - max(since, span.start)) * scale)
            for spans in by_worker.values()
            for span in spans
            if span.kind.state != "running"
        ),
        reverse=True,
    )
    return max(2.0, widths[MOST_BARS] + 0.01) if len(widths) > MOST_BARS else 2.0


def _merged(pieces: list[tuple[float, float, int]], y: int) -> str:
    """One path of the pixels that the pieces cover."""
    covered: list[list[int]] = []
    for x, width, _ in sorted(pieces):
        left, right = int(x), max(int(x) + 1, round(x + width))
        if covered and left <= covered[-1][1] + 1:
            covered[-1][1] = max(covered[-1][1], right)
        else:
            covered.append([left, right])
    return "".join(f"M{left} {y}h{right - left}v{BAR}h{left - right}z" for left, right in covered)


def tick(step: int, window: int) -> Tick:
    left = window * (TICKS - 1 - step) / (TICKS - 1)
    return Tick(round(LEFT + WIDTH * step / (TICKS - 1), 1), f"{span_text(left)} ago" if left else "now")
