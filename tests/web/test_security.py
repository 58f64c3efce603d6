"""Who may ask, what a browser may do with the answer, and where the page may live."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from gristmill.errors import SettingError
from gristmill_web.identity import check_guarded
from gristmill_web.settings import PageSettings

if TYPE_CHECKING:
    from flask.testing import FlaskClient

PATHS = ("/", "/fragments/overview", "/api/v1/overview", "/readyz", "/static/page.css", "/nowhere")


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_forbids_what_is_not_ours(page: FlaskClient, path: str) -> None:
    with page.get(path) as response:
        headers = response.headers

    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in headers


def test_nothing_is_inline_and_nothing_comes_from_elsewhere(page: FlaskClient) -> None:
    html = page.get("/").text

    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html)
    for tag in re.findall(r"<script[^>]*>.*?</script>", html, re.DOTALL):
        assert re.fullmatch(r'<script src="/static/[^"]+" defer></script>', tag)
    assert not re.search(r'(?:src|href|hx-get)="(?:https?:)?//', html)


def test_every_file_that_the_page_names_is_there_and_may_be_kept(page: FlaskClient) -> None:
    named = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.get("/").text)

    assert len(set(named)) == 5
    for address in named:
        with page.get(address) as response:
            assert response.status_code == 200
            assert "v=" in address
            assert "max-age=31536000" in response.headers["Cache-Control"]


def test_htmx_is_told_to_compile_nothing_and_to_inject_no_styles(page: FlaskClient) -> None:
    html = page.get("/").text

    assert '"includeIndicatorCSS":false' in html
    assert not re.search(r"hx-on|hx-vals|hx-trigger=\"[^\"]*\[|js:", html)


def test_what_changes_is_not_kept_by_browsers(page: FlaskClient) -> None:
    for path in ("/", "/fragments/overview", "/api/v1/overview", "/readyz"):
        assert page.get(path).headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8700", "[::1]:8700", "LOCALHOST:1", "localhost."])
def test_this_machine_may_ask(page: FlaskClient, host: str) -> None:
    assert page.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "evil.example:8700", "127.0.0.2", "", "a@localhost", "[::2]"]
)
@pytest.mark.parametrize("path", ["/", "/api/v1/overview", "/readyz", "/static/page.js"])
def test_a_host_name_of_somebody_else_is_refused(page: FlaskClient, host: str, path: str) -> None:
    response = page.get(path, headers={"Host": host})

    assert response.status_code == 400
    assert "Content-Security-Policy" in response.headers
    assert "evil" not in response.text


def test_a_host_name_that_was_declared_is_accepted(make_app: Any) -> None:
    page = make_app(trusted_hosts="mill.example.org, .internal").test_client()

    assert page.get("/", headers={"Host": "mill.example.org"}).status_code == 200
    assert page.get("/", headers={"Host": "a.internal"}).status_code == 200
    assert page.get("/", headers={"Host": "evil.example"}).status_code == 400


UNSAFE = ("post", "put", "patch", "delete")
FOREIGN: tuple[dict[str, str], ...] = (
    {},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "null"},
    {"Origin": "http://localhost:81"},
    {"Origin": "https://localhost"},
)


@pytest.mark.parametrize("method", UNSAFE)
@pytest.mark.parametrize("headers", FOREIGN)
def test_nothing_but_a_page_of_this_server_may_change_anything(
    page: FlaskClient, method: str, headers: dict[str, str]
) -> None:
    for rule in page.application.url_map.iter_rules():
        path = re.sub(r"<[^>]*>", "x", rule.rule)
        response = getattr(page, method)(path, headers=headers)
        assert response.status_code == 403, path


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "same-origin"}, {"Origin": "http://localhost"}])
@pytest.mark.parametrize("method", UNSAFE)
def test_pages_are_only_read(page: FlaskClient, method: str, headers: dict[str, str]) -> None:
    rules = list(page.application.url_map.iter_rules())
    for rule in rules:
        if not rule.arguments and not any(
            "POST" in (other.methods or ()) for other in rules if other.rule == rule.rule
        ):
            response = getattr(page, method)(rule.rule, headers=headers)
            assert response.status_code == 405
            assert "GET" in response.headers["Allow"]


def test_it_lives_below_a_prefix(make_app: Any) -> None:
    page = make_app(prefix="/tools/mill").test_client()

    html = page.get("/tools/mill/").text
    assert 'hx-get="/tools/mill/fragments/overview"' in html
    addresses = re.findall(r'(?:src|href)="(/[^"]*)"', html)
    assert addresses
    for address in addresses:
        assert address.startswith("/tools/mill/")
        with page.get(address.partition("#")[0].replace("&amp;", "&")) as response:
            assert response.status_code == 200
    assert page.get("/").status_code == 404


def test_a_proxy_may_name_the_prefix_only_when_it_was_declared(make_app: Any) -> None:
    headers = {"X-Forwarded-Prefix": "/mill", "X-Forwarded-Host": "mill.example.org"}

    undeclared = make_app().test_client().get("/", headers=headers)
    assert "/mill" not in undeclared.text

    declared = make_app(proxies=1, trusted_hosts="mill.example.org").test_client().get("/", headers=headers)
    assert 'hx-get="/mill/fragments/overview"' in declared.text


def test_a_proxy_cannot_name_a_host_that_is_not_trusted(make_app: Any) -> None:
    page = make_app(proxies=1).test_client()

    assert page.get("/", headers={"X-Forwarded-Host": "evil.example"}).status_code == 400


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "mill.example.org", ""])
def test_it_does_not_open_itself_to_others_unless_something_guards_it(host: str) -> None:
    with pytest.raises(SettingError, match="nothing says who may look; give --password-file"):
        check_guarded(PageSettings(host=host))

    check_guarded(PageSettings(host=host, guarded=True))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.3.4.5", "::1"])
def test_it_listens_to_this_machine_without_ado(host: str) -> None:
    check_guarded(PageSettings(host=host))


@pytest.mark.parametrize("wrong", [{"prefix": "mill"}, {"prefix": '/"><script>'}, {"trusted_hosts": "a b"}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected"):
        PageSettings.model_validate(wrong)
