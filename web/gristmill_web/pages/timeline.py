"""The timeline: what each worker did and does, and below it the memory and the CPU of all together."""

from __future__ import annotations

from typing import Any

from flask import current_app

from gristmill.snapshot.fleet import by_worker
from gristmill.snapshot.formats import percent, size, state_word, worker_name
from gristmill_web.charts.colours import Colours
from gristmill_web.charts.lines import Plot, plot
from gristmill_web.charts.timeline import LEFT, WIDTH, Place, Timeline, draw
from gristmill_web.charts.trace import trace_events
from gristmill_web.frame import Page, Request, Shown
from gristmill_web.history import History
from gristmill_web.history.events import gaps
from gristmill_web.history.fleet import Presence
from gristmill_web.history.running import running_spans
from gristmill_web.history.spans import Kind, Span
from gristmill_web.preferences import CHOICES
from gristmill_web.queries import Query

WORKERS_A_PAGE = 50
MINUTE_MS = 60_000
MEMORY_FLOOR = 1 << 30
CPU_FLOOR = 100.0
NO_CAPABILITY = "no special capability"
MEMORY_STEPS = [float(1 << power) for power in range(20, 50)]
CPU_STEPS = [factor * 10.0**power for power in range(1, 6) for factor in (1, 2, 5)]


def show(request: Request) -> Shown:
    """One page of the rows, and the charts of the fleet."""
    choices = {name: CHOICES[name] for name in ("window", "store", "scale", "colour")}
    query = Query.of("timeline", request.arguments, filters={**choices, "format": ("trace",), "worker": None})
    chosen = {name: query[name] or str(getattr(request.preferences, name)) for name in choices}
    history = request.history
    now = history.clock
    since = now - int(chosen["window"]) * MINUTE_MS
    places, presences = _places(history, now, request.preferences.gone, query["worker"])
    if query["format"] == "trace":
        return _trace(query, history, [place.worker for place in places], presences, since, now)
    pages = max(1, -(-len(places) // WORKERS_A_PAGE))
    page = min(query.page, pages)
    shown = places[(page - 1) * WORKERS_A_PAGE : page * WORKERS_A_PAGE]
    spans = _spans(history, [place.worker for place in shown], presences, since, now)
    missing = [(gap.began, gap.ended, gap.sentence) for gap in gaps(history.index) if gap.reason != "before"]
    if since < history.index.first_at:
        missing.append((since, history.index.first_at, "History does not reach back so far."))
    chart = draw(shown, spans, since=since, until=now, fill_of=_fills(chosen["colour"]), gaps=missing)
    memory, cpu = _plots(history, now, int(chosen["store"]), chosen["scale"])
    return Shown(
        values={
            "chart": chart,
            "chosen": chosen,
            "choices": choices,
            "total": len(places),
            "page_number": page,
            "pages": pages,
            "left": LEFT,
            "plot_width": WIDTH,
            "memory": memory,
            "cpu": cpu,
            "summary": summary(chart, int(chosen["window"])),
        },
        plain=lambda: {
            "since": since,
            "until": now,
            "workers": [{"worker": place.worker, "gone": place.gone} for place in shown],
            "pages": pages,
            "spans": [plain(span) for span in spans],
            "memory": [list(one) for one in history.index.spans.memory(now - int(chosen["store"]) * MINUTE_MS, now)],
            "fleet": [sample._asdict() for sample in history.fleet.series(now - int(chosen["store"]) * MINUTE_MS)],
            "gaps": [list(gap) for gap in missing],
        },
        query=query,
        now=history.now,
        problem=history.problem,
        news=f"{sum(row.running for row in chart.rows):,} running" if not history.problem else "Redis is away",
    )


def plain(span: Span) -> dict[str, Any]:
    """One interval for programs."""
    found = span._asdict()
    return {**found.pop("kind")._asdict(), **found}


def _places(history: History, now: int, gone: int, worker: str) -> tuple[list[Place], dict[str, Presence]]:
    """The workers that get a row, by name."""
    presences = history.fleet.shown(now, gone)
    places = [
        Place(name, presence.figures.concurrency, presence.gone, presence.last) for name, presence in presences.items()
    ]
    # A worker that was gone before we first looked at the fleet has left its traces in the history.
    left = history.index.spans.workers(now - gone * MINUTE_MS)
    places += [Place(name, 1, True, now) for name in left if name not in presences]
    if worker:
        places = [place for place in places if worker in (place.worker, worker_name(place.worker))]
    return sorted(places, key=lambda place: by_worker(place.worker)), presences


def _spans(history: History, workers: list[str], presences: dict[str, Presence], since: int, now: int) -> list[Span]:
    there = {name: presences[name] for name in workers if name in presences}
    return [*history.index.spans.of(workers, since, now), *running_spans(history.index, there, now)]


def _trace(
    query: Query, history: History, workers: list[str], presences: dict[str, Presence], since: int, now: int
) -> Shown:
    events = trace_events(_spans(history, workers, presences, since, now))
    return Shown(
        values={}, plain={"traceEvents": events, "displayTimeUnit": "ms"}, query=query, now=history.now,
        problem=history.problem,
    )  # fmt: skip


def _fills(colour: str) -> Any:
    """What gives the colour of a kind, and its meaning."""
    colours: Colours = current_app.extensions["gristmill_colours"]

    def by_state(kind: Kind) -> tuple[str, str]:
        return "", state_word(kind.state)

    def by_function(kind: Kind) -> tuple[str, str]:
        name = kind.function or "unknown function"
        return colours.of(f"function {name}"), name

    def by_capability(kind: Kind) -> tuple[str, str]:
        name = kind.lane or NO_CAPABILITY
        return colours.of(f"capability {name}"), name

    return {"state": by_state, "function": by_function, "capability": by_capability}[colour]


def _plots(history: History, now: int, minutes: int, scale: str) -> tuple[Plot, Plot]:
    since = now - minutes * MINUTE_MS
    samples = history.fleet.series(since)
    window = {"since": since, "until": now}
    memory = plot(
        [history.index.spans.memory(since, now), [(sample.at, float(sample.rss_bytes)) for sample in samples]],
        **window, logarithmic=scale == "log", floor=MEMORY_FLOOR, unit=size, steps=MEMORY_STEPS,
    )  # fmt: skip
    cpu = plot(
        [[(sample.at, sample.cpu_percent) for sample in samples]],
        **window, logarithmic=False, floor=CPU_FLOOR, unit=percent, steps=CPU_STEPS,
    )  # fmt: skip
    return memory, cpu


def summary(chart: Timeline, minutes: int) -> str:
    """The chart in words."""
    ended = {look: number for look, number in chart.attempts.items() if look != "running"}
    many = ", ".join(f"{ended.get(look, 0):,} {word}" for look, word in _WORDS.items())
    running = chart.attempts.get("running", 0)
    workers = "1 worker" if len(chart.rows) == 1 else f"these {len(chart.rows):,} workers"
    return f"The last {minutes} minutes of {workers}: {many}; {running:,} running now."


_WORDS = {"success": "succeeded", "failed": "failed", "canceled": "canceled"}

PAGE = Page("timeline", "/timeline", "Timeline", show)
