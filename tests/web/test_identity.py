"""Who may look and who may act: accounts, tokens, names given by a proxy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from werkzeug.security import generate_password_hash

from gristmill.errors import SettingError
from gristmill_web import passwords
from gristmill_web.identity import TRIES, check_guarded, read_accounts, read_tokens
from gristmill_web.settings import PageSettings

if TYPE_CHECKING:
    from flask.testing import FlaskClient

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
TOKEN, OPERATOR_TOKEN = "viewer-token-0123456789", "operator-token-0123456789"


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "accounts"
    cheap = "pbkdf2:sha256:1000"
    lines = ["# people", f"ada:operator:{generate_password_hash('lace', cheap)}"]
    lines.append(f"bob:viewer:{generate_password_hash('hunter2', cheap)}")
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    return path


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"viewer {TOKEN}\noperator {OPERATOR_TOKEN}\n")
    path.chmod(0o600)
    return path


def log_in(page: FlaskClient, name: str, password: str, back: str = "") -> Any:
    return page.post("/login", data={"name": name, "password": password, "back": back}, headers=SAME_ORIGIN)


def test_those_who_have_not_logged_in_are_shown_the_way_in_and_nothing_else(make_app: Any, password_file: Path) -> None:
    page = make_app(password_file=str(password_file)).test_client()

    response = page.get("/processors?worker=w1")
    assert (response.status_code, response.headers["Location"]) == (303, "/login?back=/processors?worker%3Dw1")
    for path in ("/fragments/overview", "/api/v1/overview"):
        assert page.get(path).status_code == 401
    assert page.get("/api/v1/overview").headers["WWW-Authenticate"] == "Bearer"
    assert page.post("/settings", data={"theme": "dark"}, headers=SAME_ORIGIN).status_code == 401
    assert "Overview" not in page.get("/login").text
    assert page.get("/healthz").status_code == page.get("/readyz").status_code == 200


def test_who_has_logged_in_is_led_back_and_stays_until_they_leave(make_app: Any, password_file: Path) -> None:
    page = make_app(password_file=str(password_file)).test_client()

    response = log_in(page, "bob", "hunter2", "/processors?worker=w1")

    assert (response.status_code, response.headers["Location"]) == (303, "/processors?worker=w1")
    cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "bob" in page.get("/").text
    page.post("/logout", headers=SAME_ORIGIN)
    assert page.get("/").status_code == 303


@pytest.mark.parametrize(("name", "password"), [("bob", "wrong"), ("nobody", "hunter2"), ("", ""), ("bob", "")])
def test_a_wrong_password_opens_nothing(make_app: Any, password_file: Path, name: str, password: str) -> None:
    page = make_app(password_file=str(password_file)).test_client()

    response = log_in(page, name, password)

    assert response.status_code == 401
    assert "Name or password is wrong." in response.text
    assert page.get("/").status_code == 303


def test_guessing_is_stopped(make_app: Any, password_file: Path) -> None:
    page = make_app(password_file=str(password_file)).test_client()
    for _ in range(TRIES):
        assert log_in(page, "bob", "wrong").status_code == 401

    assert log_in(page, "bob", "hunter2").status_code == 429


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_the_way_in_leads_nowhere_else(make_app: Any, password_file: Path, back: str) -> None:
    page = make_app(password_file=str(password_file)).test_client()

    assert log_in(page, "bob", "hunter2", back).headers["Location"] == "/"


def test_a_session_is_good_at_every_process_and_ends_when_the_account_does(make_app: Any, password_file: Path) -> None:
    first = make_app(password_file=str(password_file)).test_client()
    cookie = log_in(first, "bob", "hunter2").headers["Set-Cookie"].partition(";")[0].partition("=")[2]

    second = make_app(password_file=str(password_file)).test_client()
    second.set_cookie("gristmill_session", cookie)
    assert second.get("/").status_code == 200

    password_file.write_text("\n".join(password_file.read_text().splitlines()[:2]))
    third = make_app(password_file=str(password_file)).test_client()
    third.set_cookie("gristmill_session", cookie)
    assert third.get("/").status_code == 303


def test_a_token_opens_the_api_and_another_does_not(make_app: Any, token_file: Path) -> None:
    page = make_app(token_file=str(token_file)).test_client()

    assert page.get("/api/v1/overview", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    for wrong in ("Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ", ""):
        assert page.get("/api/v1/overview", headers={"Authorization": wrong}).status_code == 401
    assert page.get("/").status_code == 401  # there is no way in by a form


def test_a_proxy_names_who_asks_only_where_it_was_declared(make_app: Any) -> None:
    page = make_app(user_header="X-Forwarded-User", proxies=1, operators="ada").test_client()

    assert page.get("/").status_code == 401
    assert "bob" in page.get("/", headers={"X-Forwarded-User": "bob"}).text
    assert page.get("/", headers={"X-Forwarded-User": "<script>"}).status_code == 401
    with pytest.raises(SettingError, match="expected --proxies"):
        check_guarded(PageSettings(user_header="X-Forwarded-User"))


def test_actions_on_an_open_page_need_names() -> None:
    with pytest.raises(SettingError, match="the audit says who has acted"):
        check_guarded(PageSettings(host="0.0.0.0", guarded=True, actions=True))

    check_guarded(PageSettings(actions=True))


@pytest.mark.parametrize("line", ["bob", "bob:king:a$b$c", "bob:viewer:hunter2", "b b:viewer:a$b$c", ""])
def test_a_password_file_that_makes_no_sense_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "accounts").write_text(line)

    with pytest.raises(SettingError, match="--password-file: expected"):
        read_accounts(str(tmp_path / "accounts"))


@pytest.mark.parametrize("line", ["short", "viewer short", "king abcdefghijklmnopqrst", ""])
def test_a_token_file_that_makes_no_sense_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "tokens").write_text(line)

    with pytest.raises(SettingError, match="--token-file: expected"):
        read_tokens(str(tmp_path / "tokens"))


def test_a_file_that_is_not_there_is_refused_in_one_sentence() -> None:
    with pytest.raises(SettingError, match="expected a file that can be read"):
        read_accounts("/nowhere")


def test_lines_of_the_password_file_are_made_by_a_command(tmp_path: Path) -> None:
    answer = CliRunner().invoke(passwords.command, ["ada", "--role", "operator", "--password", "lace"])

    assert answer.exit_code == 0
    (tmp_path / "accounts").write_text(answer.output)
    assert read_accounts(str(tmp_path / "accounts"))["ada"].role == "operator"
    assert "lace" not in answer.output
