"""Settings of a browser: kept by it, rendered by the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gristmill_web.preferences import CHOICES, Preferences

if TYPE_CHECKING:
    from flask.testing import FlaskClient

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


def test_what_was_chosen_is_kept_by_the_browser_and_rendered_by_the_server(page: FlaskClient) -> None:
    assert 'data-theme="system"' in page.get("/").text

    response = page.post("/settings", data={"theme": "dark", "refresh": "10"}, headers=SAME_ORIGIN)

    assert (response.status_code, response.headers["Location"]) == (303, "/settings?saved")
    cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    html = page.get("/").text
    assert 'data-theme="dark"' in html
    assert "every 10000ms" in html


def test_a_form_of_one_setting_leaves_the_others(page: FlaskClient) -> None:
    page.post("/settings", data={"theme": "dark"}, headers=SAME_ORIGIN)
    response = page.post("/settings", data={"paused": "1", "back": "/?sort=cpu"}, headers=SAME_ORIGIN)

    assert response.headers["Location"] == "/?sort=cpu"
    html = page.get("/").text
    assert 'data-theme="dark"' in html
    assert 'aria-pressed="true"' in html


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\nb", "evil", ""])
def test_the_way_back_never_leads_elsewhere(page: FlaskClient, back: str) -> None:
    response = page.post("/settings", data={"back": back}, headers=SAME_ORIGIN)

    assert response.headers["Location"] == "/settings?saved"


@pytest.mark.parametrize("cookie", ["theme=purple&refresh=7", "%00", "theme", "x" * 3000, "refresh=-1&paused=yes"])
def test_a_cookie_that_makes_no_sense_is_as_none(page: FlaskClient, cookie: str) -> None:
    page.set_cookie("gristmill_settings", cookie)

    assert page.get("/").status_code == 200
    assert Preferences.of_cookie(cookie) == Preferences()


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in CHOICES for value in CHOICES[name]])
def test_every_choice_survives_the_cookie_and_stands_in_the_form(page: FlaskClient, name: str, value: str) -> None:
    chosen = Preferences().changed({name: value})
    assert Preferences.of_cookie(chosen.cookie) == chosen
    assert str(int(getattr(chosen, name)) if name == "paused" else getattr(chosen, name)) == value

    page.set_cookie("gristmill_settings", chosen.cookie)
    html = page.get("/settings").text
    if name != "paused":
        assert f'name="{name}" value="{value}" checked' in html
