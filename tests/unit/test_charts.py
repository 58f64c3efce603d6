"""Charts: where bars and lines lie, and how many there are at most."""

from __future__ import annotations

import re

import pytest

from gristmill.snapshot.formats import size
from gristmill_web.charts.colours import HUES, Colours
from gristmill_web.charts.lines import HEIGHT, TOP, plot
from gristmill_web.charts.timeline import LEFT, MOST_BARS, WIDTH, Place, Timeline, draw, lanes_of
from gristmill_web.charts.trace import trace_events
from gristmill_web.history.spans import GRAINS, OTHERS, Kind, Span, Spans

WORKER = "mill-1|100|w1|aaaa"
NOW = 10_000_000
MINUTE = 60_000
SINCE = NOW - 5 * MINUTE
SUCCESS = Kind("success", "shop.price", "")


def span(start: int, end: int, *, worker: str = WORKER, kind: Kind = SUCCESS, task: str = "c.0000001") -> Span:
    """An attempt, by its times before now."""
    return Span(worker, kind, NOW - start, NOW - end, task, busy_ms=start - end)


def chart(*spans: Span, concurrency: int = 1, workers: tuple[str, ...] = (WORKER,)) -> Timeline:
    places = [Place(worker, concurrency, False, NOW) for worker in workers]
    return draw(places, spans, since=SINCE, until=NOW, fill_of=lambda kind: ("", kind.state))


class TestTimeline:
    def test_a_bar_lies_where_its_time_lies(self) -> None:
        (bar,) = chart(span(2 * MINUTE, MINUTE)).bars

        assert bar.x == LEFT + WIDTH * 3 / 5
        assert bar.width == WIDTH / 5
        assert bar.task == "c.0000001"
        assert bar.title == "shop.price · 1 min · Success · c.0000001"

    def test_what_began_before_the_window_begins_with_it(self) -> None:
        (bar,) = chart(span(9 * MINUTE, 4 * MINUTE)).bars

        assert (bar.x, bar.width) == (LEFT, WIDTH / 5)

    def test_what_ended_before_the_window_is_not_there(self) -> None:
        assert chart(span(9 * MINUTE, 8 * MINUTE)).bars == []

    def test_a_worker_without_a_row_is_not_there(self) -> None:
        assert chart(span(1000, 0, worker="other|1|x|y")).bars == []

    def test_a_running_one_is_drawn_however_short_it_is(self) -> None:
        drawn = chart(span(5, 0, kind=Kind("running", "f", "")))

        assert [(bar.look, bar.width) for bar in drawn.bars] == [("running", 2)]
        assert drawn.rows[0].running == 1

    def test_what_overlaps_lies_in_lanes_of_its_own(self) -> None:
        drawn = chart(span(3000, 1000), span(2900, 900), span(900, 0), concurrency=2)

        assert len({bar.y for bar in drawn.bars}) == 2
        assert lanes_of([span(3000, 1000), span(2900, 900), span(900, 0)], 2) == [0, 1, 0]
        assert lanes_of([span(3000, 0), span(2900, 0), span(2800, 0)], 2) == [0, 1, 0]

    def test_thin_bars_of_a_row_and_a_look_are_one_path(self) -> None:
        many = [span(at, at - 10) for at in range(20_000, 10_000, -100)]
        drawn = chart(*many, span(30_000, 29_995, kind=Kind("failed", "f", "")))

        assert [bar.look for bar in drawn.bars] == []
        assert [path.look for path in drawn.paths] == ["success", "failed"]
        assert drawn.paths[0].title.startswith("100 attempts too short")
        assert drawn.attempts == {"success": 100, "failed": 1}
        # A failure is at least three pixels wide.
        assert "h3v" in drawn.paths[1].d

    def test_failures_lie_above_what_succeeded(self) -> None:
        drawn = chart(span(50_000, 40_000, kind=Kind("failed", "f", "")), span(60_000, 30_000))

        assert [bar.look for bar in drawn.bars] == ["success", "failed"]

    @pytest.mark.parametrize("length", [10, 5_000])
    def test_the_number_of_elements_is_bounded_however_many_attempts_there_are(self, length: int) -> None:
        workers = tuple(f"mill|{number}|w{number}|r" for number in range(50))
        spans = [
            span(at + length, at, worker=worker, kind=Kind(state, f"f{at % 3}", ""))
            for worker in workers
            for at in range(0, 290_000, 2_000)
            for state in ("success", "failed")
        ]
        drawn = chart(*spans, workers=workers)

        assert len(drawn.bars) <= MOST_BARS
        assert drawn.nodes <= 3000
        assert sum(drawn.attempts.values()) == len(spans)

    def test_the_longest_are_drawn_alone(self) -> None:
        short = [span(at + 2_500, at, task="short") for at in range(0, 290_000, 250)]
        drawn = chart(*short, span(100_000, 10_000, task="long"))

        assert [bar.task for bar in drawn.bars] == ["long"]

    def test_what_is_missing_is_marked(self) -> None:
        gaps = [(NOW - 2 * MINUTE, NOW - MINUTE, "gone"), (0, 5, "long ago")]
        drawn = draw([], [], since=SINCE, until=NOW, fill_of=lambda kind: ("", ""), gaps=gaps)

        assert [(one.x, one.width, one.title) for one in drawn.missing] == [(LEFT + WIDTH * 3 / 5, WIDTH / 5, "gone")]

    def test_the_legend_names_each_look_once(self) -> None:
        failed = Kind("failed", "shop.tax", "")
        drawn = draw(
            [Place(WORKER, 1, False, NOW)],
            [span(9000, 8000), span(7000, 6000, kind=failed), span(5000, 4000)],
            since=SINCE, until=NOW, fill_of=lambda kind: (f"colour of {kind.function}", kind.function),
        )  # fmt: skip

        assert drawn.legend == [
            ("", "colour of shop.price", "shop.price"),
            ("failed", "colour of shop.tax", "shop.tax"),
        ]


