"""`frazil why`: says why a file is there."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, add_commands
from frazil.cli.shared.printing import print_json, print_table, size_text, time_text


def register(app: typer.Typer) -> None:
    """Add the command to the command tree."""
    add_commands(app, {"why": why})


def why(
    choice: CatalogChoice,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The location of a file.")],
) -> None:
    """Say what needs a file, or when and why it will be deleted."""
    from msgspec import to_builtins

    from frazil.wire.files import FileState

    with choice.connect() as client:
        found = client.jobs.why(path)
    if choice.as_json:
        print_json(to_builtins(found))
        return
    facts = [found.kind] if found.kind else []
    if found.size_bytes is not None:
        facts.append(size_text(found.size_bytes))
    elif found.state is not FileState.OUTSIDE:
        facts.append("does not exist")
    typer.echo(f"{found.path}{': ' if facts else ''}{', '.join(facts)}")
    owner = "" if found.table is None else f" {found.table}:"
    typer.echo(f"{found.state.value}:{owner} {found.message}")
    if found.snapshots:
        rows = [
            (
                own.snapshot_id,
                ", ".join(own.refs) or None,
                ", ".join(own.leased_by) or None,
                None if own.delete_after_ms is None else time_text(own.delete_after_ms),
            )
            for own in found.snapshots
        ]
        print_table(("snapshot", "refs", "leased by", "deleted after"), rows)
