"""What the demo found, as a page for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from gristmill.cli.tables import titled
from gristmill.demo.files import SourceFile, Sources
from gristmill.demo.job import Work
from gristmill.demo.measure import MOST_COMPLEX_KEPT, PackageReport, RankedFunction, most_complex
from gristmill.logs import escape
from gristmill.snapshot.formats import worker_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PACKAGES_SHOWN = 10
FAILURES_SHOWN = 20
SINGULAR = {"files": "file", "packages": "package", "lines": "line", "functions": "function", "branches": "branch"}


@dataclass(frozen=True)
class Verification:
    """What the serial repetition says."""

    seconds: float
    different: list[str]
    """Files and packages with other figures; empty when everything agrees."""


@dataclass(frozen=True)
class Report:
    """Everything that is shown."""

    sources: Sources
    work: Work
    verification: Verification | None = None

    @property
    def right(self) -> bool:
        """Whether every task gave a value, and the serial run, if there was one, the same."""
        return not self.work.failures and not (self.verification and self.verification.different)

    @property
    def most_complex(self) -> list[RankedFunction]:
        """Out of the packages' own lists, which are long enough for it."""
        return most_complex(
            (ranked for package in self.work.packages.values() for ranked in package.most_complex), MOST_COMPLEX_KEPT
        )

    @property
    def unparsed(self) -> list[tuple[SourceFile, str]]:
        """Files without functions because they do not parse, decode or open, and why."""
        found = []
        for file in self.sources.files:
            report = self.work.files.get(file.path)
            if report is not None and report.problem:
                found.append((file, escape(report.problem)))
        return found

    @property
    def totals(self) -> dict[str, int]:
        packages = self.work.packages.values()
        return {
            "files": len(self.work.files),
            "packages": len(packages),
            "lines": sum(package.lines for package in packages),
            "functions": sum(package.functions for package in packages),
            "branches": sum(package.branches for package in packages),
        }

    @property
    def tasks_per_s(self) -> float:
        return self.work.tasks / self.work.seconds if self.work.seconds else 0.0


def as_json(report: Report) -> dict[str, Any]:
    """What `--json` prints."""
    shown = _shown(report.sources.files)
    verification = report.verification
    return {
        "right": report.right,
        "totals": report.totals,
        "tasks": report.work.tasks,
        "seconds": round(report.work.seconds, 3),
        "tasks_per_s": round(report.tasks_per_s, 1),
        "workers": dict(sorted(report.work.workers.items())),
        "most_complex": [{"file": shown[ranked.path], **ranked.function._asdict()} for ranked in report.most_complex],
        "packages": [
            {key: value for key, value in package._asdict().items() if key != "most_complex"}
            for package in _largest_first(report.work.packages)
        ],
        "unparsed": [{"file": file.shown, "path": escape(file.path), "problem": why} for file, why in report.unparsed],
        "passed_over": report.sources.notes,
        "failures": report.work.failures,
        "verification": verification
        and {
            "agrees": not verification.different,
            "seconds": round(verification.seconds, 3),
            "different": [escape(name) for name in verification.different],
        },
    }


def render(report: Report, console: Console) -> None:
    """Print the page for people."""
    console.print()
    if report.work.packages:
        console.print(_functions_table(report))
        console.print()
        console.print(_packages_table(report.work.packages))
        console.print()
    _render_unparsed(report, console)
    for note in report.sources.notes:
        console.print(Text(f"Passed over: {note}", style="dim"), soft_wrap=True)
    if report.work.failures:
        _render_failures(report.work.failures, console)
    totals = report.totals
    console.print(
        Text(
            " · ".join(f"{number:,} {what if number != 1 else SINGULAR[what]}" for what, number in totals.items()),
            style="bold",
        ),
        soft_wrap=True,
    )
    console.print(
        Text(f"{report.work.tasks:,} tasks in {report.work.seconds:.1f} s: {report.tasks_per_s:,.0f} tasks a second")
    )
    for worker, count in sorted(report.work.workers.items()):
        console.print(Text(f"  worker {worker_name(worker)}: {count:,} tasks"), soft_wrap=True)
    if report.verification:
        _render_verification(report, report.verification, console)


def _functions_table(report: Report) -> Table:
    shown = _shown(report.sources.files)
    table = _table("The most complex functions", ("complexity", "branches", "nesting", "lines", "function"))
    for path, function in report.most_complex:
        # Two lines a function: names and paths are long, and nobody wants to see them cut.
        where = Text(f"{function.name}\n", overflow="fold")
        where.append(f"{shown[path]}:{function.line}", style="dim")
        table.add_row(
            str(function.complexity), str(function.branches), str(function.nesting), str(function.lines), where
        )
    return table


def _packages_table(packages: Mapping[str, PackageReport]) -> Table:
    table = _table("The largest packages", ("package", "files", "lines", "functions", "mean complexity", "deepest"))
    for package in _largest_first(packages)[:PACKAGES_SHOWN]:
        mean = f"{package.complexity / package.functions:.1f}" if package.functions else "-"
        table.add_row(
            Text(package.package, overflow="fold"),
            f"{package.files:,}",
            f"{package.lines:,}",
            f"{package.functions:,}",
            mean,
            str(package.deepest),
        )
    return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = titled(title)
    for name in columns:
        table.add_column(
            name,
            justify="left" if name in ("function", "package") else "right",
            style="cyan" if name == "complexity" else None,
        )
    return table


def _render_unparsed(report: Report, console: Console) -> None:
    unparsed = report.unparsed
    if not unparsed:
        return
    some = "1 file does" if len(unparsed) == 1 else f"{len(unparsed):,} files do"
    console.print(Text(f"{some} not parse (counted, but without functions):"), soft_wrap=True)
    for file, why in unparsed:
        line = Text(f"  {file.shown}")
        line.append(f"  {why}", style="dim")
        console.print(line, soft_wrap=True)


def _render_failures(failures: Mapping[str, str], console: Console) -> None:
    console.print(Text(f"{len(failures):,} tasks have no value:", style="bold red"), soft_wrap=True)
    for what, error in list(failures.items())[:FAILURES_SHOWN]:
        console.print(Text(f"  {what}: {escape(error)}"), soft_wrap=True)
    if len(failures) > FAILURES_SHOWN:
        console.print(Text(f"  and {len(failures) - FAILURES_SHOWN:,} more (--json names them all)"), soft_wrap=True)


def _render_verification(report: Report, verification: Verification, console: Console) -> None:
    if verification.different:
        console.print(
            Text(
                f"Verification FAILED: {len(verification.different):,} reports differ from the serial run:",
                style="bold red",
            ),
            soft_wrap=True,
        )
        for name in verification.different[:FAILURES_SHOWN]:
            console.print(Text(f"  {escape(name)}"), soft_wrap=True)
        return
    times = verification.seconds / report.work.seconds if report.work.seconds else 0.0
    console.print(
        Text(
            f"Verified: the same work in one process, one file after the other, took {verification.seconds:.1f} s "
            f"({times:.1f} times as long), and every figure is equal",
            style="green",
        ),
        soft_wrap=True,
    )


def _largest_first(packages: Mapping[str, PackageReport]) -> list[PackageReport]:
    return sorted(packages.values(), key=lambda package: (-package.lines, package.package))


def _shown(files: Sequence[SourceFile]) -> dict[str, str]:
    return {file.path: file.shown for file in files}
