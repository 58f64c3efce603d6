"""From Lua files to scripts: the header is the contract, and it is checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill import transitions
from gristmill.protocol.keys import Keys, key_kinds
from gristmill.protocol.kinds import Request
from gristmill.protocol.states import TERMINAL, TRANSITIONS, Event, State
from gristmill.store.connection import Connection, ReplyError
from gristmill.transitions import DUTIES, EARLY, NEWER, SCRIPT_OF, Scripts
from gristmill.transitions.loader import (
    ScriptError,
    all_scripts,
    build,
    include_names,
    script_names,
    spell_keys,
    state_table,
)
from support.driver import Driver
from support.server import RedisServer

FOLDER = Path(transitions.__file__).parent
HEADER = "-- try: a sentence.\n-- KEYS: prefix request\n-- ARGV: entry body\n-- RETURNS: done\n"
INCLUDE = re.compile(r"^-- @include (\w+)$", re.MULTILINE)


def include_text(name: str) -> str:
    return (FOLDER / "include" / f"{name}.lua").read_text(encoding="utf-8")


def script_text(name: str) -> str:
    return (FOLDER / f"{name}.lua").read_text(encoding="utf-8")


# --- every file of ours keeps the contract ------------------------------------------------------------------


@pytest.mark.parametrize("name", script_names())
def test_a_script_says_what_it_does_and_what_it_answers(name: str) -> None:
    script = all_scripts()[name]

    assert script.sentence.endswith((".", ":", ",")) or len(script.sentence) > 20
    assert script.keys[0] == "prefix"
    assert script.returns


@pytest.mark.parametrize("name", script_names())
def test_a_script_answers_the_words_of_its_header_and_no_others(name: str) -> None:
    script = all_scripts()[name]
    included = "\n".join(include_text(include) for include in includes_of(script_text(name)))
    words = set(re.findall(r"\breturn '(\w+)'", script_text(name)))
    if "return word end" in script_text(name):
        words |= set(re.findall(r"return nil, '(\w+)'", included))
    if "refuse_entry" in script_text(name):
        words |= {"duplicate", "malformed"}

    assert words == set(script.returns)


@pytest.mark.parametrize("name", include_names())
def test_an_include_begins_with_its_name_and_a_sentence(name: str) -> None:
    assert include_text(name).startswith(f"-- {name}: ")


def includes_of(text: str, seen: frozenset[str] = frozenset()) -> list[str]:
    """The includes of a text, each once, in the order in which the loader puts them."""
    found: list[str] = []
    for name in INCLUDE.findall(text):
        if name == "states" or name in seen or name in found:
            continue
        for inner in [*includes_of(include_text(name), frozenset({*seen, *found, name})), name]:
            if inner not in found:
                found.append(inner)
    return found


@pytest.mark.parametrize("name", include_names())
def test_an_include_names_what_it_uses(name: str) -> None:
    defined = {function: include for include in include_names() for function in functions_of(include_text(include))}
    within = {name, *includes_of(include_text(name))}
    used = {function for function in defined if re.search(rf"\b{function}\(", code_of(include_text(name)))}

    assert {function: defined[function] for function in used if defined[function] not in within} == {}


@pytest.mark.parametrize("name", include_names())
def test_every_include_is_used(name: str) -> None:
    texts = [script_text(script) for script in script_names()] + [include_text(include) for include in include_names()]

    assert any(name in INCLUDE.findall(text) for text in texts)


@pytest.mark.parametrize("name", script_names())
def test_the_line_numbers_of_a_script_are_those_of_its_file(name: str) -> None:
    assert all_scripts()[name].source.count("\n") == len(script_text(name).splitlines())


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.lua")), ids=lambda path: path.name)
def test_no_script_spells_a_key(path: Path) -> None:
    assert not re.search(r"prefix \.\.|'gm:|KEYS\[", code_of(path.read_text(encoding="utf-8")))


def functions_of(text: str) -> list[str]:
    return re.findall(r"^local function (\w+)", text, re.MULTILINE)


def code_of(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))


# --- scripts, requests and the state table belong together --------------------------------------------------


def test_every_kind_of_request_has_a_script() -> None:
    assert set(SCRIPT_OF) == set(Request)


def test_every_script_is_asked_for_by_a_request_or_is_a_duty() -> None:
    assert set(script_names()) == set(SCRIPT_OF.values()) | set(DUTIES)


@pytest.mark.parametrize("name", script_names())
def test_every_script_has_its_file_of_tests(name: str) -> None:
    assert (Path(__file__).parent / f"test_{name}.py").exists()


def test_every_script_of_a_request_takes_the_same_arguments() -> None:
    for name in SCRIPT_OF.values():
        script = all_scripts()[name]
        assert (script.keys, script.arguments) == (("prefix", "request"), ("entry", "body")), name


def test_words_that_ask_to_be_called_again_are_words_of_scripts() -> None:
    words = {word.encode() for script in all_scripts().values() for word in script.returns}

    assert {EARLY, NEWER} <= words


def test_every_event_of_the_state_table_is_raised_by_some_script() -> None:
    code = "\n".join(code_of(path.read_text(encoding="utf-8")) for path in FOLDER.rglob("*.lua"))

    assert [event.value for _, event in TRANSITIONS if f"'{event.value}'" not in code] == []


def test_no_script_raises_an_event_that_the_table_does_not_know() -> None:
    events = {event.value for _, event in TRANSITIONS}
    code = "\n".join(code_of(path.read_text(encoding="utf-8")) for path in FOLDER.rglob("*.lua"))
    raised = set(re.findall(r"transition\([^()]*(?:\([^()]*\))?[^()]*, '(\w+)'\)", code))

    assert raised <= events


def test_the_lua_table_is_the_table_of_states_py(server: RedisServer) -> None:
    states, events = [*State, None], [*Event, None]
    asked = [item.value if item else "" for state in states for event in events for item in (state, event)]
    source = state_table() + (
        " local answers = {} for at = 1, #ARGV, 2 do answers[#answers + 1] = next_state(ARGV[at], ARGV[at + 1]) or ''"
        " answers[#answers + 1] = tostring(is_terminal(ARGV[at])) end return answers"
    )
    answers = server.command("EVAL", source, "0", *asked)
    expected = []
    for state in states:
        for event in events:
            to = TRANSITIONS.get((state, event)) if state and event else None
            expected += [to.value.encode() if to else b"", b"true" if state in TERMINAL else b"false"]

    assert answers == expected


def test_the_lua_keys_are_the_keys_of_keys_py(server: RedisServer) -> None:
    kinds = key_kinds()
    source = "local prefix = KEYS[1] return {"
    source += ",".join(
        f"key_{kind.name}({','.join(repr('<' + placeholder + '>') for placeholder in kind.placeholders)})"
        for kind in kinds
    )

    assert server.command("EVAL", spell_keys(source + "}"), "1", "p:") == [
        f"p:{kind.pattern}".encode() for kind in kinds
    ]


# --- the server takes them ----------------------------------------------------------------------------------


def test_the_server_knows_each_script_by_the_name_we_computed(driver: Driver) -> None:
    driver.scripts.load(driver.connection)
    known = driver.connection.request("SCRIPT", "EXISTS", *(script.sha for script in all_scripts().values()))

    assert known == [1] * len(script_names())


def test_scripts_come_back_after_they_were_flushed(driver: Driver) -> None:
    client = driver.client()
    driver.database.run("SCRIPT", "FLUSH")

    assert client.submit(1) == "applied"
    assert driver.state(client.task(1)) == "inactive"


def test_a_script_that_the_server_refuses_is_named(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = build("try", HEADER + "this is not Lua\n")
    scripts = Scripts(Keys())
    monkeypatch.setattr(transitions, "all_scripts", lambda: {"try": broken})
    connection = Connection(own_server.address)
    connection.connect()

    with pytest.raises(ReplyError, match="script try"):
        scripts.load(connection)
    connection.close()


def test_a_kind_that_nobody_knows_has_no_command(driver: Driver) -> None:
    assert driver.scripts.request(b"stream", b"nonsense", b"1-1", b"{}") is None


# --- what the loader refuses --------------------------------------------------------------------------------


def test_keys_and_arguments_become_names_in_place() -> None:
    source = build("try", HEADER + "return 'done'\n").source.splitlines()

    assert source[1].startswith("local prefix, request = KEYS[1], KEYS[2]")
    assert source[2] == "local entry, body = ARGV[1], ARGV[2]"
    assert source[4] == "return 'done'"


def test_an_include_is_taken_once_and_stays_on_its_line() -> None:
    source = build("try", HEADER + "-- @include clock\n-- @include clock\nreturn 'done'\n").source.splitlines()

    assert source[4].count("local function now_ms()") == 1
    assert source[5] == ""
    assert source[6] == "return 'done'"


def test_keys_are_spelled_out_where_they_are_used() -> None:
    source = build("try", HEADER + "return key_object_chunk(f(1, 2), key_task('a'))\n").source

    assert "return (KEYS[1] .. 'object:' .. f(1, 2) .. ':' .. (KEYS[1] .. 'task:' .. 'a'))" in source


REFUSED: list[tuple[str, Callable[[], str], str]] = [
    ("another name", lambda: HEADER.replace("-- try:", "-- other:"), "to begin with '-- try: '"),
    ("no text", lambda: "", "to begin with '-- try: '"),
    ("no keys", lambda: HEADER.replace("-- KEYS: prefix request\n", ""), "KEYS"),
    ("no answers", lambda: HEADER.replace("-- RETURNS: done\n", ""), "RETURNS"),
    ("no prefix", lambda: HEADER.replace("prefix request", "request"), "the first key .* to be the prefix"),
    ("an unknown include", lambda: HEADER + "-- @include nowhere\n", "got 'nowhere'"),
    ("an unknown key", lambda: HEADER + "return key_nowhere()\n", "got key_nowhere"),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_file_that_breaks_the_contract_is_refused(text: Callable[[], str], message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        build("try", text())


def test_a_circle_of_includes_is_refused_with_its_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"include/a.lua": "-- @include b", "include/b.lua": "-- @include a"}
    monkeypatch.setattr(transitions.loader, "_read", texts.__getitem__)
    monkeypatch.setattr(transitions.loader, "include_names", lambda: ["a", "b"])

    with pytest.raises(ScriptError, match="try > a > b > a"):
        build("try", HEADER + "-- @include a\n")


def test_a_comment_behind_the_code_of_an_include_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions.loader, "_read", {"include/a.lua": "local x = 1 -- why\nlocal y = 2"}.__getitem__)
    monkeypatch.setattr(transitions.loader, "include_names", lambda: ["a"])

    with pytest.raises(ScriptError, match="expected comments of includes on lines of their own; got 'local x = 1"):
        build("try", HEADER + "-- @include a\nreturn 'done'\n")
