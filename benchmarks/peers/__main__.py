"""Gristmill beside its peers: `make bench-peers`, or `python benchmarks/peers [NAME...]`.

Each system gets an environment of its own below .cache/peers, made once by pip, and is measured alone, a workload at a
time, in a process that is ended when it hangs. Errors are shown as errors. `--write` puts the table into
docs/performance.md. Takes three quarters of an hour for all.
"""

from __future__ import annotations

import argparse
import ast
import datetime as dt
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gristmill.bench.run import cpu_model
from gristmill.cores import cores
from gristmill.store.embedded import find_server

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "peers"
PERFORMANCE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
HANG_SECONDS = 300
NAMES = (
    "gristmill",
    "process_pool",
    "loky",
    "opengris_scaler",
    "dask",
    "ray",
    "celery",
    "dramatiq",
    "huey",
    "taskiq",
    "arq",
    "rq",
)
"""In the order of the table."""
WORKLOADS = ("bulk", "loop", "latency", "spin", "payload", "layers", "tree")
COLUMNS = {
    "bulk_tasks_per_s": "tasks/s, bulk call",
    "loop_tasks_per_s": "tasks/s, submit loop",
    "p50_ms": "round trip p50, ms",
    "p99_ms": "p99, ms",
    "spin_percent": "1 ms tasks, % of ideal",
    "payload_s": "200 x 1 MB in and out, s",
    "layers_s": "graph 10 x 100, s",
    "tree_s": "tree of 1,024 leaves, s",
    "start_s": "start, s",
}


def facts_of(name: str) -> dict[str, Any]:
    """What the module says of itself, read without importing it: its packages are not installed here."""
    found: dict[str, Any] = {"requires": (), "settings": "", "bulk_call": ""}
    for node in ast.walk(ast.parse((HERE / f"with_{name}.py").read_text())):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in found:
            found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


def python_of(name: str, requires: tuple[str, ...]) -> str:
    """The interpreter that has the system; its environment is made when it is missing."""
    if not requires:
        return sys.executable
    place = CACHE / name
    python = place / "bin" / "python"
    done = place / "requires.txt"
    if not done.exists() or done.read_text() != "\n".join(requires):
        print(f"{name}: installing {', '.join(requires)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *requires], check=True)
        done.write_text("\n".join(requires))
    return str(python)


def measure(name: str, python: str, workload: str) -> dict[str, Any]:
    """One workload on one system, or how it failed."""
    with tempfile.TemporaryDirectory(prefix="gristmill-peers-", ignore_cleanup_errors=True) as directory:
        log = CACHE / f"{name}.log"
        environment = {
            **os.environ, "PEERS_DIRECTORY": directory, "PEERS_LOG": str(log), "PEERS_REDIS": str(find_server()),
        }  # fmt: skip
        process = subprocess.Popen(
            [python, str(HERE / "measure.py"), name, workload], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=log.open("ab"), text=True, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=HANG_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            return {"error": f"no result within {HANG_SECONDS} s"}
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            return {"error": f"exit code {process.returncode}; see {log.relative_to(ROOT)}"}
        found: dict[str, Any] = json.loads(lines[-1])
        return found


def shown(value: Any) -> str:
    """A figure for people; what failed is named below the table."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(results: dict[str, dict[str, Any]]) -> str:
    """The table in Markdown, with what it was measured on and how each system was set."""
    measured_on = (
        f"Measured on {dt.date.today().isoformat()}: {cpu_model()}, {cores()} cores, Python "
        f"{platform.python_version()}, 2 worker processes, everything on this machine; medians of up to five."
    )
    lines = [
        measured_on,
        "",
        "| system | " + " | ".join(COLUMNS.values()) + " |",
        "|---|" + "---:|" * len(COLUMNS),
    ]
    for name, found in results.items():
        cells = [shown(found.get(column)) for column in COLUMNS]
        lines.append(f"| {' '.join(facts_of(name)['requires']) or name.replace('_', ' ')} | {' | '.join(cells)} |")
    lines += ["", "| system | bulk call | settings beyond its defaults |", "|---|---|---|"]
    for name, found in results.items():
        facts = facts_of(name)
        errors = "; ".join(f"**{workload}: {error}**" for workload, error in found["errors"].items())
        said = "; ".join(text for text in (facts["settings"], errors) if text) or "none"
        lines.append(f"| {name.replace('_', ' ')} | `{facts['bulk_call']}` | {said} |")
    return "\n".join(lines)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="which of them, with commas (all)")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before of other systems")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    chosen = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    kept = CACHE / "results.json"
    results: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() and not chosen.fresh else {}
    for name in chosen.names or NAMES:
        found = results.setdefault(name, {"errors": {}})
        found.pop("start_s", None)  # of a run, the first counts: nothing is warm then
        try:
            python = python_of(name, tuple(facts_of(name)["requires"]))
        except subprocess.CalledProcessError as error:
            found["errors"]["installation"] = f"failed: {error}"
            continue
        for workload in chosen.workloads.split(","):
            answer = measure(name, python, workload)
            print(f"{name} {workload}: {answer}", flush=True)
            found["errors"].pop(workload, None)
            if "error" in answer:
                found["errors"][workload] = answer["error"]
            found |= {**answer, "start_s": found.get("start_s", answer.get("start_s"))}
    results = {name: results[name] for name in NAMES if name in results}
    kept.write_text(json.dumps(results, indent=2))
    text = table(results)
    print(text)
    if chosen.write:
        page = PERFORMANCE.read_text()
        before, _, rest = page.partition(BEGIN)
        PERFORMANCE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
