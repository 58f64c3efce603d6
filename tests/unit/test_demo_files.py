"""Which files the demo takes."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from gristmill.demo.files import find_sources, folder_sources, interpreter_sources, measure_file


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "shop" / "deep").mkdir(parents=True)
    (tmp_path / "shop" / "cart.py").write_text("def total(): pass\n")
    (tmp_path / "shop" / "deep" / "tax.py").write_text("")
    (tmp_path / "shop" / "notes.txt").write_text("")
    (tmp_path / "setup.py").write_text("")
    return tmp_path


def test_every_python_file_below_the_folder_is_found_once(tree: Path) -> None:
    os.symlink(tree / "shop", tree / "alias")
    os.symlink(tree, tree / "shop" / "loop")
    os.symlink(tree / "setup.py", tree / "setup_alias.py")

    found = folder_sources(tree)

    assert sorted(Path(file.path).name for file in found.files) == ["cart.py", "setup.py", "tax.py"]
    assert found.notes == []


def test_a_package_is_the_first_folder_or_the_module(tree: Path) -> None:
    found = {file.shown: file.package for file in folder_sources(tree).files}

    assert found == {
        f"{tree.name}/setup.py": f"{tree.name}/setup",
        f"{tree.name}/shop/cart.py": f"{tree.name}/shop",
        f"{tree.name}/shop/deep/tax.py": f"{tree.name}/shop",
    }


def test_what_cannot_be_read_as_a_file_is_noted_not_skipped(tree: Path) -> None:
    os.mkfifo(tree / "pipe.py")
    os.symlink(tree / "nowhere.py", tree / "dangling.py")

    notes = folder_sources(tree).notes

    assert notes == [
        f"{tree}/dangling.py cannot be opened (No such file or directory)",
        f"{tree}/pipe.py is not a regular file",
    ]


def test_site_packages_inside_the_library_count_once_and_those_of_others_are_noted(tree: Path) -> None:
    ours, theirs = tree / "lib" / "site-packages", tree / "lib" / "other" / "site-packages"
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
        (folder / "thing.py").write_text("")
    (tree / "lib" / "json.py").write_text("")

    found = find_sources([("site-packages", str(ours)), ("stdlib", str(tree / "lib"))])

    assert [file.shown for file in found.files] == ["site-packages/thing.py", "stdlib/json.py"]
    assert found.notes == [f"{theirs} belongs to another environment"]


def test_the_interpreters_own_library_is_a_couple_of_thousand_files() -> None:
    files = interpreter_sources().files

    assert len(files) > 500
    assert len({file.path for file in files}) == len(files)
    assert os.path.realpath(os.path.join(sysconfig.get_paths()["stdlib"], "json", "decoder.py")) in {
        file.path for file in files
    }


def test_names_that_a_terminal_should_not_get_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m.py").write_text("")

    assert folder_sources(tmp_path).files[0].shown == f"{tmp_path.name}/a\\x1b[31m.py"


def test_a_file_that_is_gone_is_a_problem_not_an_exception(tmp_path: Path) -> None:
    assert measure_file(str(tmp_path / "gone.py")).problem.startswith("FileNotFoundError: ")
