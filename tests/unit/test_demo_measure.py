"""The demo's measures of functions with known figures."""

from __future__ import annotations

import textwrap

import pytest

from gristmill.demo.measure import (
    MOST_COMPLEX_KEPT,
    FileReport,
    Function,
    RankedFunction,
    aggregate_package,
    measure_source,
)


def functions(source: str) -> dict[str, Function]:
    report = measure_source("module.py", textwrap.dedent(source).encode())
    assert report.problem == ""
    return {function.name: function for function in report.functions}


def body(*lines: str) -> Function:
    """Measure `def f(a, b, c)` with these lines as its body."""
    source = "def f(a, b, c):\n" + "".join(f"    {line}\n" for line in lines)
    return functions(source)["f"]


@pytest.mark.parametrize(
    ("lines", "branches", "complexity"),
    [
        (["return a"], 0, 1),
        (["if a: return b"], 1, 2),
        (["if a: pass", "else: pass"], 1, 2),
        (["if a: pass", "elif b: pass", "elif c: pass", "else: pass"], 3, 4),
        (["return a if b else c"], 1, 2),
        (["for x in a: pass"], 1, 2),
        (["for x in a: pass", "else: pass"], 1, 2),
        (["while a: break"], 1, 2),
        (["with a: pass"], 0, 1),
        (["try: pass", "finally: pass"], 0, 1),
        (["try: pass", "except ValueError: pass", "except OSError: pass", "else: pass"], 2, 3),
        (["assert a, b"], 1, 2),
        (["return a and b and c"], 0, 3),
        (["return a and b or c"], 0, 3),
        (["if a and b: pass"], 1, 3),
        (["return [x for x in a if x if b for y in x]"], 4, 5),
        (["return {x: y async for x, y in a}"], 1, 2),
        (["return lambda x: x if x else a"], 1, 2),
        (["match a:", "    case 1: pass", "    case 2 | 3: pass", "    case _: pass"], 2, 4),
        (["match a:", "    case int() if b: pass", "    case other: pass"], 2, 3),
        (["match a:", "    case x if b: pass"], 1, 2),
        (["match a:", "    case (_ as x): pass"], 0, 1),
    ],
)
def test_branches_and_complexity_follow_the_documented_rules(lines: list[str], branches: int, complexity: int) -> None:
    measured = body(*lines)

    assert (measured.branches, measured.complexity) == (branches, complexity)


@pytest.mark.parametrize(
    ("lines", "nesting"),
    [
        (["return [x for x in a if x]"], 0),
        (["if a: pass"], 1),
        (["if a: pass", "elif b: pass", "elif c: pass"], 1),
        (["if a: pass", "else:", "    if b: pass"], 2),
        (["if a: pass", "elif b:", "    for x in c: pass"], 2),
        (["for x in a:", "    while b:", "        with c:", "            try: pass", "            finally: pass"], 4),
        (["try: pass", "except ValueError:", "    if a: pass"], 2),
        (["match a:", "    case 1:", "        if b: pass"], 2),
    ],
)
def test_nesting_counts_enclosing_statements_and_elif_stands_beside_its_if(lines: list[str], nesting: int) -> None:
    assert body(*lines).nesting == nesting


def test_a_nested_function_counts_for_itself_alone() -> None:
    found = functions("""
        def outer(a):
            if a:
                def inner(b, c=1 if a else 2):
                    for x in b:
                        while x: pass
                return inner
        """)

    assert found["outer"] == Function("outer", 2, 6, branches=2, nesting=1, complexity=3)
    assert found["outer.<locals>.inner"] == Function("outer.<locals>.inner", 4, 3, branches=2, nesting=2, complexity=3)


def test_methods_are_named_as_python_names_them() -> None:
    found = functions("""
        class A:
            class B:
                async def m(self):
                    def g(): pass
            if True:
                def n(self): pass
        """)

    assert list(found) == ["A.B.m", "A.B.m.<locals>.g", "A.n"]


def test_statements_around_a_method_do_not_nest_it() -> None:
    assert functions("if a:\n  class A:\n    def m(self):\n      if a: pass\n")["A.m"].nesting == 1


def test_a_function_begins_with_def_not_with_its_decorator() -> None:
    assert functions("@a\n@b\ndef f():\n\n    # remark\n    return 1\n")["f"][1:3] == (3, 4)


def test_two_functions_of_one_name_are_two() -> None:
    report = measure_source("m.py", b"if a:\n  def f(): pass\nelse:\n  def f(): pass\n")

    assert [(function.name, function.line) for function in report.functions] == [("f", 2), ("f", 4)]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (b"print 'x'\n", "SyntaxError: Missing parentheses"),
        (b"x = '\xff'\n", "SyntaxError: "),
        (b"# coding: nonsense\n", "SyntaxError: unknown encoding: nonsense"),
        (b"x = 1\x00\n", "null bytes"),
        (b"(" * 10_000, "Error: "),
    ],
)
def test_what_does_not_parse_or_decode_is_a_problem_in_one_line(source: bytes, problem: str) -> None:
    report = measure_source("broken.py", source)

    assert report.functions == ()
    assert problem in report.problem
    assert "\n" not in report.problem


def test_the_encoding_that_a_file_declares_is_heeded() -> None:
    assert measure_source("m.py", "# coding: latin-1\ndef f(): return '\xe9'\n".encode("latin-1")).problem == ""


def test_a_deep_expression_is_walked_without_recursion() -> None:
    report = measure_source("deep.py", b"def f():\n  return " + b" + ".join([b"1"] * 900) + b"\n")

    assert report.functions == (Function("f", 1, 2, 0, 0, 1),)


def test_an_empty_file_has_no_functions_and_no_problem() -> None:
    assert measure_source("m.py", b"") == FileReport("m.py", 0, ())


def test_a_package_is_the_sum_of_its_files() -> None:
    one = measure_source("one.py", b"def f(a):\n  if a: pass\n\ndef g(): pass\n")
    two = measure_source("two.py", b"def h(a, b):\n  return a and b\n")
    broken = measure_source("broken.py", b"def\n")

    package = aggregate_package("p", [one, two, broken])

    assert package[:8] == ("p", 3, 1, 7, 3, 1, 5, 1)
    assert [(ranked.path, ranked.function.name) for ranked in package.most_complex] == [
        ("one.py", "f"),
        ("two.py", "h"),
        ("one.py", "g"),
    ]


def test_a_package_names_only_its_most_complex_functions() -> None:
    files = [FileReport(f"{number:02}.py", 1, (Function("f", 1, 1, number, 0, number),)) for number in range(1, 41)]

    named = aggregate_package("p", files).most_complex

    assert named[0] == RankedFunction("40.py", Function("f", 1, 1, 40, 0, 40))
    assert len(named) == MOST_COMPLEX_KEPT


def test_a_package_without_files_is_empty() -> None:
    assert aggregate_package("p", []).functions == 0
