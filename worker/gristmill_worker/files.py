"""Large objects in files that the processors of one worker share: each is fetched from Redis once.

A processor maps a file copy-on-write: an array in it is nobody's copy until a task writes into it, and then only the
pages that it writes are, for that task alone. A file appears complete or not at all (it is renamed when it is), and
only one processor fetches an object at a time: a byte lock, which dies with its holder, decides who.

Removing a file hurts nobody: who has mapped it keeps what it has, who needs it again fetches it again. So a file goes
when no task has asked for it for a while, or when others need the room. The folder belongs to the agent: it removes it
at its end, and what an agent has left behind that was killed goes when the next one starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import shutil
import tempfile
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from gristmill.protocol.buffers import BYTES, TEXT, Leaves, Named, leaf_from

PREFIX = "gristmill-objects-"
SHARED_MEMORY = Path("/dev/shm")
LEAST_FREE_BYTES = 1 << 30
"""Files lie in shared memory when so much is free there, else in the folder for temporary files."""
UNUSED_SECONDS = 60.0
KEPT_BYTES = 256 << 20
"""Bytes and text that a processor keeps for its next tasks at most, beside the newest one."""
ROOM_SHARES, OTHERS = 64, 16
"""A processor takes one share of the room at a time, and leaves some for as many others."""
_LOCK = ".lock"
_PART = ".part"


class Source(Protocol):
    """Where objects come from: a processor's connection to Redis."""

    def read_into(self, object_id: str, target: memoryview) -> None:
        """Read all of it; raises MissingObjectError."""


# --- the agent's side -------------------------------------------------------------------------------------


def folder_name(directory: str) -> Path:
    """A name for the folder of this process, which nobody has made yet; `directory` is where, empty for the usual."""
    return _base(directory) / f"{PREFIX}{os.getpid()}-{_birth(os.getpid())}-{os.urandom(4).hex()}"


def _base(directory: str) -> Path:
    if directory:
        return Path(directory)
    with contextlib.suppress(OSError):
        if os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free >= LEAST_FREE_BYTES:
            return SHARED_MEMORY
    return Path(tempfile.gettempdir())


def _birth(pid: int) -> int:
    """When a process was started, in hundredths of a second: its number may be used again. 0 when there is none."""
    import psutil

    try:
        return round(psutil.Process(pid).create_time() * 100)
    except psutil.Error:
        return 0


def remove_orphans(directory: str) -> None:
    """Remove folders of agents that are no more."""
    for folder in _base(directory).glob(f"{PREFIX}*"):
        pid, _, rest = folder.name[len(PREFIX) :].partition("-")
        birth = rest.partition("-")[0]
        if pid.isdigit() and birth.isdigit() and abs(_birth(int(pid)) - int(birth)) > 100:
            shutil.rmtree(folder, ignore_errors=True)


def remove_unused(folder: Path, seconds: float = UNUSED_SECONDS) -> None:
    """Remove files that no task has asked for so long."""
    for path, used_at, _ in _files(folder):
        if used_at < time.time() - seconds:
            with contextlib.suppress(OSError):
                path.unlink()


def _files(folder: Path) -> list[tuple[Path, float, int]]:
    """The files with the time of their last use and their size, longest unused first."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    with contextlib.suppress(FileNotFoundError):
                        facts = entry.stat()
                        found.append((Path(entry.path), facts.st_mtime, facts.st_size))
    except FileNotFoundError:  # nobody has needed it yet
        return []
    return sorted(found, key=lambda one: one[1])


# --- the processor's side ---------------------------------------------------------------------------------


class _File:
    """One object, which may be mapped again and again; without a file it lies in memory."""

    __slots__ = ("_descriptor", "_memory")

    def __init__(self, descriptor: int, memory: bytearray) -> None:
        self._descriptor = descriptor
        self._memory = memory

    def map(self) -> memoryview:
        """Its bytes; who writes into them does so for itself."""
        if self._descriptor < 0:
            return memoryview(bytearray(self._memory))
        return memoryview(mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_COPY))

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class _Kept:
    """One object of which there is what tasks cannot change."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes | str) -> None:
        self._value = value

    def map(self) -> memoryview:
        """Its bytes, for one task alone."""
        value = self._value
        return memoryview(bytearray(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value))


