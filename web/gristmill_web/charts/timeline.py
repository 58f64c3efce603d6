"""The timeline: one row a worker, a bar for what it did. From intervals to places in an SVG; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from markupsafe import Markup

from gristmill.snapshot.formats import span as span_text
from gristmill.snapshot.formats import state_word
from gristmill_web.history.spans import Kind, Span

LEFT, WIDTH, RIGHT = 170, 1000, 30
TOP, ROW, BAR = 22, 22, 16
MOST_BARS = 800
"""Bars with a text of their own; the others of a row and a look are one path."""
MOST_LANES = 4
TICKS = 6
RUNNING = "running"
LOOKS = (RUNNING, "success", "failed", "canceled")
ABOVE = ("success", "running", "canceled", "failed")
"""What is drawn later lies above: a failure must not be hidden."""
LEAST = {"running": 2, "success": 1, "canceled": 3, "failed": 3}
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

    @property
    def place(self) -> Markup:
        """As attributes of a rectangle; only numbers are in it."""
        return Markup(f'x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}"')


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
    if most == 1:
        return [0] * len(spans)
    ends: list[int] = []
    found = []
    for span in spans:
        start = span.start + 2
        free = -1
        for at, end in enumerate(ends):
            if end <= start:
                free = at
                break
        if free < 0 and len(ends) < most:
            free = len(ends)
            ends.append(0)
        elif free < 0:
            free = ends.index(min(ends))
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
        own = by_worker.get(span.worker)
        if own is not None and span.end >= since:
            own.append(span)
    threshold = _threshold(by_worker, scale)
    fills: dict[Kind, tuple[str, str]] = {}
    numbers: dict[Kind, int] = {}

    def fill(kind: Kind) -> str:
        found = fills.get(kind)
        if found is None:
            found = fills[kind] = fill_of(kind)
        return found[0]

    for at, place in enumerate(places):
        y = TOP + ROW * at
        own = sorted(by_worker[place.worker], key=itemgetter(2))
        lanes = max(1, min(MOST_LANES, place.concurrency))
        height = BAR / lanes
        thin: dict[Kind, list[tuple[int, int]]] = {}
        busy = 0.0
        for span, lane in zip(own, lanes_of(own, lanes), strict=True):
            _, kind, left, end, task, attempts, work = span
            length = end - left
            if left < since:
                left = since
            visible = end - left
            busy += min(visible, work)
            x = LEFT + (left - since) * scale
            if length < threshold and kind.state != RUNNING:
                first, last = int(x), int(x + visible * scale + 0.5)
                pieces = thin.get(kind)
                if pieces is None:
                    pieces = thin[kind] = []
                    numbers[kind] = 0
                pieces.append((first, max(last, first + LEAST[kind.state])))
                numbers[kind] += attempts
                continue
            width = max(LEAST[kind.state], visible * scale)
            top = y + (ROW - BAR) / 2 + lane * height
            chart.attempts[kind.state] = chart.attempts.get(kind.state, 0) + attempts
            place_of = (round(x, 1), round(top, 1), round(width, 1), round(height, 1))
            chart.bars.append(Bar(*place_of, kind.state, fill(kind), text_of(span), task if attempts == 1 else ""))
        for kind, pieces in thin.items():
            chart.attempts[kind.state] = chart.attempts.get(kind.state, 0) + numbers[kind]
            title = f"{numbers.pop(kind):,} attempts too short to be drawn alone · {state_word(kind.state)}"
            chart.paths.append(Path(_merged(pieces, y + (ROW - BAR) // 2), kind.state, fill(kind), title))
        running = sum(span.kind.state == RUNNING for span in own)
        seen = max(1, until - since) * max(1, place.concurrency)
        chart.rows.append(Row(place.worker, y, place.gone, running, min(100.0, 100 * busy / seen)))
    legend: dict[tuple[str, str], str] = {}
    for kind, (colour, meaning) in fills.items():
        legend.setdefault((kind.state if not colour or kind.state in ("failed", "canceled") else "", colour), meaning)
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


def _threshold(by_worker: dict[str, list[Span]], scale: float) -> float:
    """From which length (ms) on a bar is drawn for itself: at least 2 px, and so that they are not too many."""
    least = 2 / scale
    lengths = [span.end - span.start for spans in by_worker.values() for span in spans]
    if len(lengths) <= MOST_BARS:
        return least
    lengths = [length for length in lengths if length >= least]
    if len(lengths) <= MOST_BARS:
        return least
    return sorted(lengths, reverse=True)[MOST_BARS] + 1


def _merged(pieces: list[tuple[int, int]], y: int) -> str:
    """One path of the pixels that the pieces cover."""
    pieces.sort()
    covered: list[tuple[int, int]] = []
    first, last = pieces[0]
    for left, right in pieces:
        if left > last + 1:
            covered.append((first, last))
            first, last = left, right
        elif right > last:
            last = right
    covered.append((first, last))
    return "".join(f"M{left} {y}h{right - left}v{BAR}h{left - right}z" for left, right in covered)


def tick(step: int, window: int) -> Tick:
    left = window * (TICKS - 1 - step) / (TICKS - 1)
    return Tick(round(LEFT + WIDTH * step / (TICKS - 1), 1), f"{span_text(left)} ago" if left else "now")
