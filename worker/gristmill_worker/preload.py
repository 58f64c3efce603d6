"""What a processor loads before its first task: `module`, or `module:function(arguments)`."""

from __future__ import annotations

import ast
import importlib
from typing import Any, NamedTuple

from gristmill.errors import SettingError


class Preload(NamedTuple):
    """What to import, and what to call in it."""

    module: str
    function: str = ""
    """Dotted name in the module; empty when it is only imported."""
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}  # noqa: RUF012 - never changed


def parse(text: str) -> Preload:
    """The parts of the setting; SettingError when it has another form."""
    module, colon, call = (part.strip() for part in text.partition(":"))
    wrong = SettingError(
        f"--preload: expected module or module:function(arguments), with plain values as arguments; got {text!r}; "
        "for example --preload 'package.module:warm_up(size=3)'"
    )
    if not all(part.isidentifier() for part in module.split(".")):
        raise wrong
    if not colon:
        return Preload(module)
    try:
        node: ast.expr = ast.parse(call, mode="eval").body
        arguments: tuple[Any, ...] = ()
        keywords: dict[str, Any] = {}
        if isinstance(node, ast.Call):
            arguments = tuple(ast.literal_eval(argument) for argument in node.args)
            keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
            if len(keywords) != len(node.keywords):
                raise wrong
            node = node.func
        function = ast.unparse(node)
    except (SyntaxError, ValueError):
        raise wrong from None
    if not all(part.isidentifier() for part in function.split(".")):
        raise wrong
    return Preload(module, function, arguments, keywords)


def load(text: str) -> None:
    """Import it, and call what is to be called; raises whatever that raises."""
    preload = parse(text)
    found: Any = importlib.import_module(preload.module)
    if preload.function:
        for part in preload.function.split("."):
            found = getattr(found, part)
        if not callable(found):
            raise SettingError(f"--preload: expected a function; got {preload.function} of {preload.module}: {found!r}")
        found(*preload.arguments, **preload.keywords)
