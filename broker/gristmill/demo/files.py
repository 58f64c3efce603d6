"""Which files the demo measures, and the task that reads one."""

from __future__ import annotations

import os
import stat
import sysconfig
from pathlib import Path
from typing import NamedTuple

from gristmill.demo.measure import FileReport, describe, measure_source
from gristmill.logs import escape

FOREIGN_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""Folders inside a standard library that hold what was installed, perhaps for another environment."""


class SourceFile(NamedTuple):
    """One file to measure."""

    path: str
    """Absolute, links resolved."""
    shown: str
    """Short and fit for a table: `stdlib/json/decoder.py`."""
    package: str
    """The package that it counts for: `stdlib/json`."""


class Sources(NamedTuple):
    """What was found."""

    files: list[SourceFile]
    """In the order of `shown`, each file once however many names it has."""
    notes: list[str]
    """One line for everything that looked like a part of it and was passed over."""


def measure_file(path: str) -> FileReport:
    """Read one file and measure it; a file that cannot be read is reported like one that does not parse."""
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        return FileReport(path, 0, (), describe(error))
    return measure_source(path, source)


def interpreter_sources() -> Sources:
    """Every .py file of the running interpreter's standard library and site-packages."""
    paths = sysconfig.get_paths()
    # Site-packages first: they may lie inside the standard library's folder, and a file counts once.
    roots = [("site-packages", paths[name]) for name in ("purelib", "platlib")]
    roots += [("stdlib", paths[name]) for name in ("stdlib", "platstdlib")]
    return find_sources(roots)


def folder_sources(folder: str | os.PathLike[str]) -> Sources:
    """Every .py file below one folder."""
    resolved = Path(folder).resolve()
    return find_sources([(resolved.name or "root", str(resolved))])


def find_sources(roots: list[tuple[str, str]]) -> Sources:
    """Every .py file below the roots, given as (origin, folder). Follows links, and sees each file once."""
    search = _Search()
    for origin, folder in roots:
        if os.path.isdir(folder):
            search.walk(origin, folder)
    return Sources(sorted(search.files, key=lambda file: file.shown), sorted(search.notes))


class _Search:
    def __init__(self) -> None:
        self.files: list[SourceFile] = []
        self.notes: list[str] = []
        self.seen: set[str] = set()

    def walk(self, origin: str, root: str) -> None:
        pending = [(root, "")]
        while pending:
            folder, inside = pending.pop()
            real = os.path.realpath(folder)
            if real in self.seen:
                continue
            self.seen.add(real)
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self._note(folder, f"cannot be listed ({error.strerror})")
                continue
            for entry in entries:
                relative = f"{inside}{entry.name}"
                if entry.is_dir():
                    if origin == "stdlib" and entry.name in FOREIGN_FOLDERS:
                        if os.path.realpath(entry.path) not in self.seen:
                            self._note(entry.path, "belongs to another environment")
                        continue
                    pending.append((entry.path, f"{relative}/"))
                elif entry.name.endswith(".py"):
                    self._add(origin, entry.path, relative)

    def _add(self, origin: str, path: str, relative: str) -> None:
        real = os.path.realpath(path)
        if real in self.seen:
            return
        self.seen.add(real)
        try:
            kind = os.stat(real).st_mode
        except OSError as error:
            self._note(path, f"cannot be opened ({error.strerror})")
            return
        if not stat.S_ISREG(kind):
            # Reading a pipe or a device could wait for ever.
            self._note(path, "is not a regular file")
            return
        top, _, rest = relative.partition("/")
        package = top if rest else top[: -len(".py")]
        self.files.append(SourceFile(real, escape(f"{origin}/{relative}"), escape(f"{origin}/{package}")))

    def _note(self, path: str, reason: str) -> None:
        self.notes.append(f"{escape(path)} {reason}")
