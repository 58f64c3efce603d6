"""/metrics: what Prometheus reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gristmill.protocol.keys import Keys
from gristmill_web.histograms import Histogram
from support.database import Database
from support.seeding import Seeding
from support.server import RedisServer
from support.waiting import wait_until

if TYPE_CHECKING:
    from flask.testing import FlaskClient

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
LABEL = r'[a-z]+="(?:[^"\\\n]|\\.)*"'
SAMPLE = re.compile(r"(gristmill_[a-z_]+)(\{" + f"{LABEL}(?:,{LABEL})*" + r"\})? (-?[0-9.e+]+)")


def samples(page: FlaskClient) -> dict[str, float]:
    response = page.get("/metrics")
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, float] = {}
    typed: set[str] = set()
    for line in response.text.splitlines():
        if line.startswith("# TYPE "):
            name = line.split()[2]
            assert name not in typed, f"{name} comes twice"
            typed.add(name)
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, f"no sample: {line}"
            assert match[1] + (match[2] or "") not in found, line
            assert match[1] in typed or re.sub(r"_(bucket|sum|count)$", "", match[1]) in typed
            found[match[1] + (match[2] or "")] = float(match[3])
    return found


def test_every_line_is_understood_and_says_what_is(page: FlaskClient, seeding: Seeding) -> None:
    seeding.count(state__running=3, state__success=40, requests__tasks=9, refused__success__TaskCancel=2)
    seeding.worker("mill-1|100|w1|aaaa", assigned=5, held=2, processors=[{"task": "c.0000001", "function": "f"}])
    seeding.scheduler("s1")
    seeding.lane("gpu,python3.11", waiting=2)

    found = samples(page)

    assert found['gristmill_tasks{state="running"}'] == 3
    assert found['gristmill_tasks_ended_total{state="success"}'] == 40
    assert found['gristmill_requests_applied_total{kind="tasks"}'] == 9
    assert found['gristmill_transitions_refused_total{state="success",event="TaskCancel"}'] == 2
    assert found['gristmill_workers{state="live"}'] == 1
    assert found['gristmill_tasks_assigned{place="queued"}'] == 3
    assert found['gristmill_lane_waiting{lane="gpu,python3.11"}'] == 2
    assert found["gristmill_schedulers"] == found["gristmill_redis_up"] == 1


def test_labels_are_bounded_and_escaped(page: FlaskClient, seeding: Seeding) -> None:
    for number in range(40):
        seeding.worker(f"mill-1|{number}|w{number}|r")
        seeding.client(f"Client{number:04}")
        seeding.lane(f"lane{number},python3.11", waiting=1)
    seeding.lane('a"b\\c\nd', waiting=99)

    found = samples(page)

    assert sum(name.startswith("gristmill_lane_waiting") for name in found) == 20
    assert not any("w1" in name or "Client" in name for name in found)
    assert len(found) < 200


def test_waits_and_runs_of_attempts_that_end_are_counted(
    page: FlaskClient, seeding: Seeding, database: Database, keys: Keys
) -> None:
    samples(page)
    history = page.application.extensions["gristmill_history"].look()
    wait_until(lambda: not history.problem, "the history has been read")
    seeding.changes(("c.0000001", "inactive", 0, "", "f"))
    seeding.changes(("c.0000001", "running", 1, "mill-1|1|w1|r", "f"))
    seeding.changes(("c.0000001", "success", 1, "mill-1|1|w1|r", "f", 300_000, 1, 1))

    wait_until(lambda: samples(page)["gristmill_task_run_seconds_count"] == 1, "the run is counted")
    found = samples(page)
    assert found['gristmill_task_run_seconds_bucket{le="0.1"}'] == 0
    assert found['gristmill_task_run_seconds_bucket{le="0.5"}'] == 1
    assert found['gristmill_task_run_seconds_bucket{le="+Inf"}'] == 1
    assert found["gristmill_task_run_seconds_sum"] == pytest.approx(0.3)
    assert found["gristmill_task_wait_seconds_count"] == 1


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram()
    for value in (0.001, 0.0011, 9000.0):
        histogram.observe(value)

    rows, total, count = histogram.read()

    assert dict(rows)["0.001"] == 1
    assert dict(rows)["0.005"] == 2
    assert dict(rows)["7200.0"] == 2
    assert (dict(rows)["+Inf"], count) == (3, 3)
    assert total == pytest.approx(9000.0021)


def test_redis_away_is_a_sample_not_an_error(page: FlaskClient, own_server: RedisServer) -> None:
    from gristmill_web.app import create_app
    from gristmill_web.settings import PageSettings

    own_server.kill()
    app = create_app(PageSettings(redis=own_server.address))

    assert samples(app.test_client())["gristmill_redis_up"] == 0
    app.extensions["gristmill_history"].close()


def named(text: str) -> set[str]:
    return set(re.findall(r"gristmill_[a-z_]+", text))


def test_the_dashboard_and_the_alerts_use_what_there_is(page: FlaskClient, seeding: Seeding) -> None:
    seeding.worker("mill-1|100|w1|aaaa")
    seeding.scheduler("s1")
    seeding.lane("gpu,python3.11", waiting=2)
    seeding.count(refused__success__TaskCancel=2, repaired__entry=1)
    there = {re.sub(r"\{.*", "", name) for name in samples(page)}

    dashboard = (DEPLOY / "grafana-dashboard.json").read_text()
    alerts = (DEPLOY / "prometheus-alerts.yml").read_text()

    assert len(json.loads(dashboard)["panels"]) >= 10
    assert named(dashboard) - there == set()
    assert named(alerts) - there == set()
    assert len(re.findall(r"- alert: ", alerts)) >= 10
