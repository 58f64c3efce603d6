"""Large arguments when Redis loses its data, and what is left of their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import Client, LocalCluster, TaskLostError
from support import tasks
from support.waiting import wait_until

Starter = Callable[..., LocalCluster]


def wait_and_sum(gate: str, table: Any) -> float:
    tasks.wait_for_file(gate + ".started", gate)
    return float(table.sum())


def test_they_are_uploaded_again_from_the_originals(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(workers=1)
    gate, table = tmp_path / "gate", np.ones(500_000)
    with Client(cluster) as client:
        futures = [client.submit(wait_and_sum, str(gate), table) for _ in range(5)]
        client.flush(timeout=60)
        assert cluster._connection is not None
        cluster._connection.request("FLUSHALL")
        gate.touch()

        assert [future.result(timeout=60) for future in futures] == [500_000.0] * 5


def test_a_task_whose_argument_has_changed_since_is_lost(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(workers=1)
    gate, table = tmp_path / "gate", np.ones(500_000)
    with Client(cluster) as client:
        future = client.submit(wait_and_sum, str(gate), table)
        client.flush(timeout=60)
        table[77] = 5
        assert cluster._connection is not None
        cluster._connection.request("FLUSHALL")
        gate.touch()

        with pytest.raises(TaskLostError, match="its arguments have changed"):
            future.result(timeout=60)


def test_a_worker_fetches_an_object_once_and_leaves_no_file(start_cluster: Starter, tmp_path: Path) -> None:
    cluster = start_cluster(workers=1, worker_options={"concurrency": 3, "object_directory": str(tmp_path)})
    table = np.ones(500_000)
    with Client(cluster) as client:
        assert client.gather([client.submit(np.sum, table) for _ in range(30)]) == [500_000.0] * 30
        (folder,) = tmp_path.glob("gristmill-objects-*")
        assert len([path for path in folder.iterdir() if not path.name.startswith(".")]) == 1
    # Not by closing the cluster: a worker that takes long to end would be killed, and leave its folder.
    cluster.workers[0].terminate()
    assert cluster.workers[0].wait(timeout=60) == 0

    wait_until(lambda: not list(tmp_path.glob("gristmill-objects-*")), "the folder is gone with the worker")
