"""From the .lua files to the scripts that Redis runs.

A script begins with a block that is its contract, and the loader uses it:

    -- submit: a sentence
    -- KEYS: prefix request        becomes  local prefix, request = KEYS[1], KEYS[2]
    -- ARGV: entry body            becomes  local entry, body = ARGV[1], ARGV[2]
    -- RETURNS: applied duplicate  the words it may answer
    -- @include accept             becomes  the text of include/accept.lua, in one line

so that bodies use names and the comment cannot lie. Each include is taken once, in the order of need, and stays on the
line of its `@include`: the line number in an error of Redis is the line number in the file.
`@include states` is generated from `protocol.states`; `key_task(id)` is spelled out as `protocol.keys` says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from gristmill.protocol.keys import key_kinds
from gristmill.protocol.states import TERMINAL, TRANSITIONS

_HEADER = re.compile(r"-- (KEYS|ARGV|RETURNS):(.*)")
_INCLUDE = re.compile(r"-- @include (\w+)")
_KEY_CALL = re.compile(r"\bkey_(\w+)\(")


class ScriptError(Exception):
    """A Lua file breaks the contract of its header."""


class Script(NamedTuple):
    """One script, ready to be sent."""

    name: str
    sentence: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    returns: tuple[str, ...]
    source: str
    sha: str


def _read(path: str) -> str:
    return files("gristmill.transitions").joinpath(path).read_text(encoding="utf-8")


def script_names() -> list[str]:
    """The names of all scripts, sorted."""
    return sorted(item.name[:-4] for item in files("gristmill.transitions").iterdir() if item.name.endswith(".lua"))


def include_names() -> list[str]:
    """The names of all includes, sorted."""
    folder = files("gristmill.transitions").joinpath("include")
    return sorted(item.name[:-4] for item in folder.iterdir() if item.name.endswith(".lua"))


@lru_cache(maxsize=1)
def state_table() -> str:
    """Lua for the transition table: next_state(state, event) and is_terminal(state).

    Comparisons, not tables: a script would build its tables anew with each call, to look into them once or twice.
    """
    rows: dict[str, list[str]] = {}
    for (state, event), to in TRANSITIONS.items():
        rows.setdefault(state.value, []).append(f"if event == '{event.value}' then return '{to.value}' end")
    states = " ".join(f"if state == '{state}' then {' '.join(events)} return end" for state, events in rows.items())
    terminal = " or ".join(f"state == '{state}'" for state in sorted(item.value for item in TERMINAL))
    return (
        f"local function next_state(state, event) {states} end local function is_terminal(state) return {terminal} end"
    )


@lru_cache(maxsize=1)
def _key_parts() -> dict[str, list[str]]:
    """The fixed parts of each kind of key, between which the ids go."""
    return {kind.name: re.split(r"<\w+>", kind.pattern) for kind in key_kinds()}


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """The arguments of a call whose parenthesis opens just before `start`, and where it closes."""
    depth, begin = 0, start
    arguments: list[str] = []
    for at in range(start, len(text)):
        if text[at] == ")" and depth == 0:
            last = text[begin:at].strip()
            return [*arguments, last] if last else arguments, at
        if text[at] == "," and depth == 0:
            arguments.append(text[begin:at].strip())
            begin = at + 1
        depth += (text[at] in "([{") - (text[at] in ")]}")
    raise ScriptError(f"expected the call of a key to end in its line; got {text[start - 20 :]!r}")


def spell_keys(text: str) -> str:
    """Lua in which each `key_task(id)` is spelled out, as `(KEYS[1] .. 'task:' .. id)`.

    Not functions: a script makes its functions anew with each call, and two dozen more cost a lone task a tenth. Nor
    the name `prefix`: every function would hold it, and Lua searches for what a function holds (another fiftieth).
    """
    at = 0
    while call := _KEY_CALL.search(text, at):
        at = call.start()  # its arguments may be keys, too
        parts = _key_parts().get(call[1])
        arguments, end = _arguments(text, call.end())
        if parts is None or len(arguments) != len(parts) - 1:
            raise ScriptError(f"expected a key of protocol.keys with its ids; got {text[call.start() : end + 1]}")
        pieces = [f"'{parts[0]}'"]
        for argument, part in zip(arguments, parts[1:], strict=True):
            pieces += [argument] + ([f"'{part}'"] if part else [])
        text = f"{text[: call.start()]}(KEYS[1] .. {' .. '.join(pieces)}){text[end + 1 :]}"
    return text


class Includes:
    """The includes, each read and spelled out once, however many scripts take it."""

    def __init__(self) -> None:
        self._names = frozenset(include_names())
        self._lines: dict[str, list[tuple[str, str]]] = {}

    def lines(self, name: str) -> list[tuple[str, str]]:
        """What an include consists of: ("", Lua with its keys spelled out) or (include, "")."""
        if name not in self._lines:
            self._lines[name] = list(_include_lines(_read(f"include/{name}.lua")))
        return self._lines[name]

    def resolve(self, name: str, including: tuple[str, ...], done: set[str]) -> str:
        """The text of an include in one line, its own includes in their places, without those that are `done`."""
        if name in including:
            raise ScriptError(f"expected includes without a circle; got {' > '.join((*including, name))}")
        if name in done:
            return ""
        done.add(name)
        if name == "states":
            return state_table()
        if name not in self._names:
            raise ScriptError(f"expected an include of transitions/include; got {name!r} in {including[-1]!r}")
        parts = [
            self.resolve(include, (*including, name), done) if include else line for include, line in self.lines(name)
        ]
        return " ".join(part for part in parts if part)


def _include_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in map(str.strip, text.splitlines()):
        include = _INCLUDE.match(line)
        if include:
            yield include[1], ""
        elif line and not line.startswith("--"):
            if "--" in line:
                raise ScriptError(f"expected comments of includes on lines of their own; got {line!r}")
            yield "", spell_keys(line)


def build(name: str, text: str, includes: Includes | None = None) -> Script:
    """Build a script from the text of its file; raises ScriptError when its header breaks the contract."""
    includes = includes or Includes()
    header: dict[str, tuple[str, ...]] = {}
    done: set[str] = set()
    lines = text.splitlines()
    if not lines or not lines[0].startswith(f"-- {name}: "):
        raise ScriptError(f"expected {name}.lua to begin with '-- {name}: ' and a sentence")
    keys_line = None
    for number, line in enumerate(lines):
        found = _HEADER.match(line)
        include = _INCLUDE.match(line)
        if found:
            names = tuple(found[2].split())
            header[found[1]] = names
            if found[1] == "KEYS":
                keys_line = number
            if found[1] != "RETURNS" and names:
                values = ", ".join(f"{found[1]}[{i + 1}]" for i in range(len(names)))
                lines[number] = f"local {', '.join(names)} = {values}"
        elif include:
            lines[number] = includes.resolve(include[1], (name,), done)
        else:
            lines[number] = spell_keys(line)
    missing = {"KEYS", "ARGV", "RETURNS"} - header.keys()
    if missing or keys_line is None:
        raise ScriptError(f"expected {name}.lua to name {', '.join(sorted(missing))} in its header")
    if not header["KEYS"] or header["KEYS"][0] != "prefix":
        raise ScriptError(f"expected the first key of {name}.lua to be the prefix")
    source = "\n".join(lines) + "\n"
    return Script(
        name=name,
        sentence=" ".join(line.lstrip("- ") for line in lines[:keys_line]).partition(": ")[2],
        keys=header["KEYS"],
        arguments=header["ARGV"],
        returns=header["RETURNS"],
        source=source,
        sha=hashlib.sha1(source.encode()).hexdigest(),
    )


@lru_cache(maxsize=1)
def all_scripts() -> dict[str, Script]:
    """Every script by name."""
    includes = Includes()
    return {name: build(name, _read(f"{name}.lua"), includes) for name in script_names()}
