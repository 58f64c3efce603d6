"""`gristmill doctor`: is Redis set up as it should be, and is everybody well?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gristmill.cli import epilog, exits
from gristmill.settings import Settings, options

if TYPE_CHECKING:
    from gristmill.doctor import Finding

COLOURS = {"OK": "green", "WARN": "yellow", "FAIL": "red"}


@click.command(
    epilog=epilog(
        "gristmill doctor --redis redis://localhost:6379/0",
        "gristmill doctor --json | jq '.findings[] | select(.level != \"OK\")'",
        note="Exit codes: 0 nothing failed; 3 Redis cannot be reached; 5 something must be put right.",
    )
)
@options(Settings)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(settings: Settings, as_json: bool) -> int:
    """Check Redis and the installation in it, and say what to do.

    Looks at version, persistence, eviction policy, memory, clocks, latency and scripts, and at what the dead left
    behind. Loads the schedulers' scripts into Redis's script cache, as they do, and writes a key that is gone a
    millisecond later; changes nothing else.
    """
    from gristmill.doctor import examine

    findings = examine(settings.address, settings.namespace)
    failed = any(finding.level == "FAIL" for finding in findings)
    if as_json:
        _print_json(findings, not failed)
    else:
        _print_lines(findings)
    return exits.UNHEALTHY if failed else exits.OK


def _print_json(findings: list[Finding], healthy: bool) -> None:
    import dataclasses
    import json

    body = {"healthy": healthy, "findings": [dataclasses.asdict(finding) for finding in findings]}
    click.echo(json.dumps(body, indent=2))


def _print_lines(findings: list[Finding]) -> None:
    from gristmill.logs import escape

    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        level = click.style(f"{finding.level:<4}", fg=COLOURS[finding.level])
        click.echo(f"{level}  {finding.check:<{width}}  {escape(finding.text)}")
        if finding.remedy:
            click.echo(f"{'':<4}  {'':<{width}}  → {escape(finding.remedy)}")
