"""What counts as a guard, and how it is taken out of a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gristmill.transitions.loader as loader
from gristmill.transitions.loader import build, include_names, script_names
from mutation.exempt import EXEMPT
from mutation.guards import mutants

TESTS = Path(__file__).resolve().parent.parent
LUA = Path(loader.__file__).parent


def taken_out(line: str, *following: str) -> list[str]:
    """The line without each of its guards."""
    return [mutant.source.splitlines()[0] for mutant in mutants("x.lua", "\n".join([line, *following]))]


def test_an_exit_is_never_taken_and_its_condition_still_evaluated() -> None:
    assert taken_out("if not accept() then return 'duplicate' end") == [
        "if ((not accept()) and false) then return 'duplicate' end"
    ]


def test_what_stands_behind_a_condition_is_always_done() -> None:
    assert taken_out("if worker then touch(worker) end") == ["if ((worker) or true) then touch(worker) end"]


def test_a_block_that_ends_in_a_return_is_an_exit() -> None:
    assert taken_out("if gone then", "  count(1)", "  return 'gone'", "end") == ["if ((gone) and false) then"]
    assert taken_out("if gone then", "  return 'gone'", "end", "return 'x'")[0] == "if ((gone) and false) then"
    assert taken_out("if gone then", "  count(1)", "end", "return 'x'")[0] == "if ((gone) or true) then"


def test_each_operand_loses_its_say_in_turn() -> None:
    assert taken_out("if a and (b or c == 1) then stop() end") == [
        "if ((a) or true) and (b or c == 1) then stop() end",
        "if a and (((b or c == 1)) or true) then stop() end",
        "if a and (((b) and false) or c == 1) then stop() end",
        "if a and (b or ((c == 1) and false)) then stop() end",
    ]


def test_what_stands_before_a_value_is_a_guard_and_a_choice_is_none() -> None:
    assert taken_out("local known = mine and cancel(id)") == ["local known = ((mine) or true) and cancel(id)"]
    assert taken_out("return is_id(value) and #value < 9") == [
        "return ((is_id(value)) or true) and #value < 9",
        "return is_id(value) and ((#value < 9) or true)",
    ]
    assert taken_out("local lane = even and one or another") == []
    assert taken_out("-- if a comment then") == []
    assert taken_out("local text = 'if this or that then'") == []


@pytest.mark.parametrize("name", script_names())
def test_every_script_still_builds_without_any_of_its_guards(name: str) -> None:
    found = mutants(f"{name}.lua", (LUA / f"{name}.lua").read_text())
    sources = {build(name, mutant.source).sha for mutant in found}

    assert len(sources) == len(found), "each mutant is another script"
    assert build(name, (LUA / f"{name}.lua").read_text()).sha not in sources


def test_an_exemption_names_a_guard_that_is_there() -> None:
    paths = [f"{name}.lua" for name in script_names()] + [f"include/{name}.lua" for name in include_names()]
    there = {
        (mutant.path, mutant.guard, mutant.answer)
        for path in paths
        for mutant in mutants(path, (LUA / path).read_text())
    }

    assert set(EXEMPT) - there == set()
    assert all(len(reason) > 20 for reason in EXEMPT.values())


def test_the_program_says_which_test_notices_a_missing_guard() -> None:
    command = [sys.executable, "-m", "mutation", "--jobs", "1", "set_aside"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=280)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "not accept()" in done.stdout
    assert "noticed by tests/transitions/test_set_aside.py" in done.stdout
    assert "0 survive" in done.stdout
