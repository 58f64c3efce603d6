"""What the demo measures in a file: pure functions of source text, without I/O.

Counting rules
--------------
A *function* is a `def` or `async def`, at any depth. What a nested function does counts for the nested function
alone; lambdas, comprehensions and class bodies count for the function they stand in, and so do the decorators,
defaults and annotations of a nested function, because the outer one evaluates them.

*lines*: from the line of `def` to the last line of the body, both included, blank ones and comments too.

*branches*: the places where the way through the function can part, one for each
    - `if`, `elif` and conditional expression (`a if b else c`),
    - `for`, `async for` and `while`,
    - `except` and `except*` clause,
    - `case` of a `match`, except one that always matches (`case _:` or `case name:` without a guard),
    - `if` guard of a `case`,
    - `for` and `if` inside a comprehension or generator expression,
    - `assert`.
  `else`, `finally`, `with`, `try`, `break`, `return` and `lambda` part nothing by themselves.

*nesting*: the most compound statements (`if`, `for`, `while`, `with`, `try`, `match`) that enclose one another.
  An `elif` stands beside its `if`, not inside it. A function without any has nesting 0.

*complexity*: the cyclomatic complexity of T. J. McCabe, "A Complexity Measure", IEEE Transactions on Software
  Engineering SE-2 (4), 1976, pages 308-320: v(G) = e - n + 2p over the control graph of the function (e edges,
  n nodes, p = 1 component). As McCabe shows there, for structured code it equals the number of decisions + 1, and a
  compound condition counts once for each of its parts. So: 1 + branches + (parts - 1) of each `and`, `or` and
  `|` pattern.
"""

from __future__ import annotations

import ast
import heapq
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MOST_COMPLEX_KEPT = 10
"""How many functions a package's report names."""


class Function(NamedTuple):
    """One function and its measures."""

    name: str
    """Qualified as Python does it: `Class.method`, `outer.<locals>.inner`."""
    line: int
    lines: int
    branches: int
    nesting: int
    complexity: int


class FileReport(NamedTuple):
    """One file. `problem` is empty, or one line that says why it has no functions."""

    path: str
    lines: int
    functions: tuple[Function, ...]
    problem: str = ""


class RankedFunction(NamedTuple):
    """A function with the file that it stands in."""

    path: str
    function: Function


class PackageReport(NamedTuple):
    """What the files of one package come to."""

    package: str
    files: int
    problems: int
    lines: int
    functions: int
    branches: int
    complexity: int
    """Sum over all functions."""
    deepest: int
    """Nesting of the most deeply nested function."""
    most_complex: tuple[RankedFunction, ...]
    """At most `MOST_COMPLEX_KEPT`, the most complex first."""


_NESTING_STATEMENTS: tuple[type[ast.AST], ...] = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    getattr(ast, "TryStar", ast.Try),  # Python 3.11
    ast.Match,
)
_ONE_BRANCH: tuple[type[ast.AST], ...] = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
)


