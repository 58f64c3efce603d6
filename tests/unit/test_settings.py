"""Settings: where a value may come from, which source wins, and what a wrong one is answered with."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gristmill.cores import cores
from gristmill.errors import SettingError
from gristmill.settings import SchedulerSettings, Settings, WebSettings, WorkerSettings, load, options


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gristmill.toml"
    path.write_text(
        """
        redis = "redis://shared:6379/0"
        [worker]
        concurrency = 3
        capabilities = "linux,gpu=1"
        [web]
        port = 9000
        """
    )
    return path


def refusal(cls: type[Settings], config: Path | None = None, **given: object) -> str:
    """The sentence with which the settings are refused."""
    with pytest.raises(SettingError) as caught:
        load(cls, given, str(config) if config else None)
    return str(caught.value)


# --- sources ------------------------------------------------------------------------------------------------


def test_without_anything_the_defaults_hold() -> None:
    settings = load(WorkerSettings)

    assert settings.namespace == "default"
    assert settings.concurrency == cores()
    assert settings.capabilities == {}


def test_the_file_gives_its_shared_top_and_the_programs_own_table(config: Path) -> None:
    worker, web = load(WorkerSettings, {}, str(config)), load(WebSettings, {}, str(config))

    assert (worker.redis, worker.concurrency) == ("redis://shared:6379/0", 3)
    assert (web.redis, web.port) == ("redis://shared:6379/0", 9000)


def test_the_environment_wins_over_the_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_CONCURRENCY", "5")

    assert load(WorkerSettings, {}, str(config)).concurrency == 5


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_CONCURRENCY", "5")

    assert load(WorkerSettings, {"concurrency": "7"}).concurrency == 7


def test_what_was_not_given_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_CONCURRENCY", "5")

    assert load(WorkerSettings, {"concurrency": None}).concurrency == 5


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_CONCURRENCY", "")

    assert load(WorkerSettings).concurrency == cores()


def test_the_port_that_kubernetes_announces_for_a_service_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_PORT", "tcp://10.0.0.1:8700")

    assert load(WebSettings).port == 8700


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(Settings).namespace = "other"


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("linux", {"linux": -1}),
        ("linux,gpu=1", {"linux": -1, "gpu": 1}),
        (" linux , gpu = 2 ,", {"linux": -1, "gpu": 2}),
    ],
)
def test_capabilities_are_names_or_names_with_a_number(text: str, expected: dict[str, int]) -> None:
    assert load(WorkerSettings, {"capabilities": text}).capabilities == expected


def test_capabilities_may_be_a_table_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gristmill.toml"
    path.write_text("[worker.capabilities]\nlinux = -1\ngpu = 2\n")

    assert load(WorkerSettings, {}, str(path)).capabilities == {"linux": -1, "gpu": 2}


def test_words_of_a_choice_may_be_written_in_capitals() -> None:
    assert load(Settings, {"log_level": "DEBUG"}).log_level == "debug"


def test_a_program_that_needs_redis_says_so_when_it_has_no_address() -> None:
    with pytest.raises(SettingError, match="expected the address of a Redis; got none; give --redis"):
        _ = load(Settings).address


# --- refusals: expected what, got what, do what -------------------------------------------------------------


def test_a_refusal_names_the_option_what_was_expected_and_what_came() -> None:
    assert refusal(WorkerSettings, concurrency="0") == (
        "--concurrency: expected a number greater than or equal to 1; got '0'; "
        f"correct it, or leave it out (default {cores()})"
    )


def test_a_refusal_names_the_variable_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_LOG_LEVEL", "loud")

    assert refusal(Settings).startswith(
        "GRISTMILL_LOG_LEVEL: expected 'debug', 'info', 'warning' or 'error'; got 'loud'; correct it"
    )


def test_a_refusal_names_the_line_of_the_file_that_is_wrong(config: Path) -> None:
    config.write_text("[worker]\nqueue_size = 'many'\n")

    assert refusal(WorkerSettings, config).startswith(
        f"queue_size in {config}: expected a whole number; got 'many'; correct it"
    )


def test_every_wrong_value_has_a_line_of_its_own() -> None:
    assert len(refusal(WorkerSettings, concurrency="0", queue_size="x").splitlines()) == 2


def test_an_unknown_setting_is_answered_with_the_one_that_was_meant(config: Path) -> None:
    config.write_text("[worker]\nconcurency = 3\n")

    assert refusal(WorkerSettings, config) == (
        f"expected known settings in [worker] of {config}; got 'concurency'; did you mean concurrency?"
    )


def test_an_unknown_table_is_refused(config: Path) -> None:
    config.write_text("[workers]\nconcurrency = 3\n")

    assert "got 'workers'; did you mean worker?" in refusal(WorkerSettings, config)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(Settings, tmp_path / "none.toml")


def test_a_file_that_is_no_toml_is_refused(config: Path) -> None:
    config.write_text("workers: 3")

    assert refusal(Settings, config).startswith(f"expected TOML in {config}; got")


def test_the_password_of_a_wrong_address_is_not_repeated() -> None:
    assert "secret" not in refusal(Settings, redis="http://user:secret@host")


@pytest.mark.parametrize("text", ["a b", "gpu=x", "gpu=1.5", "ü", "=1"])
def test_capabilities_that_cannot_be_read_are_refused(text: str) -> None:
    assert "expected capabilities such as linux,gpu=1" in refusal(WorkerSettings, capabilities=text)


@pytest.mark.parametrize("name", ["a b", "a|b", "a" * 65, "ü", "a\n"])
def test_names_that_cannot_be_part_of_an_id_are_refused(name: str) -> None:
    assert "expected a name of at most 64 letters" in refusal(SchedulerSettings, name=name)


@pytest.mark.parametrize("namespace", ["{a}", "a:b", " ", "-a", "a" * 65])
def test_namespaces_that_could_leave_their_place_in_a_key_are_refused(namespace: str) -> None:
    assert "expected a namespace" in refusal(Settings, namespace=namespace)


# --- the command line ---------------------------------------------------------------------------------------


def invoke(*arguments: str) -> Result:
    @click.command()
    @options(WorkerSettings)
    def command(settings: WorkerSettings) -> None:
        click.echo(f"{settings.concurrency} {settings.capabilities}")

    return CliRunner().invoke(command, arguments)


def test_every_field_is_an_option_with_its_default_and_its_variable() -> None:
    text = " ".join(invoke("--help").output.split())

    for name in WorkerSettings.model_fields:
        assert f"--{name.replace('_', '-')} " in text
        assert f"environment: GRISTMILL_{name.upper()}]" in text
    assert "[default: 1000; environment: GRISTMILL_QUEUE_SIZE]" in text


def test_options_make_one_settings_object() -> None:
    assert invoke("--concurrency", "4", "--capabilities", "gpu=1").output == "4 {'gpu': 1}\n"


def test_the_file_is_an_option_too(config: Path) -> None:
    assert invoke("--config", str(config)).output == "3 {'linux': -1, 'gpu': 1}\n"


def test_a_wrong_option_is_a_usage_error() -> None:
    result = invoke("--concurrency", "none")

    assert result.exit_code == 2
    assert "--concurrency: expected a whole number; got 'none'" in result.output
