"""`import gristmill` costs nothing; what it names is there when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gristmill
import gristmill.client

HEAVY = {
    "redis",
    "pydantic",
    "cloudpickle",
    "psutil",
    "click",
    "flask",
    "rich",
    "orjson",
    "hiredis",
}


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_gristmill_imports_nothing_heavy() -> None:
    assert not modules_after("import gristmill") & (HEAVY | {"asyncio", "concurrent.futures", "logging"})


def test_the_client_needs_neither_models_nor_settings() -> None:
    loaded = modules_after("from gristmill import Client, Future, wait")

    assert not loaded & {"pydantic", "psutil", "click", "flask", "rich"}


@pytest.mark.parametrize("name", gristmill.__all__)
def test_every_name_of_the_api_is_there(name: str) -> None:
    assert getattr(gristmill, name) is not None
    assert name in dir(gristmill)


def test_the_api_is_sorted() -> None:
    constants = [name for name in gristmill.__all__ if name.isupper()]
    classes = [name for name in gristmill.__all__ if name[0].isupper() and not name.isupper()]
    others = [name for name in gristmill.__all__ if not name[0].isupper()]

    assert gristmill.__all__ == sorted(constants) + sorted(classes) + sorted(others)


def test_every_error_is_in_the_api() -> None:
    from gristmill import errors

    names = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert names <= set(gristmill.__all__)


@pytest.mark.parametrize("module", [gristmill, gristmill.client])
def test_other_names_are_not(module: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing  # type: ignore[attr-defined]