class Opened:
    """The objects that one call or function names, for as long as the task executes."""

    def __init__(self, files: ObjectFiles, opened: list[_File | _Kept], named: list[Named]) -> None:
        self._files = files
        self._opened = opened
        self._named = named

    def leaves(self) -> Leaves:
        """The leaves, as nobody has changed them."""
        return Leaves(lambda index, kind: self._files.read(self._named[index], kind, self._opened[index]))


class ObjectFiles:
    """The large objects that tasks of this processor use."""

    def __init__(self, folder: Path, most_bytes: int, source: Source) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        """Of all files together; files beyond, longest unused first, go when another is needed."""
        self._source = source
        self._room = 0
        self._kept: OrderedDict[tuple[str, str], tuple[Any, int]] = OrderedDict()
        """Bytes and text, which no task can change: by object and kind."""
        self._kept_bytes = 0

    def open(self, named: list[Named]) -> Opened:
        """The objects that one call or function names; all are fetched now, while nothing may interrupt it."""
        return Opened(self, [self._find_kept(one) or self._file(one) for one in named], named)

    def view(self, named: Named) -> memoryview:
        """The bytes of an object, mapped copy-on-write; raises MissingObjectError."""
        return self._file(named).map()

    def read(self, named: Named, kind: str, opened: _File | _Kept) -> Any:
        """What a leaf of this kind is. Bytes and text are kept for the next tasks, which cannot change them."""
        if kind not in (BYTES, TEXT):
            return leaf_from(kind, opened.map())
        found = self._kept.get((named.object_id, kind))
        if found is None:
            found = leaf_from(kind, opened.map()), named.size
            self._kept[named.object_id, kind] = found
            self._kept_bytes += named.size
            while len(self._kept) > 1 and self._kept_bytes > KEPT_BYTES:
                self._kept_bytes -= self._kept.popitem(last=False)[1][1]
        else:
            self._kept.move_to_end((named.object_id, kind))
        return found[0]

    def forget(self) -> None:
        """There is nothing to do: keep nothing."""
        self._kept.clear()
        self._kept_bytes = 0

    def _find_kept(self, named: Named) -> _Kept | None:
        """Held by who has opened it, for it may be forgotten before it is read."""
        found = self._kept.get((named.object_id, BYTES)) or self._kept.get((named.object_id, TEXT))
        return None if found is None else _Kept(found[0])

    def _file(self, named: Named) -> _File:
        path = self._folder / named.object_id
        found = _open(path)
        if found is not None:
            return found
        with self._fetching(named.object_id):
            return _open(path) or self._fetch(named, path)

    def _fetch(self, named: Named, path: Path) -> _File:
        object_id, size = named
        part = path.with_name(f".{object_id}{_PART}")
        try:
            self._make_room(size)
            with part.open("w+b") as file:
                _allocate(file.fileno(), max(1, size))
                with mmap.mmap(file.fileno(), max(1, size)) as target:
                    view = memoryview(target)[:size]
                    try:
                        self._source.read_into(object_id, view)
                    finally:
                        view.release()
            part.rename(path)
            if (opened := _open(path)) is not None:
                return opened
        except OSError:  # no room there, or no such folder: then without a file
            pass
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        memory = bytearray(size)
        self._source.read_into(object_id, memoryview(memory))
        return _File(-1, memory)

    def _make_room(self, size: int) -> None:
        """Looks at the files only when this processor has used up its share of the room that it last saw."""
        if size > self._most_bytes:
            raise OSError(f"expected an object of at most {self._most_bytes} bytes; got one of {size}")
        self._room -= size
        if self._room >= 0:
            return
        share = self._most_bytes // ROOM_SHARES
        files = _files(self._folder)
        total = size + sum(found for _, _, found in files)
        for path, _, found in files:
            if total <= self._most_bytes - OTHERS * share:
                break
            path.unlink(missing_ok=True)
            total -= found
        self._room = min(share, self._most_bytes - total)

    @contextlib.contextmanager
    def _fetching(self, object_id: str) -> Iterator[None]:
        """Only one processor of the worker at a time fetches this object."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:
            yield
            return
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX, 1, zlib.crc32(object_id.encode()))
            yield
        finally:
            os.close(lock)


def _allocate(descriptor: int, size: int) -> None:
    """Take the room now: writing into a mapped file that finds none would kill the process. Raises OSError."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def _open(path: Path) -> _File | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
        os.utime(path)
    return _File(descriptor, bytearray())
