"""`make mutate-guards`: run the tests of each script without each of its guards in turn.

    make mutate-guards                          every script and include
    make mutate-guards ARGS="submit accept"     these files
    make mutate-guards ARGS="--quick result"    without the tests of other scripts: what survives here may not there

A mutant meets the tests first that noticed others of its file, then the tests of its script (of an include: of the
scripts that include it), and those of all other scripts only when they pass. One that no test notices survives; the
list of survivors is the result, and exit code 1.
Guards that cannot be noticed, because they only save work, are listed with the reason in `exempt.py`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

import gristmill.transitions.loader as loader
from mutation.exempt import EXEMPT
from mutation.guards import Mutant, mutants
from support import byhand, database, driver, invariants, server  # noqa: F401 - before the forks, so that they are quick

TESTS = Path(__file__).resolve().parent.parent
LUA = Path(loader.__file__).parent
BROAD = (
    "test_duplicates.py",
    "test_rubbish.py",
    "test_bounds.py",
    "test_entries.py",
    "test_batches.py",
    "test_odd_fields.py",
)
"""They ask all scripts the same questions, so they notice most of what a script's own tests do not ask. Those that have
the script's name in theirs come first."""
SLOW = TESTS / "properties" / "test_rule_machine.py"
PYTEST = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "--no-header"]
# Half of the time of a run would go into what only its report needs.
PYTEST += ["--assert=plain", "-p", "no:unraisableexception", "-p", "pytest_timeout"]
HANG_SECONDS = 300
"""A loop without its guard may never end: then the mutant is noticed, too."""
TEST_SECONDS = 60
FIRST_TESTS = 12
"""How many of the tests that noticed other mutants of a file are run first: mostly the guards of a file go together."""


def lua_files() -> list[str]:
    """Every script and include, relative to `transitions/`."""
    return sorted(str(path.relative_to(LUA)) for path in LUA.rglob("*.lua"))


def users(path: str) -> list[str]:
    """The scripts in whose text the file ends up."""
    name = Path(path).stem
    if not path.startswith("include/"):
        return [name]

    def includes(other: str) -> set[str]:
        found = set()
        for line in (LUA / other).read_text().splitlines():
            if line.startswith("-- @include ") and not line.endswith(" states"):
                included = f"include/{line.split()[-1]}.lua"
                found |= {included, *includes(included)}
        return found

    return [Path(other).stem for other in lua_files() if not other.startswith("include/") and path in includes(other)]


def stages(path: str) -> list[list[str]]:
    """What pytest runs for mutants of a file: the tests of its scripts, the broad ones, all others, the slow ones."""
    folder = TESTS / "transitions"
    everything = sorted(found.name for found in folder.glob("test_*.py"))
    scripts = tuple(dict.fromkeys([Path(path).stem, *users(path)]))
    own = [name for script in scripts for name in everything if name.startswith((f"test_{script}.", f"test_{script}_"))]
    own = list(dict.fromkeys(own))
    others = [name for name in everything if name not in (*own, *BROAD)]
    own, broad, others = ([str(folder / name) for name in stage] for stage in (own, BROAD, others))
    named = ["-k", " or ".join(scripts), *broad]
    return [stage for stage in (own, named, broad, others, [str(SLOW)]) if stage]


def run_tests(mutant: Mutant, files: list[str], report: Path) -> int:
    """In a process of its own: pytest with the mutant in the place of its file; the exit code."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        code = 70
        try:
            output = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            read = loader._read
            loader._read = lambda path: mutant.source if path == mutant.path else read(path)
            loader.all_scripts.cache_clear()
            os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
            code = int(pytest.main([*PYTEST, f"--timeout={TEST_SECONDS}", *files]))
        finally:
            os._exit(code)
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    report.write_text(f"FAILED nothing came back for {HANG_SECONDS} s")
    return int(pytest.ExitCode.TESTS_FAILED)


def judge(mutant: Mutant, report: Path, first: list[str], most: int) -> str:
    """Run `first`, then the stages, at most so many, until a test fails: that test, or nothing when all pass."""
    for files in [*([first] if first else []), *stages(mutant.path)[:most]]:
        code = run_tests(mutant, files, report)
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            continue
        text = report.read_text(errors="replace")
        failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if code != pytest.ExitCode.TESTS_FAILED and "Timeout" not in text:
            raise RuntimeError(f"expected the tests to run without {mutant.name}; got exit code {code}:\n{text}")
        return failed[0].split(" - ")[0].partition(" ")[2] if failed else "a test that hung"
    return ""


def judge_all(todo: list[Mutant], jobs: int, most: int) -> Iterator[tuple[Mutant, str]]:
    """Each mutant with the test that noticed it, as they come; `jobs` at the same time, a process each."""
    with tempfile.TemporaryDirectory() as folder:
        waiting = list(enumerate(todo))[::-1]
        running: dict[int, tuple[int, Mutant]] = {}
        noticed: dict[str, list[str]] = {}
        while waiting or running:
            while waiting and len(running) < jobs:
                number, mutant = waiting.pop()
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        first = noticed.get(mutant.path, [])[:FIRST_TESTS]
                        said = judge(mutant, Path(folder) / f"{number}.report", first, most)
                        (Path(folder) / f"{number}.verdict").write_text(said)
                        code = 0
                    except BaseException:
                        traceback.print_exc()
                    finally:
                        os._exit(code)
                running[child] = (number, mutant)
            child, status = os.wait()
            number, mutant = running.pop(child)
            if status:
                raise RuntimeError(f"the tests without {mutant.name} could not be run")
            verdict = (Path(folder) / f"{number}.verdict").read_text()
            tests = noticed.setdefault(mutant.path, [])
            if verdict in tests:
                tests.remove(verdict)
            if "::" in verdict:
                tests.insert(0, verdict)
            yield mutant, verdict


def chosen(names: list[str]) -> list[Mutant]:
    """The mutants of these files, without those that are exempt."""
    found = []
    for path in lua_files():
        if not names or Path(path).stem in names:
            found += mutants(path, (LUA / path).read_text())
    return [mutant for mutant in found if (mutant.path, mutant.guard, mutant.answer) not in EXEMPT]


def main() -> int:
    """Judge all mutants; 1 when one survives."""
    parser = argparse.ArgumentParser(prog="make mutate-guards", description="Tests without each guard in turn.")
    parser.add_argument("names", nargs="*", help="names of scripts and includes; all without any")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at the same time")
    parser.add_argument("--quick", action="store_true", help="only the tests of the script and the broad ones")
    parser.add_argument("--list", action="store_true", help="only list the guards")
    options = parser.parse_args()
    unknown = set(options.names) - {Path(path).stem for path in lua_files()}
    if unknown:
        parser.error(f"expected names of Lua files; got {', '.join(sorted(unknown))}")
    todo = chosen(options.names)
    if options.list:
        print("\n".join(mutant.name for mutant in todo))
        return 0
    os.chdir(TESTS.parent)
    begun = time.monotonic()
    survivors = []
    for number, (mutant, noticed_by) in enumerate(judge_all(todo, options.jobs, 3 if options.quick else 9), 1):
        said = f"noticed by {noticed_by}" if noticed_by else "SURVIVES"
        print(f"{number}/{len(todo)} {mutant.name}: {said}", flush=True)
        if not noticed_by:
            survivors.append(mutant)
    print(f"\n{len(todo)} guards, {len(survivors)} survive; {time.monotonic() - begun:.0f} s")
    for mutant in survivors:
        print(f"  {mutant.name}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
