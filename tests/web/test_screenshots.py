"""Pictures of the page over a real cluster at work; with GRISTMILL_TEST_PICTURES=1 they become those of docs/images."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

from gristmill import Client
from support.browser import Browser
from support.database import Database
from support.pageprogram import PageProgram
from support.server import RedisServer
from support.waiting import wait_until

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
PICTURES = (("/", "overview", False), ("/", "overview-dark", True), ("/processors", "processors", False),
            ("/timeline", "timeline", False), ("/tasks", "tasks", False))  # fmt: skip


def simulate(seconds: float) -> float:
    """Work that takes its time and no CPU."""
    time.sleep(seconds)
    return seconds


def refuse(row: int) -> None:
    """A task that fails."""
    raise ValueError(f"no price for row {row}")


def test_the_page_of_a_cluster_at_work_is_a_picture_with_something_on_it(
    start_cluster: Any, server: RedisServer, database: Database, namespace: str, tmp_path: Path
) -> None:
    database.run("CONFIG", "SET", "appendonly", "yes")
    cluster = start_cluster(workers=3, worker_options={"concurrency": 2, "worker_lease_seconds": 15.0})
    program = PageProgram(server.address, namespace)
    folder = IMAGES if os.environ.get("GRISTMILL_TEST_PICTURES") == "1" else tmp_path
    folder.mkdir(exist_ok=True)
    try:
        with Client(cluster.address, namespace=namespace) as client, Browser() as browser:
            chance = random.Random(7)
            futures = [client.submit(simulate, chance.uniform(0.2, 1.5)) for _ in range(100)]
            failing = [client.submit(refuse, row) for row in range(3)]
            lasting = client.submit(simulate, 3600.0)  # however long the pictures take, a task executes
            wait_until(lambda: sum(future.done() for future in futures) >= 20, "the cluster is at work")
            for path, name, dark in PICTURES:
                tab = browser.open(f"{program.address}{path}", dark=dark, width=1440, height=900)
                tab.wait("document.querySelectorAll('tbody tr, svg rect').length >= 3", f"{path} shows something")
                if path == "/":
                    tab.wait("document.querySelector('#workers .current .function') !== null", "a task executes")
                tab.picture(folder / f"{name}.png", whole=False)
                assert tab.complaints() == []
                tab.close()
            lasting.cancel()
            for future in futures:
                future.result(timeout=60)
            assert all(future.exception(timeout=60) for future in failing)
    finally:
        program.stop()
        database.run("CONFIG", "SET", "appendonly", "no")

    sizes = {path.name: path.stat().st_size for path in folder.glob("*.png")}
    assert set(sizes) == {f"{name}.png" for _, name, _ in PICTURES}
    assert min(sizes.values()) > 20_000  # an empty page makes a tenth of that
