"""What a guard is, by rule, and the text of a Lua file without it.

A guard is a condition that decides whether something is done:

- the condition of an `if`, `elseif` or `while`: as a whole, and each operand of its `and` and `or`, in parentheses too;
- in a `return` or an assignment, each operand of `and` that stands before a value (`known and cancel(id)`), and each
  comparison of a predicate (`return is_id(value) and #value <= 200`). Choices (`a and b or c`) are no guards.

A guard is taken out by ignoring its answer, never by leaving out its evaluation: `if not accept() then return end`
still acknowledges the entry and then goes on. So what fails is the missing guard, not a missing effect. A condition
before a `return`, `break` or `error` is answered with false, every other one with true; an operand with what leaves the
decision to the others. A whole chain is not taken out where one of its operands without a say shows the same: whoever
notices that `a` of `if a or b then return end` is missing notices that both are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_CHAINS = (("or", "false"), ("and", "true"))
"""The words that join conditions, loosest first, and the answer by which an operand has no say."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_EXIT = re.compile(r"\s*(return|break|error)\b")
_COMPARES = re.compile(r"==|~=|<|>|\bnot\b|^\s*is_\w+\(")
_ASSIGNMENT = re.compile(r"(?:local )?[\w.\[\]]+(?:, [\w.\[\]]+)* = ")


class Mutant(NamedTuple):
    """One Lua file without one guard."""

    path: str
    """Of the file, relative to `transitions/`."""
    line: int
    guard: str
    """What is ignored, as it stands in the file."""
    answer: str
    """What it is taken to answer: `true` or `false`."""
    source: str
    """The whole file without the guard."""

    @property
    def name(self) -> str:
        """File, line and guard, as the reports show it."""
        return f"{self.path}:{self.line}: {self.guard}  (taken as {self.answer})"


class _Span(NamedTuple):
    start: int
    end: int


def _tokens(line: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, text) of words and parentheses, strings passed over."""
    at = 0
    while at < len(line):
        character = line[at]
        if character in "'\"":
            end = at + 1
            while end < len(line) and line[end] != character:
                end += 2 if line[end] == "\\" else 1
            at = end + 1
        elif match := _WORD.match(line, at):
            yield at, match.end(), match[0]
            at = match.end()
        else:
            if character in "()[]{}":
                yield at, at + 1, character
            at += 1


def _split(line: str, span: _Span, word: str) -> list[_Span]:
    """The operands of `word` (`and` or `or`) at the top level of a span."""
    operands, depth, begin = [], 0, span.start
    for start, end, text in _tokens(line[: span.end]):
        if start < span.start:
            continue
        depth += (text in "([{" and len(text) == 1) - (text in ")]}" and len(text) == 1)
        depth += text == "function"
        depth -= text == "end"
        if depth == 0 and text == word:
            operands.append(_trim(line, _Span(begin, start)))
            begin = end
    return [*operands, _trim(line, _Span(begin, span.end))]


def _trim(line: str, span: _Span) -> _Span:
    start, end = span
    while start < end and line[start] == " ":
        start += 1
    while end > start and line[end - 1] == " ":
        end -= 1
    return _Span(start, end)


def _inside(line: str, span: _Span) -> _Span | None:
    """The span between parentheses that enclose all of it."""
    if line[span.start] != "(":
        return None
    depth = 0
    for start, _, text in _tokens(line[: span.end]):
        if start < span.start:
            continue
        depth += (text == "(") - (text == ")")
        if depth == 0:
            return _trim(line, _Span(span.start + 1, start)) if start == span.end - 1 else None
    return None


def _chain(line: str, span: _Span) -> str:
    """The answer that takes an operand out of the chain of `or` or `and` that the span is; empty when it is none."""
    return next((answer for word, answer in _CHAINS if len(_split(line, span, word)) > 1), "")


def _operands(line: str, span: _Span, neutral: str | None = None) -> Iterator[tuple[_Span, str]]:
    """Each operand of the `and` and `or` within a condition, and the answer by which it has no say."""
    for word, answer in _CHAINS:
        parts = _split(line, span, word)
        if len(parts) > 1:
            for part in parts:
                yield from _operands(line, part, answer)
            return
    inside = _inside(line, span)
    if inside and _chain(line, inside):
        if neutral and neutral != _chain(line, inside):
            yield span, neutral
        yield from _operands(line, inside)
    elif neutral:
        yield span, neutral


def _conditions(line: str) -> Iterator[tuple[_Span, str]]:
    """The conditions of a line, each with what follows it."""
    begin: int | None = None
    for start, end, text in _tokens(line):
        if text in ("if", "elseif", "while"):
            begin = end
        elif text in ("then", "do") and begin is not None:
            yield _trim(line, _Span(begin, start)), line[end:]
            begin = None


def _values(line: str) -> Iterator[_Span]:
    """The operands of `and` in a `return` or an assignment that guard a value or are a comparison."""
    for _, end, text in _tokens(line):
        if text == "return":
            stop = next((s for s, _, word in _tokens(line) if s > end and word in ("end", "else")), len(line))
            yield from _guards_of_value(line, _trim(line, _Span(end, stop)), predicate=True)
            return
        if text == "function":
            return
    if match := _ASSIGNMENT.match(line.strip()):
        offset = len(line) - len(line.lstrip()) + match.end()
        yield from _guards_of_value(line, _trim(line, _Span(offset, len(line))), predicate=False)


def _guards_of_value(line: str, span: _Span, *, predicate: bool) -> Iterator[_Span]:
    if span.start >= span.end or len(_split(line, span, "or")) > 1:
        return
    parts = _split(line, span, "and")
    if len(parts) < 2:
        return
    yield from parts[:-1]
    if predicate and _COMPARES.search(line[parts[-1].start : parts[-1].end]):
        yield parts[-1]


def _leaves(lines: list[str], number: int, rest: str) -> bool:
    """Whether what stands behind a condition ends in a `return`, `break` or `error`: in its line, or in its block."""
    if rest.strip():
        return bool(_EXIT.match(rest))
    indent = len(lines[number]) - len(lines[number].lstrip())
    last = ""
    for line in lines[number + 1 :]:
        if len(line) - len(line.lstrip()) <= indent and line.strip():
            break
        last = line if len(line) - len(line.lstrip()) == indent + 2 else last
    return bool(_EXIT.match(last))


def _spans(lines: list[str], number: int) -> Iterator[tuple[_Span, str]]:
    """Every guard of a line with the answer that takes it out."""
    line = lines[number]
    conditions = list(_conditions(line))
    for span, rest in conditions:
        whole = "false" if _leaves(lines, number, rest) else "true"
        if whole != _chain(line, span):
            yield span, whole
        yield from _operands(line, span)
    for span in _values(line):
        if not any(condition.start <= span.start < condition.end for condition, _ in conditions):
            yield from _operands(line, span, "true")


def _without(line: str, span: _Span, answer: str) -> str:
    ignored = "or true" if answer == "true" else "and false"
    return f"{line[: span.start]}(({line[span.start : span.end]}) {ignored}){line[span.end :]}"


def mutants(path: str, text: str) -> list[Mutant]:
    """The file without each of its guards in turn."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        if line.strip().startswith("--"):
            continue
        seen = set()
        for span, answer in _spans(lines, number):
            if (span, answer) in seen:
                continue
            seen.add((span, answer))
            changed = [*lines[:number], _without(line, span, answer), *lines[number + 1 :]]
            found.append(Mutant(path, number + 1, line[span.start : span.end], answer, "\n".join(changed) + "\n"))
    return found
