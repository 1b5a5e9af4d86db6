"""`frazil log`: the snapshots of a branch, newest first."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, usage
from frazil.cli.shared.printing import plain, print_json, time_text
from frazil.cli.shared.typed_names import table_and_ref
from frazil.cli.tables.snapshot_text import (
    MAIN,
    change_text,
    find_snapshot,
    refs_by_snapshot,
    snapshot_document,
    total_text,
    writer_keys,
)

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Snapshot, Table


def run(choice: CatalogChoice, name: str, limit: int | None, every: bool) -> None:
    identifier, ref = table_and_ref(name)
    if every and ref is not None:
        usage("--all shows every snapshot, so it cannot be combined with a ref", choice.output)
    with choice.connect() as client:
        table = client.load_table(identifier)
    snapshots = _all(table) if every else _history(table, ref or MAIN)
    shown = list(islice(snapshots, limit))
    refs = refs_by_snapshot(table)
    if choice.as_json:
        documents = [snapshot_document(each, refs.get(each.snapshot_id, [])) for each in shown]
        shown_ref = None if every else ref or MAIN
        print_json({"table": str(identifier), "ref": shown_ref, "snapshots": documents})
        return
    if not shown:
        typer.echo(f"{table} has no snapshot yet")
    for number, snapshot in enumerate(shown):
        if number:
            typer.echo()
        _print(snapshot, refs.get(snapshot.snapshot_id, []))


def _history(table: Table, ref: str) -> list[Snapshot]:
    start = find_snapshot(table, ref)
    return [] if start is None else list(table.ancestors(start.snapshot_id))


def _all(table: Table) -> list[Snapshot]:
    """Return all snapshots, newest first, also staged ones and those on no branch.

    If times are equal, the later one in the metadata is newer.
    """
    numbered = enumerate(table.snapshots)
    newest = sorted(numbered, key=lambda item: (item[1].timestamp_ms, item[0]), reverse=True)
    return [snapshot for _, snapshot in newest]


def _print(snapshot: Snapshot, refs: list[str]) -> None:
    decorations = typer.style(f" ({plain(', '.join(refs))})", fg="cyan") if refs else ""
    first = typer.style(f"snapshot {snapshot.snapshot_id}", fg="yellow")
    typer.echo(f"{first}{decorations}")
    when, what = time_text(snapshot.timestamp_ms), plain(snapshot.operation or "no operation")
    typer.echo(f"  {when}  {what}  sequence number {snapshot.sequence_number}")
    for line in change_text(snapshot.summary):
        typer.echo(f"  {typer.style(line, fg='green' if line.startswith('+') else 'red')}")
    total = total_text(snapshot.summary)
    if total:
        typer.echo(f"  = {total}")
    for key, value in writer_keys(snapshot.summary).items():
        typer.echo(f"    {plain(key)}: {plain(value)}")