class _Tally:
    """The function that is being measured."""

    __slots__ = ("branches", "conditions", "name", "nesting", "node")

    def __init__(self, name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.name = name
        self.node = node
        self.branches = 0
        self.conditions = 0
        self.nesting = 0

    def function(self) -> Function:
        first, last = self.node.lineno, self.node.end_lineno or self.node.lineno
        return Function(
            self.name, first, last - first + 1, self.branches, self.nesting, 1 + self.branches + self.conditions
        )


def measure_source(path: str, source: bytes) -> FileReport:
    """Measure every function of a file; one that does not parse or decode gets a `problem`, never an exception."""
    lines = len(source.splitlines())
    try:
        with warnings.catch_warnings():
            # Old code warns about its escape sequences while it is parsed; that is not our reader's concern.
            warnings.simplefilter("ignore")
            tree = ast.parse(source, filename=path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return FileReport(path, lines, (), describe(error))
    return FileReport(path, lines, tuple(measure_tree(tree)))


def describe(error: BaseException) -> str:
    """One line that says what is wrong with a file."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if line else ""
    return " ".join(f"{type(error).__name__}: {text}{where}".split())


def measure_tree(tree: ast.AST) -> list[Function]:
    """The functions of a parsed file, in the order of their lines.

    Walks with a stack of its own: generated code nests deeper than Python's recursion limit.
    """
    tallies: list[_Tally] = []
    stack: list[tuple[ast.AST, _Tally | None, int, str]] = [(tree, None, 0, "")]
    while stack:
        node, owner, depth, prefix = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = _Tally(prefix + node.name, node)
            tallies.append(inner)
            stack.extend((child, owner, depth, prefix) for child in _evaluated_outside(node))
            stack.extend((child, inner, 0, f"{inner.name}.<locals>.") for child in node.body)
            continue
        if isinstance(node, ast.ClassDef):
            stack.extend((child, owner, depth, prefix) for child in _around_class(node))
            stack.extend((child, owner, depth, f"{prefix}{node.name}.") for child in node.body)
            continue
        if owner is not None:
            _count(node, owner)
            if isinstance(node, _NESTING_STATEMENTS):
                depth += 1
                owner.nesting = max(owner.nesting, depth)
        beside = _elif(node)
        stack.extend(
            (child, owner, depth - 1 if child is beside else depth, prefix) for child in ast.iter_child_nodes(node)
        )
    tallies.sort(key=lambda tally: (tally.node.lineno, tally.node.col_offset))
    return [tally.function() for tally in tallies]


def _evaluated_outside(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """What the enclosing code evaluates when it meets the definition."""
    yield from node.decorator_list
    yield node.args
    if node.returns is not None:
        yield node.returns


def _around_class(node: ast.ClassDef) -> Iterator[ast.AST]:
    yield from node.decorator_list
    yield from node.bases
    yield from node.keywords


def _elif(node: ast.AST) -> ast.AST | None:
    """The `elif` of an `if`. The tree shows it as an `if` alone in `else`; only its column tells them apart."""
    if isinstance(node, ast.If) and len(node.orelse) == 1:
        only = node.orelse[0]
        if isinstance(only, ast.If) and only.col_offset == node.col_offset:
            return only
    return None


def _count(node: ast.AST, owner: _Tally) -> None:
    if isinstance(node, _ONE_BRANCH):
        owner.branches += 1
    elif isinstance(node, ast.comprehension):
        owner.branches += 1 + len(node.ifs)
    elif isinstance(node, ast.match_case):
        if node.guard is not None:
            owner.branches += 1
        if not _always_matches(node.pattern):
            owner.branches += 1
    elif isinstance(node, ast.BoolOp):
        owner.conditions += len(node.values) - 1
    elif isinstance(node, ast.MatchOr):
        owner.conditions += len(node.patterns) - 1


def _always_matches(pattern: ast.pattern) -> bool:
    while isinstance(pattern, ast.MatchAs):
        if pattern.pattern is None:
            return True
        pattern = pattern.pattern
    return False


def aggregate_package(package: str, files: Iterable[FileReport]) -> PackageReport:
    """Sum the files of one package."""
    reports = list(files)
    functions = [RankedFunction(report.path, function) for report in reports for function in report.functions]
    return PackageReport(
        package=package,
        files=len(reports),
        problems=sum(1 for report in reports if report.problem),
        lines=sum(report.lines for report in reports),
        functions=len(functions),
        branches=sum(ranked.function.branches for ranked in functions),
        complexity=sum(ranked.function.complexity for ranked in functions),
        deepest=max((ranked.function.nesting for ranked in functions), default=0),
        most_complex=tuple(most_complex(functions, MOST_COMPLEX_KEPT)),
    )


def most_complex(functions: Iterable[RankedFunction], count: int) -> list[RankedFunction]:
    """The `count` most complex functions; of equals the one whose file and line come first."""
    return heapq.nsmallest(
        count, functions, key=lambda ranked: (-ranked.function.complexity, ranked.path, ranked.function.line)
    )
