"""The page's application over a real Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from flask import Flask

from gristmill.protocol.keys import Keys
from gristmill_web.app import create_app, wrap
from gristmill_web.settings import PageSettings
from support.database import Database
from support.seeding import Seeding
from support.server import RedisServer

if TYPE_CHECKING:
    from flask.testing import FlaskClient

MakeApp = Callable[..., Flask]

PATIENCE_SECONDS = 60.0


@pytest.fixture
def seeding(database: Database, keys: Keys) -> Seeding:
    return Seeding(database, keys)


@pytest.fixture(autouse=True)
def _the_first_view_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What there was before the first view is read by its end, also on a machine that stalls."""
    monkeypatch.setattr("gristmill_web.history.reader.FIRST_READ_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def make_app(server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeApp]:
    """Makes an application; settings may be given by name. Its Redis is there, so it is waited for."""
    monkeypatch.setattr("gristmill_web.app.REDIS_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("gristmill_web.board.PATIENCE_SECONDS", PATIENCE_SECONDS)
    made: list[Flask] = []

    def make(**settings: object) -> Flask:
        given = {"redis": server.address, "namespace": namespace, "refresh_seconds": 0.2, **settings}
        page_settings = PageSettings.model_validate(given)
        app = wrap(create_app(page_settings), page_settings)
        app.testing = True
        made.append(app)
        return app

    yield make
    for app in made:
        app.extensions["gristmill_history"].close()
        app.extensions["gristmill_board"].snapshot.close()


@pytest.fixture
def still_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read only now and then is read once in a test, also on a machine that stalls between two views."""
    monkeypatch.setattr("gristmill_web.memory.FLEET_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("gristmill_web.pages.clients.READ_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("gristmill_web.pages.objects.READ_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr("gristmill_web.board.GLANCE_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def page(make_app: MakeApp) -> FlaskClient:
    """A browser without JavaScript."""
    return make_app().test_client()
