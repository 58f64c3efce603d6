"""A client may end a whole installation that is not protected."""

from __future__ import annotations

import pytest

from conftest import Starter
from gristmill import CancelledError, Client, ClientClosedError, ProtectedError
from gristmill.protocol.keys import REQUEST_STREAMS
from gristmill.scheduler.information import GOODBYE_SECONDS, LEAVING_SECONDS, is_ending
from support import tasks
from support.database import Database
from support.waiting import wait_until


def test_protected_schedulers_refuse_in_the_words_that_people_know(start_cluster: Starter) -> None:
    cluster = start_cluster(workers=1, schedulers=1)
    with Client(cluster) as client:
        with pytest.raises(ValueError, match=r"^Scheduler is in protected mode\. Can't shutdown$") as caught:
            client.shutdown()
        assert isinstance(caught.value, ProtectedError)
        assert client.submit(abs, -1).result(timeout=60) == 1


def test_without_protection_workers_and_schedulers_end_well(start_cluster: Starter, database: Database) -> None:
    cluster = start_cluster(workers=2, schedulers=2, scheduler_options={"protected": False})
    client = Client(cluster)
    future = client.submit(tasks.sleep_long, 600)
    client.shutdown()

    with pytest.raises(CancelledError):
        future.result(timeout=0)
    with pytest.raises(ClientClosedError, match="shut down"):
        client.submit(abs, -1)
    wait_until(lambda: all(program.poll() is not None for program in cluster.processes), "everything has ended", 60)
    assert [program.returncode for program in cluster.processes] == [0, 0, 0, 0]
    # Who says goodbye a second too late is heard by whoever schedules next.
    if any(database.length(getattr(cluster.keys, name)()) for name in REQUEST_STREAMS):
        cluster.add_scheduler()


@pytest.mark.parametrize(
    ("shutdown_ms", "now_ms", "workers", "ends"),
    [
        (0, 10**9, 0, False),
        (5_000, 10**9, 0, False),  # before it was started
        (20_000, 20_000 + GOODBYE_SECONDS * 1000, 0, False),
        (20_000, 20_001 + GOODBYE_SECONDS * 1000, 0, True),
        (20_000, 20_001 + GOODBYE_SECONDS * 1000, 3, False),
        (20_000, 20_001 + LEAVING_SECONDS * 1000, 3, True),
    ],
)
def test_a_scheduler_ends_when_the_workers_have_left(shutdown_ms: int, now_ms: float, workers: int, ends: bool) -> None:
    assert is_ending(shutdown_ms, 10_000, int(now_ms), workers) is ends
