"""What a processor loads before its first task."""

from __future__ import annotations

from pathlib import Path

import pytest

from gristmill.errors import SettingError
from gristmill_worker import preload
from gristmill_worker.preload import Preload, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("package.module", Preload("package.module")),
        ("module:function", Preload("module", "function")),
        ("module:function()", Preload("module", "function")),
        (" module : Class.method(1, 'a', key=[2]) ", Preload("module", "Class.method", (1, "a"), {"key": [2]})),
    ],
)
def test_forms(text: str, expected: Preload) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["", "a b", "module:", "module:f(", "module:f(x)", "module:f(**{})", "module:f()()"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingError, match=r"expected module or module:function\(arguments\).*for example"):
        parse(text)


def test_it_is_imported_and_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gristmill_test_loaded.py").write_text(
        "calls, number = [], 5\nclass Model:\n    @staticmethod\n    def warm(*a, **k):\n        calls.append((a, k))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    preload.load("gristmill_test_loaded:Model.warm(1, size=2)")

    import gristmill_test_loaded  # type: ignore[import-not-found]

    assert gristmill_test_loaded.calls == [((1,), {"size": 2})]
    with pytest.raises(SettingError, match="expected a function; got number"):
        preload.load("gristmill_test_loaded:number")
    with pytest.raises(ModuleNotFoundError):
        preload.load("gristmill_test_missing")