class TestSpans:
    def test_short_attempts_that_follow_closely_are_kept_as_one(self) -> None:
        spans = Spans()
        for number in range(100):
            spans.add(span(10_000 - number * 60, 9_950 - number * 60, task=f"c.{number:07}"), 0)

        (one,) = spans.of([WORKER], SINCE, NOW)

        assert (one.attempts, one.busy_ms, one.task) == (100, 5_000, "c.0000099")
        assert (NOW - one.start, NOW - one.end) == (10_000, 4_010)

    def test_kinds_are_kept_apart_even_where_they_alternate(self) -> None:
        spans = Spans()
        for number in range(50):
            for name in ("a", "b"):
                spans.add(span(10_000 - number * 60, 9_970 - number * 60, kind=Kind("success", name, "")), 0)

        assert [(one.kind.function, one.attempts) for one in spans.of([WORKER], SINCE, NOW)] == [("a", 50), ("b", 50)]

    def test_long_ones_are_kept_one_by_one(self) -> None:
        spans = Spans()
        for number in range(3):
            spans.add(span(9_000 - number * 1_000, 8_000 - number * 1_000), 0)

        assert len(spans.of([WORKER], SINCE, NOW)) == 3

    def test_a_long_window_is_kept_more_coarsely(self) -> None:
        spans = Spans()
        for number in range(60):
            spans.add(span(200_000 - number * 1_500, 199_000 - number * 1_500), 0)

        assert len(spans.of([WORKER], SINCE, NOW)) == 60
        (one,) = spans.of([WORKER], NOW - 30 * MINUTE, NOW)
        assert one.attempts == 60

    def test_many_kinds_are_not_told_apart(self) -> None:
        spans = Spans()
        for number in range(100):
            spans.add(span(9_000, 8_990, kind=Kind("success", f"f{number}", "")), 0)

        found = spans.of([WORKER], SINCE, NOW)
        assert len(found) == 31
        assert [one.attempts for one in found if one.kind.function == OTHERS] == [70]

    def test_what_is_older_than_the_longest_window_is_forgotten(self) -> None:
        spans = Spans()
        spans.add(span(0, 0, worker="old|1|x|y"), 0)
        later = NOW + GRAINS[-1].window_ms + 3 * MINUTE
        spans.add(Span(WORKER, SUCCESS, later - 10, later, "c.1"), 0)

        assert spans.of(["old|1|x|y"], 0, later) == []
        assert spans.workers(0) == [WORKER]

    def test_the_peaks_of_attempts_add_up_while_they_last(self) -> None:
        spans = Spans()
        spans.add(Span(WORKER, SUCCESS, NOW - 10_000, NOW - 5_000, "a"), 100)
        spans.add(Span(WORKER, SUCCESS, NOW - 8_000, NOW - 2_000, "b"), 50)
        # Within a second: by the share of it.
        spans.add(Span(WORKER, SUCCESS, NOW - 1_000, NOW - 500, "c"), 1000)

        used = dict(spans.memory(NOW - 12_000, NOW))

        assert [used[NOW - ago] for ago in (11_000, 9_000, 7_000, 4_000, 2_000, 1_000)] == [0, 100, 150, 50, 0, 500]


