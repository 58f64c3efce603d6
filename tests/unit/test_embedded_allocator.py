"""Which allocator an embedded server gets: its own where it has a good one, else the jemalloc of the system."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gristmill.store import embedded
from gristmill.store.embedded import EmbeddedRedis, preloaded_allocator


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the name of jemalloc in the only folder that is searched."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr(embedded, "LIBRARY_FOLDERS", (str(tmp_path),))
    monkeypatch.setattr("sys.platform", "linux")
    path = tmp_path / "libjemalloc.so.2"
    path.write_bytes(b"")
    return path


def server(folder: Path, allocator: str) -> str:
    path = folder / f"server-{allocator}"
    path.write_text(f"#!/bin/sh\necho 'Redis server v=7.2.0 sha=0:0 malloc={allocator} bits=64'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_server_with_the_allocator_of_the_c_library_gets_jemalloc(library: Path, tmp_path: Path) -> None:
    assert preloaded_allocator(server(tmp_path, "libc")) == str(library)


def test_a_server_that_brings_jemalloc_is_left_alone(library: Path, tmp_path: Path) -> None:
    assert preloaded_allocator(server(tmp_path, "jemalloc-5.3.0")) == ""


def test_without_jemalloc_the_server_keeps_what_it_has(library: Path, tmp_path: Path) -> None:
    library.unlink()
    assert preloaded_allocator(server(tmp_path, "libc")) == ""


def test_what_the_user_preloads_is_kept(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/lib/other.so")
    assert preloaded_allocator(server(tmp_path, "libc")) == ""


def test_a_library_that_does_not_load_does_not_keep_the_server_from_starting(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "preloaded_allocator", lambda binary: str(library))
    with EmbeddedRedis() as redis:
        assert redis.running
