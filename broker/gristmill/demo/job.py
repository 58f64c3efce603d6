"""The demo's work, twice: as tasks on a cluster, and one file after the other in this process."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from gristmill.demo.files import SourceFile, measure_file
from gristmill.demo.measure import FileReport, PackageReport, aggregate_package
from gristmill.demo.progress import Watcher

if TYPE_CHECKING:
    from gristmill import Client, Future

MEASURING = "Measuring files"
SUMMING = "Summing up packages"
REPEATING = "Repeating it serially"


@dataclass
class Work:
    """What one pass over the files came to."""

    files: dict[str, FileReport] = field(default_factory=dict)
    """By path."""
    packages: dict[str, PackageReport] = field(default_factory=dict)
    """By name."""
    failures: dict[str, str] = field(default_factory=dict)
    """What no task could measure or sum up, and the error; empty when all is right."""
    workers: Counter[str] = field(default_factory=Counter)
    """Tasks by the worker that ran them."""
    tasks: int = 0
    seconds: float = 0.0


def by_package(files: Sequence[SourceFile]) -> dict[str, list[SourceFile]]:
    """The files of each package, both in order."""
    packages: dict[str, list[SourceFile]] = {}
    for file in sorted(files, key=lambda file: (file.package, file.shown)):
        packages.setdefault(file.package, []).append(file)
    return packages


def run_on_cluster(client: Client, files: Sequence[SourceFile], watcher: Watcher) -> Work:
    """One task a file, and one task a package that depends on those of its files."""
    packages = by_package(files)
    work = Work(tasks=len(files) + len(packages))
    watcher.stage(MEASURING, len(files))
    watcher.stage(SUMMING, len(packages))
    started = time.perf_counter()
    measured: dict[Future, SourceFile] = {}
    summed: dict[Future, str] = {}
    done: SimpleQueue[Any] = SimpleQueue()
    for package, members in packages.items():
        futures = []
        for file in members:
            future = client.submit(measure_file, file.path)
            future.add_done_callback(done.put)
            measured[future] = file
            futures.append(future)
        # Futures as arguments: the task runs when all of them have a value, and gets the values in their place.
        future = client.submit(aggregate_package, package, futures)
        future.add_done_callback(done.put)
        summed[future] = package
    # Not `as_completed`: it takes the locks of all futures, and Ctrl-C in between would leave them taken.
    for _ in range(work.tasks):
        future = done.get()
        error = future.exception()
        if future in measured:
            file = measured[future]
            if error is None:
                work.files[file.path] = future.result()
            watcher.step(MEASURING)
        else:
            if error is None:
                work.packages[summed[future]] = future.result()
            watcher.step(SUMMING)
        if error is None:
            work.workers[future.worker or "unknown"] += 1
        else:
            what = measured[future].shown if future in measured else summed[future]
            work.failures[what] = f"{type(error).__name__}: {error}"
    work.seconds = time.perf_counter() - started
    return work


def run_serially(files: Sequence[SourceFile], watcher: Watcher) -> Work:
    """The same calls, one after the other, in this process."""
    packages = by_package(files)
    work = Work(tasks=len(files) + len(packages))
    watcher.stage(REPEATING, work.tasks)
    # The reports of the first run would slow every garbage collection of this one down, which would be unfair to it.
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    for package, members in packages.items():
        reports = []
        for file in members:
            report = measure_file(file.path)
            work.files[file.path] = report
            reports.append(report)
            watcher.step(REPEATING)
        work.packages[package] = aggregate_package(package, reports)
        watcher.step(REPEATING)
    work.seconds = time.perf_counter() - started
    gc.unfreeze()
    return work


def differences(one: Work, other: Work) -> list[str]:
    """Paths and packages whose reports are not exactly equal, or that only one of the two has."""
    different = [path for path in {*one.files, *other.files} if one.files.get(path) != other.files.get(path)]
    different += [
        name for name in {*one.packages, *other.packages} if one.packages.get(name) != other.packages.get(name)
    ]
    return sorted(different)
