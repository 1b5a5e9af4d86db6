"""`frazil doctor`: what the server needs on this machine, each with its fix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import typer

from frazil.cli.server.checks import CHECKS, OPTIONAL, Problem
from frazil.cli.shared.options import USAGE_ERROR, Output, fail
from frazil.settings import Resolved, Settings, SettingsError

Status = Literal["ok", "warning", "failed"]
_COLOURS: Mapping[Status, str] = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: Status
    detail: str
    fix: str | None = None


def examine(resolved: Resolved, require: tuple[str, ...], output: Output) -> None:
    """Prints what each check found; ends with 1 where something required is wrong."""
    unknown = [name for name in require if name not in CHECKS]
    if unknown:
        known = ", ".join(CHECKS)
        fail(f"--require {unknown[0]} is no check: known are {known}", output, USAGE_ERROR)
    findings = [_run(name, resolved.settings, require) for name in CHECKS]
    healthy = all(finding.status != "failed" for finding in findings)
    if output is Output.JSON:
        answer = {"healthy": healthy, "checks": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(answer, indent=2))
    else:
        _print(findings)
    raise typer.Exit(0 if healthy else 1)


def _run(name: str, settings: Settings, require: tuple[str, ...]) -> Finding:
    try:
        return Finding(name, "ok", CHECKS[name](settings))
    except Problem as problem:
        optional = name in OPTIONAL and name not in require
        return Finding(name, "warning" if optional else "failed", str(problem), problem.fix)
    except SettingsError as error:
        return Finding(name, "failed", str(error), "correct this setting")


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        status = typer.style(f"{finding.status:<8}", fg=_COLOURS[finding.status])
        typer.echo(f"{status} {finding.check:<14} {finding.detail}")
        if finding.fix:
            typer.echo(f"{'':<24}fix: {finding.fix}")
