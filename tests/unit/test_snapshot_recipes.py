"""How the read API writes shell lines, orders names, and reads odd replies."""

from __future__ import annotations

import pytest

from gristmill.snapshot import redis_cli
from gristmill.snapshot.fleet import by_worker
from gristmill.snapshot.reading import decimal, number, text


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("", "redis-cli"),
        ("redis://localhost:6379/0", "redis-cli"),
        ("redis://:secret@redis.example:6380/3", "redis-cli -h redis.example -p 6380 -n 3"),
        ("rediss://anna:secret@redis.example", "redis-cli -h redis.example --tls --user anna"),
        ("unix:///tmp/a%20b/redis.sock?db=2", "redis-cli -s '/tmp/a b/redis.sock' -n 2"),
        ("redis+sentinel://one:26379,two:26379/mill", "redis-cli"),
    ],
)
def test_redis_cli_is_told_the_address_but_never_the_password(address: str, line: str) -> None:
    assert line == redis_cli(address)


def test_workers_are_ordered_by_name_with_numbers_as_numbers() -> None:
    ids = ["b|1|w10|x", "a|2|w2|x", "a|1|w2|x", "a|9|w1|x"]

    assert sorted(ids, key=by_worker) == ["a|9|w1|x", "a|1|w2|x", "a|2|w2|x", "b|1|w10|x"]


@pytest.mark.parametrize("odd", [b"", None, b"many", b"nan", b"inf", "1e400"])
def test_a_figure_that_is_none_counts_as_zero(odd: object) -> None:
    assert (number(odd), decimal(odd)) == (0, 0.0)


def test_bytes_that_are_no_text_are_shown_as_escapes() -> None:
    assert text(b"a\xff") == "a\\xff"
