"""The pages of a real cluster that has been at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from gristmill import Client, LocalCluster
from support import tasks
from support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flask import Flask


def allocate() -> int:
    """Uses 64 MiB for a while."""
    import time

    data = bytearray(b"x") * (64 << 20)
    time.sleep(0.05)
    return len(data)


def fail_late(started: str, gate: str, message: str) -> NoReturn:
    """Not before the gate is open: another task depends on it by then."""
    tasks.wait_for_file(started, gate)
    raise ValueError(message)


def test_what_a_cluster_did_is_on_the_pages(
    start_cluster: Callable[..., LocalCluster], make_app: Callable[[], Flask], tmp_path: Path
) -> None:
    # Nobody is lost here: a lease that ended by itself would be an attempt more.
    cluster = start_cluster(workers=2, worker_options={"worker_lease_seconds": 15.0})
    page = make_app().test_client()
    gate = tmp_path / "gate"

    def found(query: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = page.get(f"/api/v1/tasks?{query}").get_json()["tasks"]
        return rows

    with Client(cluster) as client:
        assert client.options(tags=["nightly"], name="big one").submit(allocate).result(timeout=60) == 64 << 20
        failed = client.options(retries=1).submit(fail_late, str(tmp_path / "started"), str(gate), "no <price>")
        after = client.submit(tasks.add, failed, 1)
        wait_until(lambda: page.get(f"/api/v1/tasks/{after.task_id}").status_code == 200, "the other one waits for it")
        gate.touch()
        assert isinstance(after.exception(timeout=60), ValueError)
        slow = client.submit(tasks.sleep_long, 3600)
        wait_until(lambda: page.get("/api/v1/timeline").get_json()["spans"], "the timeline has bars")
        wait_until(
            lambda: any(one["state"] == "running" for one in page.get("/api/v1/timeline").get_json()["spans"]),
            "what executes is drawn",
        )
        slow.cancel()
        wait_until(lambda: found("state=canceled"), "the cancel is in the history")

    wait_until(lambda: len(found("")) == 4, "all tasks are in the history")
    (one,) = found("state=success&tag=nightly&text=BIG")
    assert one["function"].endswith("allocate")
    assert one["duration_us"] >= 50_000
    assert one["memory"] > 32 << 20
    assert one["wait_ms"] >= 0
    body = page.get(f"/api/v1/tasks/{failed.task_id}").get_json()
    assert [attempt["number"] for attempt in body["attempts"]] == [2, 1]
    for attempt in body["attempts"]:
        assert attempt["traceback"].startswith("Traceback (most recent call last)")
        assert attempt["traceback"].endswith("ValueError: no <price>\n")
        assert attempt["error"] == "ValueError: no <price>"
    assert [change["event"] for change in body["changes"]][-3:] == ["ResultFailedRetry", "HasCapacity", "ResultFailed"]
    assert body["complete"]
    assert body["needed_by"] == [{"task": after.task_id, "state": "failed"}]
    dependent = page.get(f"/api/v1/tasks/{after.task_id}").get_json()
    assert dependent["needs"][0]["task"] == failed.task_id
    assert dependent["changes"][-1]["event"] == "DependencyFailed"
    html = page.get(f"/tasks/{failed.task_id}").text
    assert "ValueError: no &lt;price&gt;" in html
    events = page.get(f"/api/v1/events?task={slow.task_id}").get_json()["events"]
    assert [event["state"] for event in events][:2] == ["canceled", "canceling"]
    assert page.get("/api/v1/events").get_json()["gaps"] == []
