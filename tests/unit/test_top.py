"""`gristmill top`: what stands on the screen, and what keys do."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, ConsoleDimensions

from gristmill.cli.screen import SORT_KEYS, Picture, View, pressed, screen
from gristmill.protocol.keys import Keys
from gristmill.snapshot import (
    SHOWN_STATES,
    WORKER_SORTS,
    Client,
    Counts,
    Fleet,
    Intake,
    Processor,
    Pulse,
    RedisFacts,
    Scheduler,
    Worker,
)

NOW = 1_000_000


def worker(number: int, **changes: object) -> Worker:
    processor = Processor("p1", 7, True, "c.0000001", f"shop.price{number}", 95_000, 50.0, 60 << 20, 3)
    facts: dict[str, object] = {
        "worker": f"mill-1|{number}|w{number}|r", "name": f"w{number}", "host": "mill-1", "pid": number,
        "python": "3.11", "release": "0.1", "state": "live", "concurrency": 1, "capabilities": {}, "lanes": (),
        "processors_ready": 1, "room": 2, "queue_size": 1000, "service_us": 1, "registered": 0, "seen": NOW - 500,
        "outstanding": 3, "held": 1, "queued": 2, "free": number, "cpu_percent": 60.0, "rss_bytes": 1,
        "agent_cpu_percent": 2.0, "agent_rss_bytes": 40 << 20, "host_cpu_percent": 50.0, "host_memory_percent": 42.0,
        "host_memory_free_bytes": 9 << 30, "host_sent_bytes_per_s": 0, "host_received_bytes_per_s": 0,
        "latency_ms": 0.4, "suspended": 0, "processors_cpu_percent": float(number), "processors_rss_bytes": 60 << 20,
        "itl": "111", "processors": (processor,), **changes,
    }  # fmt: skip
    return Worker(**facts)  # type: ignore[arg-type]


def picture(*workers: Worker) -> Picture:
    scheduler = Scheduler("s1", "s1", "mill-1", 1, "0.1", True, 12.0, 33 << 20, 0.8, 310.0, 305.0, 0, NOW, {})
    counts = Counts(dict.fromkeys(SHOWN_STATES, 5), {"tasks": 9}, {}, 9)
    redis = RedisFacts(version="7.0", used_memory_bytes=5 << 20, eviction_policy="noeviction", aof=True)
    pulse = Pulse(NOW, counts, Intake(True, ""), 1, 0, {"submit": 0}, 0, redis)
    client = Client("Client0001", "", "desk", 9, "3.11", 1, 0, 0, 12, 99, "", None, None, None)
    return Picture(Keys("default"), pulse, Fleet(NOW, workers, len(workers), (), (scheduler,), ()), (client,))


def shown(view: View, *workers: Worker, width: int = 160, height: int = 45, problem: str = "") -> str:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(screen(picture(*workers), view, ConsoleDimensions(width, height), problem))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_panel_of_the_reference_is_there() -> None:
    text = shown(View(), worker(1), worker(2))

    for word in (
        "schedulers",
        "tasks",
        "requests applied",
        "redis",
        "2 workers on 1 machines",
        "Client0001",
        "all is well",
    ):
        assert word in text
    head = next(line for line in text.splitlines() if "agt_cpu" in line and "worker" in line and "sort:" not in line)
    assert head.split()[:13] == [
        "worker", "host", "task", "for", "agt_cpu", "agt_rss", "cpu↓", "rss", "os_free", "free", "sent", "queued",
        "suspended",
    ]  # fmt: skip


def test_workers_stand_in_the_order_of_the_view() -> None:
    text = shown(View("free", True), worker(1), worker(3), worker(2))

    assert text.index("shop.price3") < text.index("shop.price2") < text.index("shop.price1")


def test_every_key_sorts_by_a_column_that_exists_and_turns_the_order() -> None:
    assert set(SORT_KEYS.values()) <= set(WORKER_SORTS)
    for key, column in SORT_KEYS.items():
        first = pressed(View(), key, rows=5)
        assert first.sort == column
        assert pressed(first, key, rows=5).descending != first.descending


def test_moving_stays_within_the_workers() -> None:
    view = pressed(View(), "page down", rows=5)
    assert view.top == 4
    assert pressed(view, "home", rows=5).top == 0
    assert pressed(View(), "up", rows=5).top == 0
    assert pressed(View(), "?", rows=5) == View()


@pytest.mark.parametrize(("width", "height"), [(160, 45), (120, 40), (100, 40), (80, 30), (60, 24)])
def test_it_is_never_larger_than_the_terminal(width: int, height: int) -> None:
    lines = shown(View(), *(worker(number) for number in range(200)), width=width, height=height).splitlines()

    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_a_terminal_that_is_too_small_is_told_so() -> None:
    text = " ".join(shown(View(), width=40, height=10).split())

    assert "expected a terminal of at least 60 by 16; got 40 by 10" in text


def test_what_was_long_silent_and_what_is_wrong_is_said() -> None:
    text = shown(View(), worker(1, seen=NOW - 9000, state="stale"), problem="cannot reach Redis")

    assert "(9.00 s)" in text
    assert "1 stale" in text
    assert "Redis is away" in text


def test_what_a_terminal_would_obey_is_shown() -> None:
    text = shown(View(), worker(1, name="\x1b[2Jw"))

    assert "\x1b[2J" not in text
