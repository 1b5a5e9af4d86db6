"""`frazil show` and `frazil log`: a table at a snapshot, a view, and the snapshots of a branch."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from frazil.cli.shared.catalog_command import CatalogChoice
from frazil.cli.shared.printing import (
    heading,
    identifier_document,
    plain,
    print_json,
    print_pairs,
    print_table,
    styled,
    time_text,
)
from frazil.cli.shared.typed_names import table_and_ref
from frazil.cli.tables.snapshot_text import (
    change_text,
    find_snapshot,
    refs_by_snapshot,
    snapshot_document,
    total_text,
    writer_keys,
)
from frazil.cli.tables.view_commands import show_view
from frazil.values.types import fields_by_id
from frazil.wire.errors import NoSuchTable, NotFound
from frazil.wire.file_actions import MAIN

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.client.declare.client_table import Snapshot, Table
    from frazil.client.declare.client_view import View
    from frazil.wire.identifiers import Identifier


def show(choice: CatalogChoice, name: str) -> None:
    identifier, ref = table_and_ref(name)
    with choice.connect() as client:
        try:
            table = client.load_table(identifier)
        except NoSuchTable as missing:
            view = _view(client, identifier)
            if view is None:
                raise missing from None
            show_view(choice, view, ref)
            return
    snapshot = find_snapshot(table, ref or MAIN)
    # Branches use the table's current schema, tags and older snapshots their own.
    named = table.refs.get(ref or MAIN)
    at_branch = ref is None or (named is not None and named.type == "branch")
    own = None if at_branch or snapshot is None else snapshot.schema_id
    schema_id = table.metadata["current-schema-id"] if own is None else own
    if choice.as_json:
        print_json(_document(table, snapshot, schema_id))
    else:
        _print(table, snapshot, schema_id)


def _view(client: Client, identifier: Identifier) -> View | None:
    try:
        return client.load_view(identifier)
    except NotFound:
        return None


def _document(table: Table, snapshot: Snapshot | None, schema_id: int) -> dict[str, Any]:
    schema = next(each for each in table.metadata["schemas"] if each["schema-id"] == schema_id)
    refs = refs_by_snapshot(table)
    return {
        "table": str(table.identifier),
        "identifier": identifier_document(table.identifier),
        "table-uuid": table.uuid,
        "format-version": table.format_version,
        "location": table.location,
        "metadata-location": table.metadata_location,
        "last-updated-ms": table.metadata.get("last-updated-ms"),
        "schema": schema,
        "partition-spec": dict(table.spec()),
        "sort-order": dict(table.sort_order()),
        "properties": dict(table.properties),
        "refs": table.metadata.get("refs") or {},
        "snapshot": None
        if snapshot is None
        else snapshot_document(snapshot, refs.get(snapshot.snapshot_id, [])),
    }


def _print(table: Table, snapshot: Snapshot | None, schema_id: int) -> None:
    typer.echo(styled(str(table.identifier), bold=True))
    print_pairs(
        {
            "uuid": table.uuid,
            "format version": table.format_version,
            "location": table.location,
            "metadata": table.metadata_location,
        },
        "  ",
    )
    heading(f"Schema {schema_id}")
    print_table(
        ("id", "column", "type", "required", "doc"),
        [
            (
                field_id,
                column.name,
                column.field.type.short_name,
                "yes" if column.field.required else "no",
                column.field.doc,
            )
            for field_id, column in fields_by_id(table.schema_by_id(schema_id)).items()
        ],
        right=("id",),
    )
    names = {field_id: column.name for field_id, column in fields_by_id(table.schema).items()}
    heading(f"Partition spec {table.spec()['spec-id']}")
    typer.echo(f"  {_fields_text(table.spec(), names) or 'unpartitioned'}")
    heading(f"Sort order {table.sort_order()['order-id']}")
    typer.echo(f"  {_fields_text(table.sort_order(), names) or 'unsorted'}")
    if table.properties:
        heading("Properties")
        print_pairs(dict(sorted(table.properties.items())), "  ")
    if table.refs:
        heading("Refs")
        print_table(
            ("ref", "type", "snapshot"),
            [(name, ref.type, ref.snapshot_id) for name, ref in sorted(table.refs.items())],
        )
    _print_snapshot(snapshot)


def _print_snapshot(snapshot: Snapshot | None) -> None:
    if snapshot is None:
        typer.echo("\nno snapshot yet")
        return
    heading(f"Snapshot {snapshot.snapshot_id}")
    print_pairs(
        {
            "time": time_text(snapshot.timestamp_ms),
            "operation": snapshot.operation,
            "parent": snapshot.parent_snapshot_id,
            "sequence number": snapshot.sequence_number,
            "total": total_text(snapshot.summary),
        },
        "  ",
    )
    summary = {key: value for key, value in snapshot.summary.items() if key != "operation"}
    if summary:
        typer.echo("  summary")
        print_pairs(dict(sorted(summary.items())), "    ")


def _fields_text(spec: Mapping[str, Any], names: Mapping[int, str]) -> str:
    """Return text such as `day(ts), bucket[16](id)`, for sort orders with direction and nulls."""
    return ", ".join(_field_text(field, names) for field in spec["fields"])


def _field_text(field: Mapping[str, Any], names: Mapping[int, str]) -> str:
    source_ids = field.get("source-ids") or [field.get("source-id")]
    source = ", ".join(names.get(source_id, f"#{source_id}") for source_id in source_ids)
    transform = field["transform"]
    text = source if transform == "identity" else f"{transform}({source})"
    if "name" in field and field["name"] != source:
        text += f" as {field['name']}"
    if "direction" in field:
        text += f" {field['direction']}, {field['null-order']}"
    return plain(text)


# --- log ------------------------------------------------------------------------------------------


def log(choice: CatalogChoice, name: str, limit: int | None, every: bool) -> None:
    identifier, ref = table_and_ref(name)
    if every and ref is not None:
        choice.usage("--all shows every snapshot, so it cannot be combined with a ref")
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
        _print_entry(snapshot, refs.get(snapshot.snapshot_id, []))


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


def _print_entry(snapshot: Snapshot, refs: list[str]) -> None:
    decorations = styled(f" ({plain(', '.join(refs))})", fg="cyan") if refs else ""
    first = styled(f"snapshot {snapshot.snapshot_id}", fg="yellow")
    typer.echo(f"{first}{decorations}")
    when, what = time_text(snapshot.timestamp_ms), plain(snapshot.operation or "no operation")
    typer.echo(f"  {when}  {what}  sequence number {snapshot.sequence_number}")
    for line in change_text(snapshot.summary):
        typer.echo(f"  {styled(line, fg='green' if line.startswith('+') else 'red')}")
    total = total_text(snapshot.summary)
    if total:
        typer.echo(f"  = {total}")
    for key, value in writer_keys(snapshot.summary).items():
        typer.echo(f"    {plain(key)}: {plain(value)}")