class TestLines:
    def test_a_linear_and_a_logarithmic_scale(self) -> None:
        points = [(SINCE, 0.0), (NOW, 1024.0**2)]
        steps = [1024.0, 1024.0**2]
        common = {"since": SINCE, "until": NOW, "floor": 1024.0**2, "unit": size, "steps": steps}

        linear = plot([points], logarithmic=False, **common)  # type: ignore[arg-type]
        logarithmic = plot([points], logarithmic=True, **common)  # type: ignore[arg-type]

        assert linear.series[0].line == f"M{LEFT}.0 {TOP + HEIGHT}.0L{LEFT + WIDTH}.0 {TOP}.0"
        assert [level.text for level in linear.levels] == ["1.0 MiB", "1 KiB"]
        assert 0 < linear.levels[1].y - TOP < HEIGHT
        assert logarithmic.levels[0].y == TOP
        assert (linear.series[0].last, linear.series[0].most) == (1024.0**2, 1024.0**2)

    def test_peaks_survive_when_there_are_too_many_points(self) -> None:
        points = [(SINCE + at * 100, 5000.0 if at == 1234 else 1.0) for at in range(3000)]

        drawn = plot([points], since=SINCE, until=NOW, logarithmic=False, floor=1.0, unit=str, steps=[])

        assert len(re.findall(r"[ML]", drawn.series[0].line)) <= 300
        assert drawn.series[0].most == 5000.0

    def test_without_points_there_is_nothing(self) -> None:
        drawn = plot([[]], since=SINCE, until=NOW, logarithmic=True, floor=1.0, unit=str, steps=[])

        assert (drawn.series[0].line, drawn.series[0].area, drawn.series[0].last) == ("", "", None)


class TestColours:
    def test_a_name_keeps_its_colour_when_others_come(self) -> None:
        colours = Colours()
        first = [colours.of(f"name {number}") for number in range(5)]
        for number in range(200):
            colours.of(f"other {number}")

        assert [colours.of(f"name {number}") for number in range(5)] == first

    def test_few_names_have_colours_far_apart(self) -> None:
        colours = Colours()
        hues = sorted(int(re.match(r"hsl\((\d+)", colours.of(f"n{number}"))[1]) for number in range(4))  # type: ignore[index]

        assert min((b - a) % 360 for a, b in zip(hues, [*hues[1:], hues[0]], strict=True)) >= 360 / HUES * 3


class TestTrace:
    def test_a_process_a_worker_and_a_thread_for_what_overlaps(self) -> None:
        events = trace_events([span(3000, 1000), span(2000, 500), span(900, 0, worker="b|2|w2|r")])

        names = [event["args"]["name"] for event in events if event["ph"] == "M"]
        bars = [event for event in events if event["ph"] == "X"]
        assert names == ["b|2|w2|r", WORKER]
        assert [(bar["pid"], bar["tid"]) for bar in bars] == [(1, 1), (2, 1), (2, 2)]
        assert (bars[1]["ts"], bars[1]["dur"]) == ((NOW - 3000) * 1000, 2_000_000)
        assert bars[1]["name"] == "shop.price"
