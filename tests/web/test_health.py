"""What the page says of itself when Redis is well, away, frozen or refuses."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from gristmill.snapshot import Counts
from gristmill_web.app import create_app
from gristmill_web.board import Board, Look
from gristmill_web.settings import PageSettings
from support.database import Database
from support.server import RedisServer
from support.waiting import wait_until

if TYPE_CHECKING:
    from flask.testing import FlaskClient

PATIENCE_SECONDS = 60.0


@pytest.fixture
def fragile(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlaskClient]:
    """The page over a Redis that the test may stop: then it refuses at once, and otherwise it is waited for."""
    monkeypatch.setattr("gristmill_web.app.REDIS_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("gristmill_web.board.PATIENCE_SECONDS", PATIENCE_SECONDS)
    app = create_app(PageSettings(redis=own_server.address, refresh_seconds=0.2))
    yield app.test_client()
    app.extensions["gristmill_history"].close()
    app.extensions["gristmill_board"].snapshot.close()


def test_head_is_a_health_check_that_costs_one_command(page: FlaskClient, database: Database) -> None:
    page.head("/")
    before = int(database.run("INFO", "stats").decode().partition("total_commands_processed:")[2].split()[0])
    response = page.head("/")
    after = int(database.run("INFO", "stats").decode().partition("total_commands_processed:")[2].split()[0])

    assert (response.status_code, response.data) == (200, b"")
    assert after - before <= 2  # its own, and the INFO that counts


def test_health_is_green_when_redis_serves(page: FlaskClient) -> None:
    response = page.get("/readyz")

    assert (response.status_code, response.text) == (200, "ok\n")


def test_health_is_not_green_when_redis_is_away(fragile: FlaskClient, own_server: RedisServer) -> None:
    assert fragile.head("/").status_code == 200

    own_server.kill()

    assert fragile.head("/").status_code == 503
    assert fragile.get("/readyz").status_code == 503
    own_server.start()
    assert fragile.get("/readyz").status_code == 200


def test_health_is_not_green_when_redis_refuses(fragile: FlaskClient, own_server: RedisServer) -> None:
    own_server.command("CONFIG", "SET", "requirepass", "secret")

    response = fragile.get("/readyz")

    assert response.status_code == 503
    assert "secret" not in response.text


def test_the_last_figures_stay_under_a_banner_while_redis_is_away(
    fragile: FlaskClient, own_server: RedisServer
) -> None:
    own_server.command("HSET", "gm:{default}:counts", "state:running", "4321")
    assert "4,321" in fragile.get("/").text

    own_server.kill()
    wait_until(lambda: "redis-away" in fragile.get("/").text, "the page says that Redis is away")
    response = fragile.get("/")

    assert response.status_code == 200
    assert "Redis is away." in response.text
    assert "4,321" in response.text
    assert fragile.get("/api/v1/overview").status_code == 503

    own_server.start()
    wait_until(lambda: "redis-away" not in fragile.get("/").text, "the page has noticed that Redis is back")
    assert fragile.get("/api/v1/overview").status_code == 200


def test_a_page_that_never_had_figures_still_answers(own_server: RedisServer) -> None:
    own_server.kill()
    app = create_app(PageSettings(redis=own_server.address))

    response = app.test_client().get("/")
    app.extensions["gristmill_history"].close()

    assert response.status_code == 200
    assert "There is nothing to show yet." in response.text


def test_those_who_look_while_another_waits_for_a_frozen_redis_get_the_last_figures_soon(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gristmill_web.app.REDIS_TIMEOUT_SECONDS", 100.0)
    app = create_app(PageSettings(redis=own_server.address, refresh_seconds=0.2))
    board: Board = app.extensions["gristmill_board"]

    def look() -> Look[Counts]:
        return board.look("counts", "", board.snapshot.counts)

    assert look().problem == ""

    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        time.sleep(0.2)  # until the figures are old
        first = threading.Thread(target=look)
        first.start()
        wait_until(lambda: board.is_asking, "the first one waits for Redis")
        start = time.monotonic()
        seen = look()
        assert time.monotonic() - start < 20  # the first one waits five times as long
        assert seen.value is not None
        assert seen.problem
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    first.join()
    wait_until(lambda: not look().problem, "it recovers")
    board.snapshot.close()
