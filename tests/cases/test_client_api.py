"""H72 to H77: the client's calls and its life."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from gristmill import FIRST_COMPLETED, Client, Future, as_completed, wait
from support import tasks
from support.waiting import wait_until


def test_h74_each_future_is_reported_exactly_once(client: Client) -> None:
    """as_completed and wait over futures that finish, fail, are cancelled meanwhile, and are listed twice."""
    chance = random.Random(74)
    for _ in range(150):
        futures: list[Future] = [
            client.submit(abs, -1),
            client.submit(tasks.raise_value_error, "x"),
            client.submit(tasks.echo, None),
            client.submit(tasks.echo, None),
        ]
        canceller = threading.Thread(target=futures[chance.choice((2, 3))].cancel)
        canceller.start()
        listed = [*futures, futures[0]]
        chance.shuffle(listed)
        if chance.random() < 0.5:
            assert Counter(as_completed(listed, timeout=30)) == Counter(futures)
        else:
            done, not_done = wait(listed, timeout=30)
            assert (done, not_done) == (set(futures), set())
        canceller.join()


def test_h74_time_outs_of_wait_and_as_completed_are_kept(client: Client, tmp_path: Path) -> None:
    """What is not done when the time is over is told, not waited for; nothing at all is done at once."""
    gate = tmp_path / "gate"
    slow = client.submit(tasks.wait_for_file, str(tmp_path / "started"), str(gate))
    quick = client.submit(abs, -1)
    assert quick.result(timeout=30) == 1

    assert wait([slow, quick], timeout=0.01) == ({quick}, {slow})
    assert wait([slow, quick], return_when=FIRST_COMPLETED, timeout=30) == ({quick}, {slow})
    with pytest.raises(TimeoutError):
        list(as_completed([slow], timeout=0.01))
    assert wait([], timeout=30) == (set(), set())
    assert list(as_completed([], timeout=30)) == []
    gate.touch()
    assert list(as_completed([slow], timeout=30)) == [slow]


def test_h75_a_task_whose_future_was_dropped_runs_all_the_same(client: Client, tmp_path: Path) -> None:
    """A hundred tasks that make files, and nobody keeps a future of them: all hundred files appear."""
    for number in range(100):
        client.submit(Path.touch, tmp_path / str(number))
    gc.collect()

    wait_until(lambda: len(list(tmp_path.iterdir())) == 100, "all files are there", timeout=30)
