"""How many items of a map travel together."""

from __future__ import annotations

from gristmill.client.chunking import CHUNK_BYTES, MOST_ITEMS, SAMPLES, TARGET_NS, Sizer

MICROSECOND, MILLISECOND = 1_000, 1_000_000


def note_all(sizer: Sizer, *durations_ns: int) -> None:
    for duration in durations_ns:
        sizer.note(1, duration, float(duration * duration), duration)


def test_before_anything_is_known_items_travel_alone() -> None:
    assert Sizer(MOST_ITEMS).size() == 1


def test_items_of_even_length_fill_the_target() -> None:
    sizer = Sizer(MOST_ITEMS)
    note_all(sizer, *[100 * MICROSECOND] * 20)

    assert sizer.size() == TARGET_NS // (100 * MICROSECOND)


def test_very_short_items_travel_by_the_most_that_may() -> None:
    sizer = Sizer(MOST_ITEMS)
    sizer.note(500, 500 * 200, 500.0 * 200 * 200, 200)

    assert sizer.size() == MOST_ITEMS


def test_items_as_long_as_the_target_travel_alone() -> None:
    sizer = Sizer(MOST_ITEMS)
    note_all(sizer, *[TARGET_NS] * 5)

    assert sizer.size() == 1


def test_where_a_third_of_the_items_is_long_nothing_is_grouped() -> None:
    sizer = Sizer(MOST_ITEMS)
    note_all(sizer, *[10 * MICROSECOND, 10 * MICROSECOND, 60 * MILLISECOND] * 10)

    assert sizer.size() == 1


def test_a_slow_first_item_says_nothing_about_the_others() -> None:
    sizer = Sizer(MOST_ITEMS)
    note_all(sizer, 50 * MILLISECOND, *[10 * MICROSECOND] * 8)

    assert sizer.size() > 100


def test_the_longest_item_of_a_chunk_says_nothing_about_the_others() -> None:
    sizer = Sizer(MOST_ITEMS)
    short, long = 10 * MICROSECOND, 60 * MILLISECOND
    sizer.note(1000, 999 * short + long, 999.0 * short**2 + float(long) ** 2, long)

    assert sizer.size() > 100


def test_items_that_become_long_are_noticed() -> None:
    sizer = Sizer(MOST_ITEMS)
    note_all(sizer, *[10 * MICROSECOND] * 400)
    note_all(sizer, *[50 * MILLISECOND] * 5)

    assert sizer.size() == 1


def test_bulky_items_make_small_chunks() -> None:
    sizer = Sizer(MOST_ITEMS)
    note_all(sizer, *[MICROSECOND] * 20)
    sizer.note_bytes(10, 10 * 400)

    assert sizer.size() == CHUNK_BYTES // 400


def test_a_given_size_is_kept_whatever_is_measured() -> None:
    sizer = Sizer(7, fixed=True)
    note_all(sizer, *[TARGET_NS] * 5)

    assert sizer.size() == 7


def test_measurements_are_worth_waiting_for_until_it_is_clear_whether_items_are_short() -> None:
    short, long = Sizer(MOST_ITEMS), Sizer(MOST_ITEMS)

    assert short.wants_to_know
    note_all(short, 1)
    assert not short.wants_to_know
    for _ in range(SAMPLES):
        assert long.wants_to_know
        note_all(long, 2 * TARGET_NS)
    assert not long.wants_to_know
    assert not Sizer(1, fixed=True).wants_to_know
